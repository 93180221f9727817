//! `minke undo`: puts back what a run changed. The pod does it, as a call of whoever asked, so that it is in the log.

use std::time::Duration;

use clap::Args;
use minke_client::{Connection, find, reach};
use minke_protocol::{CallReply, Event, Method, Subscribe, ToolResult, Undo as UndoMethod};
use minke_record::{Outcome, RunId};
use serde_json::json;

use crate::around::{Surroundings, introduction};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::visit::newest;

/// How long the pod may take to say that it has begun; a pod that sleeps is started first.
const BEGIN_WAIT: Duration = Duration::from_secs(30);

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
    let reached = reach(&home, session).await?;
    let mut connection = Connection::open(&reached.socket, Subscribe::Full, None, introduction()).await?;
    let begun = connection.ask::<CallReply>(Method::Undo(UndoMethod { run: undo.run }), BEGIN_WAIT).await?;
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
        if let Some(detail) = &result.output {
            screen.line(&detail.show())?;
        }
    }
    Ok(if whole { Exit::Done } else { Exit::Failed })
}
