//! `minke send`: sends a message to a pod. Wakes its session if it sleeps.

use clap::{Args, ValueEnum};
use minke_client::find_session;
use minke_launch::{Delivery, DeliveryOutcome, ReferenceScope, deliver_method, queue_step, reject_secrets};
use minke_protocol::{Method, Run, RunMode};
use minke_record::limits::TEXT_BYTES;
use minke_record::{Actor, InputSegment, Text};
use serde_json::json;

use crate::commands::run::exec::read_stdin;
use crate::context::{CliContext, client_info, new_ids};
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;
use crate::scope_conflict::release_session_scope;

/// Send a message to a pod; starts the pod if it sleeps
#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// A live pod's name, a session's id, or a name that a session had
    name: String,
    /// Text of the message; `-` reads it from stdin
    text: String,
    /// During a run: wait for its end, join it, end it, or refuse
    #[arg(long, value_enum, default_value_t)]
    mode: SendModeArg,
    /// Do not resolve `@path`, `#knowledge` or `/skill` in the text
    #[arg(long)]
    literal: bool,
    /// Idempotency key: a repeated id has no effect
    #[arg(long, value_name = "ID")]
    op_id: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum SendModeArg {
    // Waits for the end of the run.
    #[default]
    Queue,
    // Joins the run before its next request.
    Steer,
    // Ends the run, then starts.
    Interrupt,
    // Refuses the message during a run.
    Reject,
}

impl SendArgs {
    /// Returns a message that waits for the end of the run.
    pub(crate) fn for_queue(name: String, text: String) -> SendArgs {
        SendArgs { name, text, mode: SendModeArg::Queue, literal: false, op_id: None }
    }
}

pub(crate) async fn run(
    send: SendArgs,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let text = if send.text == "-" { read_stdin()? } else { send.text };
    if text.trim().is_empty() {
        return Err(CliError::usage("the message is empty").with_hint("`minke send NAME \"text\"`"));
    }
    reject_secrets(&[&text], Vec::new(), &context.env)?;
    let home = context.open_home()?;
    let session = find_session(&home, &send.name)?.session;
    release_session_scope(&home, session).await?;
    let input = if text.len() > TEXT_BYTES {
        // The text may exceed a frame, so it is sent as a blob. References in so long a text are not
        // resolved.
        let content = Text::Blob(home.store.put_blob(session, text.into_bytes())?);
        vec![InputSegment::Text { content }]
    } else if send.literal {
        vec![InputSegment::from_text(text)]
    } else {
        ReferenceScope::for_session(session, &home, &context.env)?.parse_text(&text)
    };
    let mode = match send.mode {
        SendModeArg::Queue => RunMode::Queue,
        SendModeArg::Steer => RunMode::Steer,
        SendModeArg::Interrupt => RunMode::Interrupt,
        SendModeArg::Reject => RunMode::Reject,
    };
    let op_id = send.op_id.unwrap_or_else(|| new_ids().next_uuid().to_string());
    // In every mode: a sleeping session has no run to wait for.
    let visit = queue_step(input.clone(), Some(op_id.clone()), Actor::from_person("cli"));
    let delivery = Delivery {
        session,
        method: Method::Run(Run { input, mode, op_id: Some(op_id.clone()) }),
        client: client_info(),
        offline_step: Some(&*visit),
    };
    let (pod, result) = match deliver_method(&home, delivery).await? {
        DeliveryOutcome::Replied { pod, result } => (pod, result),
        DeliveryOutcome::WrittenOffline { pod, .. } => (pod, json!({})),
    };
    if output.json {
        let said = json!({ "pod": pod, "session": format!("s_{session}"), "op_id": op_id, "result": result });
        output.print_json(&said)?;
    } else {
        let verb = if result.get("queued").is_some() { "queued at" } else { "sent to" };
        output.print_note(&format!("{verb} {pod} · `minke tail {pod}` shows its progress"));
    }
    Ok(ExitKind::Success)
}
