//! Messages to a child: sends input, reads its output, answers its asks, lists all children.
//!
//! A child is addressed by its session, never by its name, so another pod with the same name is not reached.
//! Elsewhere: starting a stopped child (`spawn`), stopping one (`stop`), reading logs (`child_log`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use minke_client::{Connection, ConnectionError, MAX_ANCESTORS};
use minke_pod::{CallEnd, CallOutput, ChildEvent, OutgoingMessage};
use minke_protocol::{Answer, Method, Nothing, Refusal, Run, RunMode, RunReply, StatusReply, Subscribe};
use minke_record::{
    AskId, Budget, CallId, ChildOutcome, Decision, InputSegment, OpenChild, SendMode, SessionId, Spend,
};
use serde::Deserialize;

use super::child_log::{self, MAX_READ_BYTES};
use super::{ChildContext, ChildRef};
use crate::event_loop::commit::error_chain;

/// How long a live pod may take to answer: its reply waits for the disk.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// A list names at most this many pods.
const MAX_LISTED_PODS: usize = 256;

/// The reason why a message could not be delivered.
pub(super) enum DeliveryError {
    /// No pod runs on the session.
    NotRunning,
    Refused(Refusal),
    Failed(String),
}

impl From<ConnectionError> for DeliveryError {
    fn from(error: ConnectionError) -> DeliveryError {
        if error.is_not_running() {
            DeliveryError::NotRunning
        } else {
            DeliveryError::Failed(error_chain(&error))
        }
    }
}

/// Connects to the pod of a session.
pub(super) async fn connect_child(
    context: &Arc<ChildContext>,
    session: SessionId,
) -> Result<Connection, DeliveryError> {
    let socket = context.find_socket(session).await.map_err(|e| DeliveryError::Failed(error_chain(&e)))?;
    let Some(socket) = socket else { return Err(DeliveryError::NotRunning) };
    Ok(Connection::open(&socket, Subscribe::None, None, context.client_info()).await?)
}

pub(super) async fn send_request<T: for<'de> Deserialize<'de>>(
    connection: &mut Connection,
    method: Method,
) -> Result<T, DeliveryError> {
    connection.send_and_wait(method, ANSWER_TIMEOUT).await?.map_err(DeliveryError::Refused)
}

/// Sends an input to a running child.
pub(super) async fn send_input(
    context: Arc<ChildContext>,
    call_id: CallId,
    (child, name): ChildRef,
    send: OutgoingMessage,
) {
    let ended = match deliver_input(&context, child, send).await {
        Ok(how) => CallEnd::done(format!("`{name}`: {how}"), None),
        Err(DeliveryError::NotRunning) => CallEnd::Failed {
            message: format!("`{name}` has just exited without the message; send it again to start the pod"),
        },
        Err(DeliveryError::Refused(refusal)) => CallEnd::Failed {
            message: format!("`{name}` refused the message ({}): {}", refusal.code, refusal.message),
        },
        Err(DeliveryError::Failed(why)) => CallEnd::Failed {
            message: format!(
                "`{name}` did not answer: {why}; ReadPodOutput shows whether it has received the message"
            ),
        },
    };
    context.finish_call(call_id, ended).await;
}

/// Sends the input and describes how it was accepted.
async fn deliver_input(
    hand: &Arc<ChildContext>,
    child: SessionId,
    send: OutgoingMessage,
) -> Result<String, DeliveryError> {
    let OutgoingMessage { message, mode, op_id } = send;
    let mode = match mode {
        SendMode::Queue => RunMode::Queue,
        SendMode::Steer => RunMode::Steer,
        SendMode::Interrupt => RunMode::Interrupt,
        SendMode::Reject => RunMode::Reject,
    };
    let input = vec![InputSegment::Text { content: message.into() }];
    let mut connection = connect_child(hand, child).await?;
    let run = Method::Run(Run { input, mode, op_id: Some(op_id) });
    match send_request(&mut connection, run).await? {
        RunReply::Run { .. } => Ok("started".to_owned()),
        RunReply::Queued { .. } if mode == RunMode::Steer => {
            Ok("accepted; the child reads it before its next request".to_owned())
        }
        RunReply::Queued { .. } => {
            let status: StatusReply = send_request(&mut connection, Method::Status).await?;
            Ok(format!("queued at {}", status.queue.length.max(1)))
        }
    }
}

/// The parameters of a read.
pub(super) struct OutputQuery {
    pub(super) since: u64,
    pub(super) max_bytes: u64,
    pub(super) detail: bool,
}

