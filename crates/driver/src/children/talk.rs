//! Talking to a child: giving it an input, reading what it said, answering its question, listing all of them.
//!
//! A child is found by its session, never by its name: another pod that happens to have the name is not reached.
//! Elsewhere: starting one that does not live (`spawn`), ending one (`stop`), what logs say (`reading`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use minke_client::{ABOVE_MOST, Connection, ConnectionError};
use minke_pod::{CallEnd, Said, Sending, TreeNews};
use minke_protocol::{Answer, Method, Nothing, Refusal, Run, RunMode, RunReply, StatusReply, Subscribe};
use minke_record::{
    AskId, Budget, CallId, ChildOutcome, Decision, InputSegment, OpenChild, SendMode, SessionId, Spent,
};
use serde::Deserialize;

use super::reading::{self, READ_MOST};
use super::{Hand, Whom};
use crate::carrying::chain;

/// How long a live pod may take to answer: its reply waits for the disk.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// Pods that one list names.
const LISTED_MOST: usize = 256;

/// Why a pod could not be told something.
pub(super) enum Untold {
    /// Nobody lives there.
    Nobody,
    Refused(Refusal),
    Failed(String),
}

impl From<ConnectionError> for Untold {
    fn from(error: ConnectionError) -> Untold {
        if error.is_nobody() { Untold::Nobody } else { Untold::Failed(chain(&error)) }
    }
}

/// Opens a connection to the pod of a session.
pub(super) async fn connect(hand: &Arc<Hand>, session: SessionId) -> Result<Connection, Untold> {
    let socket = hand.socket(session).await.map_err(|e| Untold::Failed(chain(&e)))?;
    let Some(socket) = socket else { return Err(Untold::Nobody) };
    Ok(Connection::open(&socket, Subscribe::None, None, hand.introduction()).await?)
}

pub(super) async fn ask<T: for<'de> Deserialize<'de>>(
    connection: &mut Connection,
    method: Method,
) -> Result<T, Untold> {
    connection.ask(method, ANSWER_WAIT).await?.map_err(Untold::Refused)
}

/// Gives a child that lives an input.
pub(super) async fn send(hand: Arc<Hand>, call_id: CallId, (child, name): Whom, send: Sending) {
    let ended = match give(&hand, child, send).await {
        Ok(how) => CallEnd::done(format!("`{name}`: {how}"), None),
        Err(Untold::Nobody) => CallEnd::Failed {
            message: format!(
                "`{name}` has just ended and has not got the message; send it again to start the pod"
            ),
        },
        Err(Untold::Refused(refusal)) => CallEnd::Failed {
            message: format!("`{name}` has not taken the message ({}): {}", refusal.code, refusal.message),
        },
        Err(Untold::Failed(why)) => CallEnd::Failed {
            message: format!(
                "`{name}` has not answered: {why}; ReadPodOutput shows whether it has the message"
            ),
        },
    };
    hand.told(call_id, ended).await;
}

/// What became of the input, in words.
async fn give(hand: &Arc<Hand>, child: SessionId, send: Sending) -> Result<String, Untold> {
    let Sending { message, mode, op_id } = send;
    let mode = match mode {
        SendMode::Queue => RunMode::Queue,
        SendMode::Steer => RunMode::Steer,
        SendMode::Interrupt => RunMode::Interrupt,
        SendMode::Reject => RunMode::Reject,
    };
    let input = vec![InputSegment::Text { content: message.into() }];
    let mut connection = connect(hand, child).await?;
    let run = Method::Run(Run { input, mode, op_id: Some(op_id) });
    match ask(&mut connection, run).await? {
        RunReply::Run { .. } => Ok("started".to_owned()),
        RunReply::Queued { .. } if mode == RunMode::Steer => {
            Ok("noted; it reads it before its next request".to_owned())
        }
        RunReply::Queued { .. } => {
            let status: StatusReply = ask(&mut connection, Method::Status).await?;
            Ok(format!("queued at {}", status.queue.length.max(1)))
        }
    }
}

/// What is wanted of a child's text.
pub(super) struct Wanted {
    pub(super) since: u64,
    pub(super) max_bytes: u64,
    pub(super) detail: bool,
}

/// Reads what a child said, from its log.
pub(super) async fn read(hand: Arc<Hand>, call_id: CallId, (child, name): Whom, wanted: Wanted) {
    let Wanted { since, max_bytes, detail } = wanted;
    let read = hand
        .off_loop(move |hand| {
            let store = hand.home.store.as_ref();
            let reader = store.reader(child).map_err(|e| format!("{}; {}", chain(&e), e.hint()))?;
            let read = reading::read(reader.as_ref(), since, max_bytes.min(READ_MOST), detail);
            let read = read.map_err(|e| format!("{}; {}", chain(&e), e.hint()))?;
            Ok::<_, String>((read, standing(hand, child)?))
        })
        .await;
    let (to_seq, ended) = match read {
        Ok((read, standing)) => {
            let more = if read.cut { "; there is more: read again" } else { "" };
            let said = if read.text.is_empty() {
                Said { summary: format!("`{name}` ({standing}): nothing new"), ..Said::default() }
            } else {
                let summary = format!("`{name}` ({standing}{more})");
                Said { summary, content: Some(read.text), ..Said::default() }
            };
            (read.to_seq, CallEnd::Done(said))
        }
        Err(why) => {
            (since, CallEnd::Failed { message: format!("the log of `{name}` cannot be read: {why}") })
        }
    };
    hand.tell(TreeNews::Read { call_id, child, to_seq, ended }).await;
}

