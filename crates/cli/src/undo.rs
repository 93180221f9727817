//! `minke undo`: puts back what a run changed. The pod does it, as a call of whoever asked, so that it is in the log.
//!
//! Invariant: a pod that was started for it stops again, so that the next `exec --resume` finds nobody in its way
//! (`undo_leaves_no_pod_behind_and_the_session_goes_on`).

use std::time::Duration;

use clap::Args;
use minke_client::{Connection, Launched, Reached, find, reach};
use minke_protocol::{
    CallReply, Event, Method, Nothing, Shutdown, ShutdownMode, Subscribe, ToolResult, Undo as UndoMethod,
};
use minke_record::{Outcome, RunId};
use serde_json::json;

use crate::around::{Surroundings, introduction};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::visit::newest;

/// How long the pod may take to say that it has begun; a pod that sleeps is started first.
const BEGIN_WAIT: Duration = Duration::from_secs(30);
/// How long a pod that was started for this may take to stop.
const STOP_WAIT: Duration = Duration::from_secs(12);

#[derive(Debug, Args)]
pub(crate) struct Undo {
    /// A live pod's name, a session's id, or a name that a session had (default: the newest session of this directory)
    name: Option<String>,
    /// The run to take back (default: the last one); `minke log show` names them
    #[arg(long, value_name = "RUN")]
    run: Option<RunId>,
}

pub(crate) async fn run(undo: Undo, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let home = around.home()?;
    let session = match &undo.name {
        Some(name) => find(&home, name)?.session,
        None => newest(&home, &around.cwd)?,
    };
    let Reached { socket, launched, .. } = reach(&home, session).await?;
    let mut connection = Connection::open(&socket, Subscribe::Full, None, introduction()).await?;
    let done = put_back(&mut connection, undo.run, screen).await;
    if let Some(launched) = launched {
        stop(connection, launched, screen).await;
    }
    done
}

async fn put_back(connection: &mut Connection, run: Option<RunId>, screen: &Screen) -> Result<Exit, Failure> {
    let begun = connection.ask::<CallReply>(Method::Undo(UndoMethod { run }), BEGIN_WAIT).await?;
    let call = begun.map_err(Failure::from)?.call_id;
    while let Some(frame) = connection.next().await? {
        if let Event::ToolResult(result) = &frame.event
            && result.id == call
        {
            return told(result, screen);
        }
    }
    Err(Failure::new(Exit::Failed, "the pod has gone before it was done")
        .hint("`minke tail` shows how far it came; undo again names what is left"))
}

/// Somebody who has found the pod meanwhile and given it work is not cut off: it stops after that.
async fn stop(mut connection: Connection, mut launched: Launched, screen: &Screen) {
    let method = Method::Shutdown(Shutdown { mode: ShutdownMode::AfterRun });
    // A pod that goes before it replies has done what was asked; what counts is the end of its process.
    drop(connection.ask::<Nothing>(method, STOP_WAIT).await);
    drop(connection);
    let pid = launched.pid();
    match launched.ended_within(STOP_WAIT).await {
        Ok(Some(_)) => {}
        Ok(None) => screen.warn(&format!("the pod's process {pid} goes on: `minke ps` says what it does")),
        Err(e) => screen.warn(&format!("the end of the pod's process {pid} cannot be seen: {e}")),
    }
}

/// What was put back and what was not. Something that had to be left is a failure: the tree is not as it was.
fn told(result: &ToolResult, screen: &Screen) -> Result<Exit, Failure> {
    let whole = result.outcome == Some(Outcome::Done);
    if screen.json {
        screen.object(&json!({
            "outcome": result.outcome,
            "summary": result.summary,
            "detail": result.output,
        }))?;
    } else {
        screen.note(&result.summary);
        // An undo that failed says its summary again in front of the paths.
        let detail = result.output.as_ref().map(|detail| detail.show());
        let paths = detail.as_deref().map(|detail| detail.strip_prefix(&result.summary).unwrap_or(detail));
        if let Some(paths) =
            paths.map(|paths| paths.trim_start_matches('\n')).filter(|paths| !paths.is_empty())
        {
            screen.line(paths)?;
        }
    }
    Ok(if whole { Exit::Done } else { Exit::Failed })
}
