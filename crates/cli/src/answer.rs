//! `minke asks`, `minke answer`: questions that wait for a person, of live pods and of sessions that sleep.

use std::collections::BTreeSet;

use clap::Args;
use minke_client::{Delivered, Delivery, Home, deliver};
use minke_pod::Visit;
use minke_protocol::Method;
use minke_record::{Actor, AskId, Decision, OpenAsk, PodName, SessionId};
use minke_registry::{Live, Runtime};
use serde_json::{Value, json};

use crate::around::{Surroundings, introduction};
use crate::card::Card;
use crate::failure::{Exit, Failure};
use crate::family::tally;
use crate::questions::{Questions, questions, unread};
use crate::screen::Screen;
use crate::spoken::without_secrets;

#[derive(Debug, Args)]
pub(crate) struct Asks {}

#[derive(Debug, Args)]
pub(crate) struct Answer {
    /// The question's id, as `minke asks` gives it
    ask: String,
    /// approved, approved_for_session, approved_rule, answered, denied or abort
    decision: String,
    /// A word to the agent
    #[arg(long)]
    note: Option<String>,
}

/// A question and where it was asked.
struct Asked {
    session: SessionId,
    pod: String,
    cwd: String,
    ask: OpenAsk,
}

pub(crate) fn list(_: &Asks, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let home = around.home()?;
    let asks = find_asks(&home, screen)?;
    if screen.json {
        screen.object(&asks.iter().map(Asked::json).collect())?;
        return Ok(Exit::Done);
    }
    if asks.is_empty() {
        screen.note("nobody asks anything");
    }
    for asked in &asks {
        screen.line(&format!("{}  s_{}", asked.pod, asked.session))?;
        screen.line(&Card::from(&asked.ask).text())?;
    }
    Ok(Exit::Done)
}

pub(crate) async fn run(answer: Answer, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let id: AskId = answer.ask.parse().map_err(|e| {
        Failure::usage(format!("`{}` is not the id of a question", answer.ask))
            .why(e)
            .hint("`minke asks` lists them")
    })?;
    let decision = Decision::from(answer.decision.as_str());
    if let Decision::Other(word) = &decision {
        let known: Vec<&str> = Decision::KNOWN.iter().map(Decision::as_str).collect();
        return Err(
            Failure::usage(format!("`{word}` is not an answer")).hint(format!("one of {}", known.join(", ")))
        );
    }
    let home = around.home()?;
    let asked = find_asks(&home, screen)?.into_iter().find(|asked| asked.ask.id == id);
    let asked = asked.ok_or_else(|| {
        Failure::usage(format!("no question {id} is open")).code("not_found").hint("`minke asks` lists them")
    })?;
    let pod = deliver_answer(asked.session, id, decision, answer.note, around).await?;
    if screen.json {
        screen.object(&json!({ "pod": pod, "session": format!("s_{}", asked.session), "ask": id }))?;
    } else {
        screen.note(&format!("{pod}: answered"));
    }
    Ok(Exit::Done)
}

/// Answers a question of a session, whether a pod lives on it or not; gives its pod's name.
pub(crate) async fn deliver_answer(
    session: SessionId,
    ask: AskId,
    decision: Decision,
    note: Option<String>,
    around: &Surroundings,
) -> Result<PodName, Failure> {
    without_secrets(&[note.as_deref().unwrap_or_default()], Vec::new(), around)?;
    let visit = minke_host::step(
        Visit::Answer { ask, decision: decision.clone(), note: note.clone() },
        Actor::person("cli"),
    );
    let delivery = Delivery {
        session,
        method: Method::Answer(minke_protocol::Answer { ask, decision, note }),
        client: introduction(),
        visit: Some(&*visit),
    };
    Ok(match deliver(&around.home()?, delivery).await? {
        Delivered::Replied { pod, .. } | Delivered::Visited { pod, .. } => pod,
    })
}

/// Every open question. Every session is looked at, but for those whose live pod asks nothing by a tally that still holds; one
/// that cannot be read is named.
fn find_asks(home: &Home, screen: &Screen) -> Result<Vec<Asked>, Failure> {
    let look = Runtime::new(&home.paths).look()?;
    let asks_nothing = |live: &&Live| tally(home, live).is_some_and(|tally| tally.asks == 0);
    let silent: BTreeSet<SessionId> =
        look.live.iter().filter(asks_nothing).map(|live| live.row.session).collect();
    let mut asks = Vec::new();
    for session in home.store.list()?.into_iter().filter(|session| !silent.contains(session)) {
        let found = match home.store.reader(session).and_then(|reader| questions(&*reader)) {
            Ok(found) => found,
            Err(e) => {
                screen.warn(&unread(session, &e));
                continue;
            }
        };
        if let Some(doubt) = &found.doubt {
            screen.warn(doubt);
        }
        let Questions { pod, cwd, asks: open, .. } = found;
        asks.extend(open.into_iter().map(|ask| Asked { session, pod: pod.clone(), cwd: cwd.clone(), ask }));
    }
    Ok(asks)
}

impl Asked {
    fn json(&self) -> Value {
        Card::from(&self.ask).json(&self.pod, &format!("s_{}", self.session), &self.cwd)
    }
}