/// Reads a child's output from its log.
pub(super) async fn read_child(
    context: Arc<ChildContext>,
    call_id: CallId,
    (child, name): ChildRef,
    query: OutputQuery,
) {
    let OutputQuery { since, max_bytes, detail } = query;
    let read = context
        .run_blocking(move |hand| {
            let store = hand.home.store.as_ref();
            let reader =
                store.open_reader(child).map_err(|e| format!("{}; {}", error_chain(&e), e.hint()))?;
            let read = child_log::read_output(reader.as_ref(), since, max_bytes.min(MAX_READ_BYTES), detail);
            let read = read.map_err(|e| format!("{}; {}", error_chain(&e), e.hint()))?;
            Ok::<_, String>((read, child_state(hand, child)?))
        })
        .await;
    let (to_seq, ended) = match read {
        Ok((read, standing)) => {
            let more = if read.truncated { "; there is more: read again" } else { "" };
            let output = if read.text.is_empty() {
                CallOutput { summary: format!("`{name}` ({standing}): nothing new"), ..CallOutput::default() }
            } else {
                let summary = format!("`{name}` ({standing}{more})");
                CallOutput { summary, content: Some(read.text), ..CallOutput::default() }
            };
            (read.to_seq, CallEnd::Done(output))
        }
        Err(why) => {
            (since, CallEnd::Failed { message: format!("could not read the log of `{name}`: {why}") })
        }
    };
    context.send_tree_event(ChildEvent::Read { call_id, child, to_seq, ended }).await;
}

/// Describes a child's state.
fn child_state(hand: &ChildContext, child: SessionId) -> Result<String, String> {
    let table = hand.runtime.read_table().map_err(|e| error_chain(&e))?;
    let state = child_log::load_state(hand.home.store.as_ref(), child).map_err(|e| error_chain(&e))?;
    Ok(child_log::describe_state(&state, table.find_row(child).is_some()))
}

/// Answers a child's ask through its socket.
pub(super) async fn answer_ask(
    context: Arc<ChildContext>,
    call_id: CallId,
    (child, name): ChildRef,
    question: AskId,
    decision: Decision,
) {
    let word = decision.to_string();
    let reported = async {
        let mut connection = connect_child(&context, child).await?;
        let method = Method::Answer(Answer { ask: question, decision, note: None });
        send_request::<Nothing>(&mut connection, method).await
    };
    let ended = match reported.await {
        Ok(Nothing {}) => CallEnd::done(format!("`{name}`: {word}"), None),
        Err(DeliveryError::NotRunning) => CallEnd::Failed {
            message: format!("`{name}` is not running; its ask is still open: SendToPod starts it again"),
        },
        Err(DeliveryError::Refused(refusal)) => {
            CallEnd::Failed { message: format!("`{name}` refused the answer: {}", refusal.message) }
        }
        Err(DeliveryError::Failed(why)) => {
            CallEnd::Failed { message: format!("`{name}` did not answer: {why}") }
        }
    };
    context.finish_call(call_id, ended).await;
}

/// Lists the children and their states.
pub(super) async fn list_children(
    hand: Arc<ChildContext>,
    call_id: CallId,
    children: Vec<OpenChild>,
    tree: bool,
) {
    let listed = hand.run_blocking(move |context| child_lines(context, children, tree)).await;
    let ended = match listed {
        Ok(lines) if lines.is_empty() => CallEnd::done("this pod has spawned no pods", None),
        Ok(lines) => {
            let pods = if lines.len() == 1 { "1 pod".to_owned() } else { format!("{} pods", lines.len()) };
            CallEnd::done(pods, Some(lines.join("\n")))
        }
        Err(message) => CallEnd::Failed { message },
    };
    hand.finish_call(call_id, ended).await;
}

fn child_lines(context: &ChildContext, children: Vec<OpenChild>, tree: bool) -> Result<Vec<String>, String> {
    let table = context.runtime.read_table().map_err(|e| error_chain(&e))?;
    let mut lines = Vec::new();
    let mut seen = BTreeSet::new();
    // A stack: the last pushed pod is listed first, so they are pushed in reverse order.
    let mut left: Vec<(usize, OpenChild)> = children.into_iter().rev().map(|child| (0, child)).collect();
    while let Some((depth, child)) = left.pop() {
        if lines.len() >= MAX_LISTED_PODS {
            lines.push(format!("… more than {MAX_LISTED_PODS} pods"));
            break;
        }
        if !seen.insert(child.session) {
            continue;
        }
        let live = table.find_row(child.session).is_some();
        let state = child_log::load_state(context.home.store.as_ref(), child.session);
        lines.push(format!("{}{}", "  ".repeat(depth), child_line(&child, live, state.as_ref().ok())));
        if let Ok(state) = state
            && tree
            && depth < MAX_ANCESTORS
        {
            left.extend(state.facts.children.into_iter().rev().map(|below| (depth + 1, below)));
        }
    }
    Ok(lines)
}

fn child_line(child: &OpenChild, live: bool, state: Option<&minke_pod::State>) -> String {
    let standing = match (state, &child.ended) {
        _ if !live && child.ended.as_ref().is_some_and(|end| end.outcome == ChildOutcome::Crashed) => {
            "stopped: crashed".to_owned()
        }
        (Some(state), _) => child_log::describe_state(state, live),
        (None, _) => "stopped: could not read its log".to_owned(),
    };
    let spent = state.map_or(child.before, minke_pod::State::total_spent);
    let mut line = format!(
        "{}: {standing}; scope {}; {}",
        child.name,
        child.scope.summary(),
        describe_spending(&spent, child.budget.as_ref())
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

/// Describes the spent and the remaining budget.
pub(super) fn describe_spending(spent: &Spend, budget: Option<&Budget>) -> String {
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
