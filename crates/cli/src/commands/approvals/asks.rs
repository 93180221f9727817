//! `minke asks`, `minke answer`: asks that wait for an answer, in live pods and in sessions without a pod.

use std::collections::BTreeSet;

use clap::Args;
use minke_client::UserHome;
use minke_launch::{Delivery, DeliveryOutcome, deliver_method, reject_secrets};
use minke_pod::OfflineEdit;
use minke_protocol::Method;
use minke_record::{Actor, AskId, Decision, OpenAsk, PodName, SessionId};
use minke_registry::{LivePod, RuntimeDir};
use serde_json::{Value, json};

use crate::context::{CliContext, client_info};
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;
use crate::render::approval_view::ApprovalCard;
use crate::render::open_asks::{OpenAsks, read_open_asks, unreadable_log};
use crate::render::pod_tree::current_tally;

#[derive(Debug, Args)]
pub(crate) struct AsksArgs {}

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

/// An ask with the session, pod and directory that it belongs to.
struct PendingAsk {
    session: SessionId,
    pod: String,
    cwd: String,
    ask: OpenAsk,
}

pub(crate) fn print_asks(
    _: &AsksArgs,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let home = context.open_home()?;
    let asks = find_asks(&home, output)?;
    if output.json {
        output.print_json(&asks.iter().map(PendingAsk::to_json).collect())?;
        return Ok(ExitKind::Success);
    }
    if asks.is_empty() {
        output.print_note("no open asks");
    }
    for pending in &asks {
        output.print_line(&format!("{}  s_{}", pending.pod, pending.session))?;
        output.print_line(&ApprovalCard::from(&pending.ask).to_text())?;
    }
    Ok(ExitKind::Success)
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

/// Returns every open ask. Skips the log of a live pod whose current tally counts no asks. Warns about a
/// session that cannot be read.
fn find_asks(home: &UserHome, output: &CliOutput) -> Result<Vec<PendingAsk>, CliError> {
    let look = RuntimeDir::new(&home.paths).take_snapshot()?;
    let asks_nothing = |live: &&LivePod| current_tally(home, live).is_some_and(|tally| tally.asks == 0);
    let silent: BTreeSet<SessionId> =
        look.live.iter().filter(asks_nothing).map(|live| live.row.session).collect();
    let mut asks = Vec::new();
    for session in home.store.list_sessions()?.into_iter().filter(|session| !silent.contains(session)) {
        let found = match home.store.open_reader(session).and_then(|reader| read_open_asks(&*reader)) {
            Ok(found) => found,
            Err(e) => {
                output.print_warning(&unreadable_log(session, &e));
                continue;
            }
        };
        if let Some(doubt) = &found.incomplete_reason {
            output.print_warning(doubt);
        }
        let OpenAsks { pod, cwd, asks: open, .. } = found;
        asks.extend(open.into_iter().map(|ask| PendingAsk {
            session,
            pod: pod.clone(),
            cwd: cwd.clone(),
            ask,
        }));
    }
    Ok(asks)
}

impl PendingAsk {
    fn to_json(&self) -> Value {
        ApprovalCard::from(&self.ask).to_json(&self.pod, &format!("s_{}", self.session), &self.cwd)
    }
}
