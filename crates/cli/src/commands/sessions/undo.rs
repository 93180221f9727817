//! `minke undo`: reverts the file changes of a run. The pod does it as a client's call, so the log records
//! it.
//!
//! Invariant: a pod that was started for this stops again, so that it does not conflict with the next `exec
//! --resume` (`undo_leaves_no_pod_behind_and_the_session_goes_on`).

use std::time::Duration;

use clap::Args;
use minke_client::{Connection, find_session};
use minke_launch::{LaunchedPod, ReachablePod, newest_session, reach_pod};
use minke_protocol::{
    CallReply, Event, Method, Nothing, Shutdown, ShutdownMode, Subscribe, ToolResult, Undo as UndoMethod,
};
use minke_record::{Outcome, RunId};
use serde_json::json;

use crate::context::{CliContext, client_info};
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

/// Time limit for the start of the undo, including the start of a sleeping pod.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for the stop of a pod that was started for this.
const STOP_TIMEOUT: Duration = Duration::from_secs(12);

/// Undo the file changes of a run
#[derive(Debug, Args)]
pub(crate) struct UndoArgs {
    /// Name of a live pod, or id or name of a session (default: newest here)
    name: Option<String>,
    /// Run to undo (default: the last); `minke log show` lists run ids
    #[arg(long, value_name = "RUN")]
    run: Option<RunId>,
}

pub(crate) async fn run(
    undo: UndoArgs,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let home = context.open_home()?;
    let session = match &undo.name {
        Some(name) => find_session(&home, name)?.session,
        None => newest_session(&home, &context.env.cwd)?,
    };
    let ReachablePod { socket, launched, .. } = reach_pod(&home, session).await?;
    let mut connection = Connection::open(&socket, Subscribe::Full, None, client_info()).await?;
    let done = undo_run(&mut connection, undo.run, output).await;
    if let Some(launched) = launched {
        stop_pod(connection, launched, output).await;
    }
    done
}

async fn undo_run(
    connection: &mut Connection,
    run: Option<RunId>,
    screen: &CliOutput,
) -> Result<ExitKind, CliError> {
    let begun =
        connection.send_and_wait::<CallReply>(Method::Undo(UndoMethod { run }), START_TIMEOUT).await?;
    let call = begun.map_err(CliError::from)?.call_id;
    while let Some(frame) = connection.next_frame().await? {
        if let Event::ToolResult(result) = &frame.event
            && result.id == call
        {
            return report_result(result, screen);
        }
    }
    Err(CliError::new(ExitKind::Failed, "the pod exited before the undo was finished")
        .with_hint("`minke tail` shows its progress; another undo lists the remaining changes"))
}

/// Stops the pod after its current run, so that work of another client is not cancelled.
async fn stop_pod(mut connection: Connection, mut launched: LaunchedPod, output: &CliOutput) {
    let method = Method::Shutdown(Shutdown { mode: ShutdownMode::AfterRun });
    // The pod may exit without a reply; the exit of its process counts.
    drop(connection.send_and_wait::<Nothing>(method, STOP_TIMEOUT).await);
    drop(connection);
    let pid = launched.pid();
    match launched.wait_exit(STOP_TIMEOUT).await {
        Ok(Some(_)) => {}
        Ok(None) => output.print_warning(&format!("the pod's process {pid} still runs: see `minke ps`")),
        Err(e) => output.print_warning(&format!("could not wait for the pod's process {pid}: {e}")),
    }
}

/// Prints the reverted and the remaining changes. Remaining changes are a failure, because the files are not
/// as before.
fn report_result(result: &ToolResult, output: &CliOutput) -> Result<ExitKind, CliError> {
    let complete = result.outcome == Some(Outcome::Done);
    if output.json {
        output.print_json(&json!({
            "outcome": result.outcome,
            "summary": result.summary,
            "detail": result.output,
        }))?;
    } else {
        output.print_note(&result.summary);
        // A failed undo repeats its summary before the paths.
        let detail = result.output.as_ref().map(|detail| detail.display_text());
        let paths = detail.as_deref().map(|detail| detail.strip_prefix(&result.summary).unwrap_or(detail));
        if let Some(paths) =
            paths.map(|paths| paths.trim_start_matches('\n')).filter(|paths| !paths.is_empty())
        {
            output.print_line(paths)?;
        }
    }
    Ok(if complete { ExitKind::Success } else { ExitKind::Failed })
}
