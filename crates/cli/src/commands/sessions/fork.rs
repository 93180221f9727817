//! `minke fork`: a new session that continues an existing one. Copies no entries and wakes no pod.

use clap::Args;
use minke_client::find_session;
use minke_pod::{ForkRequest, State, StepSeed};
use minke_record::{Actor, ForkOrigin, PodName, SessionId};
use minke_session::SealedEntry;
use serde_json::json;

use crate::context::{CliContext, new_ids, now_millis, random_seed};
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

/// Create a session that continues another one
#[derive(Debug, Args)]
pub(crate) struct ForkArgs {
    /// A live pod's name, a session's id, or a name that a session had
    name: String,
    /// Last entry that both share (default: the newest)
    #[arg(long, value_name = "SEQ")]
    at: Option<u64>,
    /// Name of the fork (default: the parent's)
    #[arg(long = "name", value_name = "NAME")]
    new_name: Option<String>,
}

pub(crate) fn run(fork: ForkArgs, context: &CliContext, output: &CliOutput) -> Result<ExitKind, CliError> {
    let requested: Option<PodName> =
        fork.new_name.as_deref().map(str::parse).transpose().map_err(CliError::usage)?;
    let home = context.open_home()?;
    let parent = find_session(&home, &fork.name)?.session;
    let id = SessionId(new_ids().next_uuid());
    let mut name = requested;
    let step = |from: &ForkOrigin, entries: &[SealedEntry]| {
        let state = State::replay(entries.iter().map(|sealed| &sealed.entry));
        let parents = || state.facts.name.clone().unwrap_or_else(|| PodName::from_text("fork"));
        let forking = ForkRequest {
            session: id,
            name: name.get_or_insert_with(parents).clone(),
            created_by: Actor::from_person("cli"),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            from: from.clone(),
            cwd: None,
            mandate: None,
            pause_reason: None,
        };
        minke_pod::fork_session(&state, StepSeed { now: now_millis(), seed: random_seed() }, forking)
            .map(|written| (written.entries, written.blobs))
            .map_err(|refusal| refusal.message)
    };
    drop(home.store.fork(minke_session::ForkSpec { parent, at: fork.at, id, step: Box::new(step) })?);
    let name = name.map(|name| name.to_string()).unwrap_or_default();
    if output.json {
        output.print_json(
            &json!({ "session": format!("s_{id}"), "name": name, "from": format!("s_{parent}") }),
        )?;
    } else {
        output.print_line(&format!("s_{id}"))?;
        output.print_note(&format!(
            "forked; `minke attach s_{id}` or `minke exec --resume s_{id} \"…\"` continues there"
        ));
    }
    Ok(ExitKind::Success)
}