/// Where a child stands, in words.
fn standing(hand: &Hand, child: SessionId) -> Result<String, String> {
    let table = hand.runtime.table().map_err(|e| chain(&e))?;
    let state = reading::state(hand.home.store.as_ref(), child).map_err(|e| chain(&e))?;
    Ok(reading::standing(&state, table.row(child).is_some()))
}

/// Answers a child's question, at its own socket.
pub(super) async fn answer(
    hand: Arc<Hand>,
    call_id: CallId,
    (child, name): Whom,
    question: AskId,
    decision: Decision,
) {
    let word = decision.to_string();
    let told = async {
        let mut connection = connect(&hand, child).await?;
        let method = Method::Answer(Answer { ask: question, decision, note: None });
        ask::<Nothing>(&mut connection, method).await
    };
    let ended = match told.await {
        Ok(Nothing {}) => CallEnd::done(format!("`{name}`: {word}"), None),
        Err(Untold::Nobody) => CallEnd::Failed {
            message: format!("`{name}` does not live now; its question waits: SendToPod starts it again"),
        },
        Err(Untold::Refused(refusal)) => {
            CallEnd::Failed { message: format!("`{name}` has not taken the answer: {}", refusal.message) }
        }
        Err(Untold::Failed(why)) => CallEnd::Failed { message: format!("`{name}` has not answered: {why}") },
    };
    hand.told(call_id, ended).await;
}

/// Says what the children do.
pub(super) async fn list(hand: Arc<Hand>, call_id: CallId, children: Vec<OpenChild>, tree: bool) {
    let listed = hand.off_loop(move |hand| lines(hand, children, tree)).await;
    let ended = match listed {
        Ok(lines) if lines.is_empty() => CallEnd::done("this pod has spawned no pods", None),
        Ok(lines) => {
            let pods = if lines.len() == 1 { "1 pod".to_owned() } else { format!("{} pods", lines.len()) };
            CallEnd::done(pods, Some(lines.join("\n")))
        }
        Err(message) => CallEnd::Failed { message },
    };
    hand.told(call_id, ended).await;
}

fn lines(hand: &Hand, children: Vec<OpenChild>, tree: bool) -> Result<Vec<String>, String> {
    let table = hand.runtime.table().map_err(|e| chain(&e))?;
    let mut lines = Vec::new();
    let mut seen = BTreeSet::new();
    // The last is listed first, so they are put in the other way round.
    let mut left: Vec<(usize, OpenChild)> = children.into_iter().rev().map(|child| (0, child)).collect();
    while let Some((depth, child)) = left.pop() {
        if lines.len() >= LISTED_MOST {
            lines.push(format!("… more than {LISTED_MOST} pods"));
            break;
        }
        if !seen.insert(child.session) {
            continue;
        }
        let live = table.row(child.session).is_some();
        let state = reading::state(hand.home.store.as_ref(), child.session);
        lines.push(format!("{}{}", "  ".repeat(depth), one_line(&child, live, state.as_ref().ok())));
        if let Ok(state) = state
            && tree
            && depth < ABOVE_MOST
        {
            left.extend(state.facts.children.into_iter().rev().map(|below| (depth + 1, below)));
        }
    }
    Ok(lines)
}

fn one_line(child: &OpenChild, live: bool, state: Option<&minke_pod::State>) -> String {
    let standing = match (state, &child.ended) {
        _ if !live && child.ended.as_ref().is_some_and(|end| end.outcome == ChildOutcome::Crashed) => {
            "stopped: crashed".to_owned()
        }
        (Some(state), _) => reading::standing(state, live),
        (None, _) => "stopped: its log cannot be read".to_owned(),
    };
    let spent = state.map_or(child.before, minke_pod::State::spent);
    let mut line = format!(
        "{}: {standing}; scope {}; {}",
        child.name,
        child.scope.summary(),
        spending(&spent, child.budget.as_ref())
    );
    if let Some(ended) = &child.ended {
        line.push_str(&format!("; last: {}", ended.outcome));
    }
    line.push_str(&format!("; session s_{}", child.session));
    if !live {
        line.push_str("; SendToPod starts it again");
    }
    line
}

/// What was spent and what is left, in words.
pub(super) fn spending(spent: &Spent, budget: Option<&Budget>) -> String {
    let mut words = format!("spent {} tokens", spent.tokens);
    if spent.usd > 0.0 {
        words.push_str(&format!(", ${:.4}", spent.usd));
    }
    let Some(budget) = budget.filter(|budget| !budget.is_empty()) else { return words };
    if let Some(tokens) = budget.tokens {
        words.push_str(&format!(", {} tokens left", tokens.saturating_sub(spent.tokens)));
    }
    if let Some(usd) = budget.usd {
        words.push_str(&format!(", ${:.4} left", (usd - spent.usd).max(0.0)));
    }
    words
}
