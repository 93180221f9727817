//! `minke asks`: lists the open asks of live pods and of sessions without a pod.

use std::collections::BTreeSet;

use clap::Args;
use minke_client::UserHome;
use minke_record::{OpenAsk, SessionId};
use minke_registry::{LivePod, RuntimeDir};
use serde_json::Value;

use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;
use crate::render::approval_view::ApprovalCard;
use crate::render::open_asks::{OpenAsks, read_open_asks, unreadable_log};
use crate::render::pod_tree::current_tally;

/// List open asks
#[derive(Debug, Args)]
pub(crate) struct AsksArgs {}

/// An ask with the session, pod and directory that it belongs to.
pub(crate) struct PendingAsk {
    pub(crate) session: SessionId,
    pod: String,
    cwd: String,
    pub(crate) ask: OpenAsk,
}

pub(crate) fn run(_: &AsksArgs, context: &CliContext, output: &CliOutput) -> Result<ExitKind, CliError> {
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

/// Returns every open ask. Skips the log of a live pod whose current tally counts no asks. Warns about a
/// session that cannot be read.
pub(crate) fn find_asks(home: &UserHome, output: &CliOutput) -> Result<Vec<PendingAsk>, CliError> {
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
