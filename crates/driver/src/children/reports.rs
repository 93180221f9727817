//! Reports: sent to the parent one at a time until acknowledged, and read from the logs of children that may
//! have exited.
//!
//! Elsewhere: the content of reports, and counting each one once (`pod::outbox`, `pod::inbox`).
//! Invariant: a report arrives exactly once, even if either pod dies in between
//! (`a_report_survives_the_parents_death`).

use std::sync::Arc;
use std::time::Duration;

use minke_client::{Connection, find_ancestors};
use minke_pod::ChildEvent;
use minke_protocol::{Method, Nothing, Subscribe};
use minke_record::{Report, SessionId};
use minke_registry::ScopeRow;
use minke_session::StoreError;

use super::ChildContext;
use super::child_log;
use crate::event_loop::commit::error_chain;
use crate::event_loop::event::LoopEvent;

/// The delay after the first failed attempt; doubled for each further one.
const INITIAL_BACKOFF: Duration = Duration::from_millis(50);
/// At most one heartbeat interval, which wakes the pod anyway.
const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// The receiver logs the report before it acknowledges it.
const ACK_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends a report until it is acknowledged.
pub(super) async fn send_report(context: Arc<ChildContext>, report: Report) {
    let seq = report.seq;
    let mut rest = INITIAL_BACKOFF;
    while !try_send(&context, &report).await {
        tokio::time::sleep(rest).await;
        rest = (rest * 2).min(MAX_BACKOFF);
    }
    context.send_tree_event(ChildEvent::ReportAcked { seq }).await;
}

/// Tries once to send a report to the parent or, if it is not running, to the nearest running ancestor.
/// Returns whether it was accepted.
async fn try_send(hand: &Arc<ChildContext>, report: &Report) -> bool {
    let to = report.to;
    let row = hand.run_blocking(move |context| find_receiver(context, to)).await;
    let Ok(Some(row)) = row else { return false };
    let event = minke_protocol::Report {
        event: report.event.clone(),
        from: Some(hand.session),
        from_seq: Some(report.seq),
    };
    let reported = async {
        let mut connection =
            Connection::open(&row.socket, Subscribe::None, None, hand.client_info()).await.ok()?;
        connection.send_and_wait::<Nothing>(Method::PodEvent(event), ACK_TIMEOUT).await.ok()?.ok()
    };
    reported.await.is_some()
}

/// The pod that receives reports now. It is looked up for each attempt, because it may have started in the
/// meantime.
fn find_receiver(context: &ChildContext, to: SessionId) -> Result<Option<ScopeRow>, String> {
    let mut whom = vec![to];
    whom.extend(find_ancestors(context.home.store.as_ref(), to).unwrap_or_default());
    let found = context.runtime.first_live_ancestor(&whom).map_err(|e| error_chain(&e))?;
    Ok(found.filter(|row| row.session != context.session))
}

/// Passes on the reports in a child's log that are newer than an entry, as if the child had sent them.
pub(super) async fn read_reports(hand: Arc<ChildContext>, child: SessionId, since: u64) {
    let found = hand
        .run_blocking(move |context| {
            let store = context.home.store.as_ref();
            let mut to = find_ancestors(store, child).map_err(|e| error_chain(&e))?;
            to.push(context.session);
            let reader = store.open_reader(child).map_err(|e| error_chain(&e))?;
            if matches!(store.lease_holder(child), Ok(None)) {
                reader.sync().map_err(|e| error_chain(&e))?;
            }
            child_log::reports_since(reader.as_ref(), since, &to).map_err(|e| error_chain(&e))
        })
        .await;
    match found {
        Ok(reports) => {
            for (seq, event) in reports {
                drop(
                    hand.events
                        .send(LoopEvent::ChildReport { from: child, seq, event: Box::new(event) })
                        .await,
                );
            }
        }
        Err(why) => {
            let message = format!("could not read the reports of session s_{child}: {why}");
            drop(hand.events.send(LoopEvent::DiskAlert(message)).await);
        }
    }
}

/// Passes on the spending of a child and its descendants.
pub(super) async fn report_spending(context: Arc<ChildContext>, child: SessionId) {
    let paid =
        context.run_blocking(move |hand| child_log::collect_spending(hand.home.store.as_ref(), child)).await;
    match paid {
        Ok(paid) => context.send_tree_event(ChildEvent::Spending { paid }).await,
        // The session was deleted: the spending read before remains counted.
        Err(StoreError::NotFound { .. }) => {}
        Err(e) => {
            let message = format!("could not read the spending of session s_{child}: {}", error_chain(&e));
            drop(context.events.send(LoopEvent::DiskAlert(message)).await);
        }
    }
}
