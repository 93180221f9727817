//! `minke answer`: answers an ask, in a live pod or in a session without a pod.

use clap::Args;
use minke_launch::{Delivery, DeliveryOutcome, deliver_method, reject_secrets};
use minke_pod::OfflineEdit;
use minke_protocol::Method;
use minke_record::{Actor, AskId, Decision, PodName, SessionId};
use serde_json::json;

use crate::commands::approvals::asks::find_asks;
use crate::context::{CliContext, client_info};
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

/// Answer an ask
#[derive(Debug, Args)]
pub(crate) struct AnswerArgs {
    /// Id of the ask, as `minke asks` prints it
    ask: String,
    /// approved, approved_for_session, approved_rule, answered, denied, abort
    decision: String,
    /// Send a note to the agent with the answer
    #[arg(long)]
    note: Option<String>,
}

pub(crate) async fn run(
    answer: AnswerArgs,
    context: &CliContext,
    screen: &CliOutput,
) -> Result<ExitKind, CliError> {
    let id: AskId = answer.ask.parse().map_err(|e| {
        CliError::usage(format!("`{}` is not the id of an ask", answer.ask))
            .with_reason(e)
            .with_hint("`minke asks` lists them")
    })?;
    let decision = Decision::from(answer.decision.as_str());
    if let Decision::Other(word) = &decision {
        let known: Vec<&str> = Decision::KNOWN.iter().map(Decision::as_str).collect();
        return Err(CliError::usage(format!("`{word}` is not an answer"))
            .with_hint(format!("one of {}", known.join(", "))));
    }
    let home = context.open_home()?;
    let pending = find_asks(&home, screen)?.into_iter().find(|asked| asked.ask.id == id);
    let asked = pending.ok_or_else(|| {
        CliError::usage(format!("ask {id} is not open"))
            .with_code("not_found")
            .with_hint("`minke asks` lists the open asks")
    })?;
    let pod = deliver_answer(asked.session, id, decision, answer.note, context).await?;
    if screen.json {
        screen.print_json(&json!({ "pod": pod, "session": format!("s_{}", asked.session), "ask": id }))?;
    } else {
        screen.print_note(&format!("{pod}: answered"));
    }
    Ok(ExitKind::Success)
}

/// Answers an ask of a session, with or without a live pod. Returns the name of the pod.
pub(crate) async fn deliver_answer(
    session: SessionId,
    ask: AskId,
    decision: Decision,
    note: Option<String>,
    context: &CliContext,
) -> Result<PodName, CliError> {
    reject_secrets(&[note.as_deref().unwrap_or_default()], Vec::new(), &context.env)?;
    let visit = minke_launch::edit_step(
        OfflineEdit::Answer { ask, decision: decision.clone(), note: note.clone() },
        Actor::from_person("cli"),
    );
    let delivery = Delivery {
        session,
        method: Method::Answer(minke_protocol::Answer { ask, decision, note }),
        client: client_info(),
        offline_step: Some(&*visit),
    };
    Ok(match deliver_method(&context.open_home()?, delivery).await? {
        DeliveryOutcome::Replied { pod, .. } | DeliveryOutcome::WrittenOffline { pod, .. } => pod,
    })
}
