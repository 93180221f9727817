//! Questions that wait for a person, of live pods and of threads that sleep; and answering them.
//!
//! Elsewhere: what an answer does (`pod`), the older words for decisions (`protocol::api`).
//! Invariant: an answer is given once; who comes later is told so (`an_approval_goes_on_with_the_call_that_waits`).

use minke_client::{Delivered, Delivery, Home, deliver};
use minke_index::{Only, Query};
use minke_pod::Visit;
use minke_protocol::Method;
use minke_protocol::api::OlderDecision;
use minke_record::{Actor, Ask, AskId, CallStage, Decision, ErrorCode, OpenAsk, SessionId};
use minke_registry::Runtime;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::answer::id;
use crate::engine::{Engine, off};
use crate::fault::Fault;
use crate::lists::from_index;
use crate::look::{passes, state};
use crate::request::{params_of, quoted};
use crate::room::make_way;
use crate::tools::{PATIENCE, taken};
use crate::visits::{introduction, step};

/// Threads that are looked through at once.
const PAGE: usize = 500;
/// Pages that are looked through.
const PAGES: usize = 10_000;

/// A question and where it was asked.
struct Asked {
    session: SessionId,
    name: String,
    cwd: String,
    ask: OpenAsk,
    /// It is about a call that a client made, which only the living pod remembers.
    guests: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// `approval/answer` names it `approval_id`, `asks/answer` names it `id`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerParams {
    #[serde(alias = "approval_id")]
    id: String,
    decision: Value,
    #[serde(default)]
    note: Option<String>,
}

impl Engine {
    pub(crate) async fn asks(&self, params: Value) -> Result<Value, Fault> {
        let Nothing {} = params_of("asks", params)?;
        let home = self.home.clone();
        let asked = off(move || all(&home)).await?;
        Ok(json!({ "asks": asked.iter().map(Asked::json).collect::<Vec<Value>>() }))
    }

    /// Answers a question. A client's own call is waited for, and its result is the answer.
    pub(crate) async fn answer(&self, method: &str, params: Value, by: &Actor) -> Result<Value, Fault> {
        let given: AnswerParams = params_of(method, params)?;
        let nobody =
            || Fault::new(ErrorCode::NotFound, format!("no question `{}` is open", quoted(&given.id)));
        let ask: AskId = given.id.parse().map_err(|_| nobody())?;
        let home = self.home.clone();
        let asked = off(move || all(&home)).await?;
        let asked = asked.into_iter().find(|asked| asked.ask.id == ask).ok_or_else(nobody)?;
        let decision = decision(&given.decision, &asked.ask)?;
        if let Some(note) = &given.note {
            self.maker.without_secrets(&[note])?;
        }
        let answer = minke_protocol::Answer { ask, decision: decision.clone(), note: given.note.clone() };
        let mut told = json!({
            "ok": true,
            "thread_id": id(asked.session),
            "approval_id": ask,
            "decision": decision,
        });
        if asked.guests {
            let result = self.go_on(&asked, answer, by).await?;
            if let Some(told) = told.as_object_mut() {
                told.insert("result".to_owned(), result);
            }
            return Ok(told);
        }
        make_way(&self.home, asked.session, by).await?;
        let left = Visit::Answer { ask, decision, note: given.note };
        let visit = step(left, by.clone());
        let delivery = Delivery {
            session: asked.session,
            method: Method::Answer(answer),
            client: introduction(by),
            visit: Some(&*visit),
        };
        if let Delivered::Visited { launched, .. } = deliver(&self.home, delivery).await? {
            self.keep(launched);
        }
        Ok(told)
    }

    /// Answers a question about a client's call and waits for what comes of it.
    async fn go_on(&self, asked: &Asked, answer: minke_protocol::Answer, by: &Actor) -> Result<Value, Fault> {
        let call_id = asked.ask.subject.call_id.clone();
        let call_id =
            call_id.ok_or_else(|| Fault::new(ErrorCode::Internal, "the question is about no call"))?;
        // Listened to first, so that nothing is missed between what was read and what comes.
        let mut hearing = self.hear(asked.session, PATIENCE, by).await?;
        let (mut fold, read) = self.call_so_far(asked.session, &call_id)?;
        let ask = answer.ask;
        let sent = hearing.send(Method::Answer(answer)).await?;
        let mut answered = false;
        let result = hearing
            .until(Some(&sent), |entry| {
                if read.is_some_and(|read| entry.seq <= read) {
                    return None;
                }
                answered |= matches!(&entry.kind, minke_record::Kind::Answer(answer) if answer.id == ask);
                taken(&mut fold, entry).filter(|_| answered)
            })
            .await?;
        Ok(json!(result))
    }
}

/// A word, or an older decision in its own shape.
fn decision(given: &Value, ask: &OpenAsk) -> Result<Decision, Fault> {
    if let Some(word) = given.as_str() {
        let decision = Decision::from(word);
        if !matches!(decision, Decision::Other(_)) {
            return Ok(decision);
        }
    }
    let older: OlderDecision =
        serde_json::from_value(given.clone()).map_err(|e| Fault::invalid(format!("decision: {e}")))?;
    let OpenAsk { id, ask, subject, options, expires } = ask.clone();
    Ok(older.for_ask(&Ask { id, ask, subject, options, expires })?)
}

/// Every open question, of the threads whose summary says that there is one.
fn all(home: &Home) -> Result<Vec<Asked>, Fault> {
    let mut query = Query { only: Only::All, cwd: None, limit: PAGE, after: None };
    let mut asked = Vec::new();
    for _ in 0..PAGES {
        let page = from_index(home, |index| index.list(&query))?.value;
        for session in page.summaries.iter().filter(|one| one.open_asks() > 0).filter_map(|one| one.session) {
            asked.extend(of(home, session)?);
        }
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    // Threads that go with their pod are in no index.
    for live in &Runtime::new(&home.paths).look()?.live {
        if passes(home, live.row.session) {
            asked.extend(of(home, live.row.session)?);
        }
    }
    asked.sort_by_key(|one| one.ask.id);
    Ok(asked)
}

fn of(home: &Home, session: SessionId) -> Result<Vec<Asked>, Fault> {
    let facts = state(home, session)?.facts;
    let name = facts.name.as_ref().map(ToString::to_string).unwrap_or_default();
    let cwd = facts.about.as_ref().map(|about| about.cwd.clone()).unwrap_or_default();
    let models: Vec<AskId> = facts
        .calls
        .iter()
        .filter_map(|call| match call.stage {
            CallStage::Asked(ask) => Some(ask),
            _ => None,
        })
        .collect();
    let asked = |ask: OpenAsk| Asked {
        session,
        name: name.clone(),
        cwd: cwd.clone(),
        guests: !models.contains(&ask.id) && ask.subject.call_id.is_some(),
        ask,
    };
    Ok(facts.asks.into_iter().map(asked).collect())
}

impl Asked {
    fn json(&self) -> Value {
        let mut written = json!(self.ask);
        if let Some(written) = written.as_object_mut() {
            written.insert("thread_id".to_owned(), json!(id(self.session)));
            written.insert("name".to_owned(), json!(self.name));
            written.insert("cwd".to_owned(), json!(self.cwd));
        }
        written
    }
}
