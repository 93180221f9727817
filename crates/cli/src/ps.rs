//! `minke ps`: live pods, by their scope leases and never by guess.
//!
//! What a pod does comes from its `status.json`; what it has used and asked comes from its log, so that a pod that
//! hangs is shown like the others.

use std::time::Duration;

use clap::Args;
use minke_client::Home;
use minke_pod::State;
use minke_record::SessionId;
use minke_registry::{Live, Runtime};
use serde_json::{Value, json};

use crate::around::{Surroundings, now};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

/// How many sessions without a pod `--all` lists, newest first.
const SLEEPING: usize = 50;

#[derive(Debug, Args)]
pub(crate) struct Ps {
    /// Also the newest sessions on which no pod lives
    #[arg(long, short)]
    all: bool,
}

/// One row of the list.
struct Row {
    name: String,
    session: SessionId,
    state: String,
    activity: Option<String>,
    waiting: Option<Value>,
    pid: Option<u32>,
    age: Duration,
    folded: Option<State>,
}

pub(crate) fn run(ps: &Ps, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let home = around.home()?;
    let look = Runtime::new(&home.paths).look()?;
    for problem in &look.problems {
        screen.warn(problem);
    }
    let mut rows: Vec<Row> = look.live.iter().map(|live| live_row(&home, live)).collect();
    if ps.all {
        let sleeping = home.store.list()?.into_iter().rev().filter(|id| look.by_session(*id).is_none());
        rows.extend(sleeping.take(SLEEPING).map(|id| sleeping_row(&home, id)));
    }
    if screen.json {
        screen.object(&rows.iter().map(Row::json).collect())?;
        return Ok(Exit::Done);
    }
    if rows.is_empty() {
        screen.note("no pod lives; `minke ps --all` lists the sessions");
        return Ok(Exit::Done);
    }
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max(4);
    screen.line(&format!(
        "{:<width$}  {:<9} {:<8} {:>5} {:>9} {:>4}  SESSION",
        "NAME", "STATE", "ACTIVITY", "AGE", "TOKENS", "ASKS"
    ))?;
    rows.iter().try_for_each(|row| screen.line(&row.line(width)))?;
    Ok(Exit::Done)
}

fn live_row(home: &Home, live: &Live) -> Row {
    let folded = fold(home, live.row.session);
    let status = live.status.as_ref();
    Row {
        name: live.row.name.to_string(),
        session: live.row.session,
        state: live.state().to_owned(),
        activity: status.and_then(|status| status.activity.clone()),
        waiting: status.and_then(|status| status.waiting.as_ref()).map(|waiting| json!(waiting)),
        pid: Some(live.row.pid),
        age: age(folded.as_ref()),
        folded,
    }
}

fn sleeping_row(home: &Home, session: SessionId) -> Row {
    let folded = fold(home, session);
    let name = folded.as_ref().and_then(|state| state.facts.name.as_ref());
    Row {
        name: name.map_or_else(|| "?".to_owned(), ToString::to_string),
        session,
        state: if folded.is_some() { "stopped" } else { "unreadable" }.to_owned(),
        activity: None,
        waiting: None,
        pid: None,
        age: age(folded.as_ref()),
        folded,
    }
}

/// What the log says. A log that cannot be read leaves its columns empty; `log verify` says why.
fn fold(home: &Home, session: SessionId) -> Option<State> {
    let replay = home.store.reader(session).and_then(|reader| reader.replay()).ok()?;
    Some(State::replay(replay.iter().map(|sealed| &sealed.entry)))
}

fn age(folded: Option<&State>) -> Duration {
    let created = folded.and_then(|state| state.facts.about.as_ref()).map(|about| about.created);
    Duration::from_millis(created.map_or(0, |created| now().saturating_sub(created)))
}

impl Row {
    fn json(&self) -> Value {
        let facts = self.folded.as_ref().map(|state| &state.facts);
        let about = facts.and_then(|facts| facts.about.as_ref());
        let mut row = json!({
            "name": self.name,
            "session": format!("s_{}", self.session),
            "state": self.state,
            "activity": self.activity,
            "pid": self.pid,
            "parent": about.and_then(|about| about.parent.as_ref()).map(|parent| format!("s_{}", parent.session)),
            "scope": about.map(|about| &about.scope),
            "usage": facts.map(|facts| &facts.usage),
            "budget": facts.and_then(|facts| facts.budget.as_ref()),
            "asks": facts.map_or(0, |facts| facts.asks.len()),
        });
        if let (Some(waiting), Some(row)) = (&self.waiting, row.as_object_mut()) {
            row.insert("waiting".to_owned(), waiting.clone());
        }
        row
    }

    fn line(&self, width: usize) -> String {
        let facts = self.folded.as_ref().map(|state| &state.facts);
        let tokens =
            facts.map_or_else(String::new, |facts| (facts.usage.input + facts.usage.output).to_string());
        let asks = facts.map_or(0, |facts| facts.asks.len());
        format!(
            "{:<width$}  {:<9} {:<8} {:>5} {tokens:>9} {asks:>4}  s_{}",
            self.name,
            self.state,
            self.activity.as_deref().unwrap_or("–"),
            short(self.age),
            self.session
        )
    }
}

/// `12s`, `5m`, `3h`, `2d`.
fn short(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}
