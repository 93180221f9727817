//! `minke fork`: a new session that begins where another one stands. Copies nothing and wakes nobody.

use clap::Args;
use minke_client::find;
use minke_pod::{Forking, Moment, State};
use minke_record::{Actor, ForkedFrom, PodName, SessionId};
use minke_session::Sealed;
use serde_json::json;

use crate::around::{Surroundings, ids, now, seed};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

#[derive(Debug, Args)]
pub(crate) struct Fork {
    /// A live pod's name, a session's id, or a name that a session had
    name: String,
    /// The last entry that both share (default: the newest)
    #[arg(long, value_name = "SEQ")]
    at: Option<u64>,
    /// The fork's name (default: the parent's)
    #[arg(long = "name", value_name = "NAME")]
    new_name: Option<String>,
}

pub(crate) fn run(fork: Fork, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let wish: Option<PodName> =
        fork.new_name.as_deref().map(str::parse).transpose().map_err(Failure::usage)?;
    let home = around.home()?;
    let parent = find(&home, &fork.name)?.session;
    let id = SessionId(ids().next_uuid());
    let mut name = wish;
    let step = |from: &ForkedFrom, entries: &[Sealed]| {
        let state = State::replay(entries.iter().map(|sealed| &sealed.entry));
        let parents = || state.facts.name.clone().unwrap_or_else(|| PodName::from_any("fork"));
        let forking = Forking {
            session: id,
            name: name.get_or_insert_with(parents).clone(),
            created_by: Actor::person("cli"),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            from: from.clone(),
            cwd: None,
            mandate: None,
            rests: None,
        };
        minke_pod::fork(&state, Moment { now: now(), seed: seed() }, forking)
            .map(|written| (written.entries, written.blobs))
            .map_err(|refusal| refusal.message)
    };
    drop(home.store.fork(minke_session::Fork { parent, at: fork.at, id, step: Box::new(step) })?);
    let name = name.map(|name| name.to_string()).unwrap_or_default();
    if screen.json {
        screen
            .object(&json!({ "session": format!("s_{id}"), "name": name, "from": format!("s_{parent}") }))?;
    } else {
        screen.line(&format!("s_{id}"))?;
        screen.note(&format!(
            "forked; `minke attach s_{id}` or `minke exec --resume s_{id} \"…\"` goes on there"
        ));
    }
    Ok(Exit::Done)
}
