//! Open asks of live pods and of sleeping threads, and their answers.
//!
//! Elsewhere: the effect of an answer (`pod`), the older names of decisions (`protocol::api`).
//! Invariant: an ask is answered once; a later answer gets an error (`an_approval_goes_on_with_the_call_that_waits`).

use minke_client::UserHome;
use minke_index::{ArchivedFilter, ThreadQuery};
use minke_launch::{Delivery, DeliveryOutcome, client_info, deliver_method, edit_step};
use minke_pod::OfflineEdit;
use minke_protocol::Method;
use minke_protocol::api::LegacyDecision;
use minke_record::{Actor, Ask, AskId, CallStage, Decision, ErrorCode, OpenAsk, SessionId};
use minke_registry::RuntimeDir;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::engine::{Engine, run_blocking};
use crate::error::ApiError;
use crate::pods::request_session_scope;
use crate::request::{parse_params, quote_input};
use crate::response::format_session_id;
use crate::threads::lists::query_index;
use crate::threads::log::{is_ephemeral, load_state};
use crate::threads::tool_calls::{CALL_TIMEOUT, fold_call_entry};

/// The number of threads per index page.
const PAGE: usize = 500;
/// The maximum number of index pages.
const PAGES: usize = 10_000;

/// An open ask and its thread.
struct ThreadAsk {
    session: SessionId,
    name: String,
    cwd: String,
    ask: OpenAsk,
    /// It concerns a call of a client, which only the live pod knows.
    is_client_call: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AskListParams {}

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
    pub(crate) async fn list_asks(&self, params: Value) -> Result<Value, ApiError> {
        let AskListParams {} = parse_params("asks", params)?;
        let home = self.home.clone();
        let thread_ask = run_blocking(move || all_open_asks(&home)).await?;
        Ok(json!({ "asks": thread_ask.iter().map(ThreadAsk::to_json).collect::<Vec<Value>>() }))
    }

    /// Answers an ask. For a client's own call, waits for the call and returns its result.
    pub(crate) async fn answer_ask(
        &self,
        method: &str,
        params: Value,
        by: &Actor,
    ) -> Result<Value, ApiError> {
        let answer_params: AnswerParams = parse_params(method, params)?;
        let unknown_ask = || {
            ApiError::new(
                ErrorCode::NotFound,
                format!("there is no open ask `{}`", quote_input(&answer_params.id)),
            )
        };
        let ask: AskId = answer_params.id.parse().map_err(|_| unknown_ask())?;
        let home = self.home.clone();
        let thread_ask = run_blocking(move || all_open_asks(&home)).await?;
        let asked = thread_ask.into_iter().find(|asked| asked.ask.id == ask).ok_or_else(unknown_ask)?;
        let decision = parse_decision(&answer_params.decision, &asked.ask)?;
        if let Some(note) = &answer_params.note {
            self.reject_secrets(&[note])?;
        }
        let answer =
            minke_protocol::Answer { ask, decision: decision.clone(), note: answer_params.note.clone() };
        let mut response = json!({
            "ok": true,
            "thread_id": format_session_id(asked.session),
            "approval_id": ask,
            "decision": decision,
        });
        if asked.is_client_call {
            let result = self.answer_client_call(&asked, answer, by).await?;
            if let Some(told) = response.as_object_mut() {
                told.insert("result".to_owned(), result);
            }
            return Ok(response);
        }
        request_session_scope(&self.home, asked.session, by).await?;
        let edit = OfflineEdit::Answer { ask, decision, note: answer_params.note };
        let visit = edit_step(edit, by.clone());
        let delivery = Delivery {
            session: asked.session,
            method: Method::Answer(answer),
            client: client_info(by),
            offline_step: Some(&*visit),
        };
        if let DeliveryOutcome::WrittenOffline { launched, .. } = deliver_method(&self.home, delivery).await?
        {
            self.track_child(launched);
        }
        Ok(response)
    }

    /// Answers an ask about a client's call and waits for the result of the call.
    async fn answer_client_call(
        &self,
        thread_ask: &ThreadAsk,
        answer: minke_protocol::Answer,
        by: &Actor,
    ) -> Result<Value, ApiError> {
        let call_id = thread_ask.ask.subject.call_id.clone();
        let call_id = call_id.ok_or_else(|| ApiError::new(ErrorCode::Internal, "the ask has no call"))?;
        // Subscribe first, so that no entry is missed between reading the log and following the pod.
        let mut hearing = self.listen_to_pod(thread_ask.session, CALL_TIMEOUT, by).await?;
        let (mut fold, read) = self.load_call(thread_ask.session, &call_id)?;
        let ask = answer.ask;
        let sent = hearing.send_method(Method::Answer(answer)).await?;
        let mut answered = false;
        let result = hearing
            .wait_until(Some(&sent), |entry| {
                if read.is_some_and(|read| entry.seq <= read) {
                    return None;
                }
                answered |= matches!(&entry.kind, minke_record::Kind::Answer(answer) if answer.id == ask);
                fold_call_entry(&mut fold, entry).filter(|_| answered)
            })
            .await?;
        Ok(json!(result))
    }
}

/// Parses a decision: a name, or an older decision as an object.
fn parse_decision(answer_params: &Value, ask: &OpenAsk) -> Result<Decision, ApiError> {
    if let Some(word) = answer_params.as_str() {
        let decision = Decision::from(word);
        if !matches!(decision, Decision::Other(_)) {
            return Ok(decision);
        }
    }
    let older: LegacyDecision = serde_json::from_value(answer_params.clone())
        .map_err(|e| ApiError::invalid(format!("decision: {e}")))?;
    let OpenAsk { id, ask, subject, options, expires } = ask.clone();
    Ok(older.to_decision(&Ask { id, ask, subject, options, expires })?)
}

/// Returns every open ask of the threads whose summary has one.
fn all_open_asks(home: &UserHome) -> Result<Vec<ThreadAsk>, ApiError> {
    let mut query = ThreadQuery { archived: ArchivedFilter::All, cwd: None, limit: PAGE, after: None };
    let mut thread_ask = Vec::new();
    for _ in 0..PAGES {
        let page = query_index(home, |index| index.list_threads(&query))?.value;
        for session in
            page.summaries.iter().filter(|one| one.open_ask_count() > 0).filter_map(|one| one.session)
        {
            thread_ask.extend(open_asks_of_session(home, session)?);
        }
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    // The index does not contain ephemeral threads.
    for live in &RuntimeDir::new(&home.paths).take_snapshot()?.live {
        if is_ephemeral(home, live.row.session) {
            thread_ask.extend(open_asks_of_session(home, live.row.session)?);
        }
    }
    thread_ask.sort_by_key(|one| one.ask.id);
    Ok(thread_ask)
}

fn open_asks_of_session(home: &UserHome, session: SessionId) -> Result<Vec<ThreadAsk>, ApiError> {
    let facts = load_state(home, session)?.facts;
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
    let thread_ask = |ask: OpenAsk| ThreadAsk {
        session,
        name: name.clone(),
        cwd: cwd.clone(),
        is_client_call: !models.contains(&ask.id) && ask.subject.call_id.is_some(),
        ask,
    };
    Ok(facts.asks.into_iter().map(thread_ask).collect())
}

impl ThreadAsk {
    fn to_json(&self) -> Value {
        let mut written = json!(self.ask);
        if let Some(written) = written.as_object_mut() {
            written.insert("thread_id".to_owned(), json!(format_session_id(self.session)));
            written.insert("name".to_owned(), json!(self.name));
            written.insert("cwd".to_owned(), json!(self.cwd));
        }
        written
    }
}
