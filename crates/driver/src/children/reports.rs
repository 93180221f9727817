//! Reports: sent upward one at a time until they are acknowledged; and read from the logs of children whose pods may be
//! gone.
//!
//! Elsewhere: what is reported, and that each counts once (`pod::outbox`, `pod::notes`).
//! Invariant: a report arrives once, whoever of both died in between (`a_report_survives_the_parents_death`).

use std::sync::Arc;
use std::time::Duration;

use minke_client::{Connection, above};
use minke_pod::TreeNews;
use minke_protocol::{Method, Nothing, Subscribe};
use minke_record::{Report, SessionId};
use minke_registry::Row;
use minke_session::StoreError;

use super::Hand;
use super::reading;
use crate::carrying::chain;
use crate::mail::Mail;

/// Between two attempts, doubled each time.
const FIRST_REST: Duration = Duration::from_millis(50);
/// No longer than the heartbeat, which wakes the pod anyway.
const LONGEST_REST: Duration = Duration::from_secs(5);
/// How long the receiver may take: it logs the report first.
const ACK_WAIT: Duration = Duration::from_secs(5);

/// Sends a report until it is acknowledged.
pub(super) async fn send(hand: Arc<Hand>, report: Report) {
    let seq = report.seq;
    let mut rest = FIRST_REST;
    while !attempt(&hand, &report).await {
        tokio::time::sleep(rest).await;
        rest = (rest * 2).min(LONGEST_REST);
    }
    hand.tell(TreeNews::Acked { seq }).await;
}

/// One attempt: to the parent, else to the nearest above it that lives. Gives whether it was taken.
async fn attempt(hand: &Arc<Hand>, report: &Report) -> bool {
    let to = report.to;
    let row = hand.off_loop(move |hand| receiver(hand, to)).await;
    let Ok(Some(row)) = row else { return false };
    let event = minke_protocol::Report {
        event: report.event.clone(),
        from: Some(hand.session),
        from_seq: Some(report.seq),
    };
    let told = async {
        let mut connection =
            Connection::open(&row.socket, Subscribe::None, None, hand.introduction()).await.ok()?;
        connection.ask::<Nothing>(Method::PodEvent(event), ACK_WAIT).await.ok()?.ok()
    };
    told.await.is_some()
}

/// Who takes a report now. It is looked up at each attempt: whoever lives now may not have lived before.
fn receiver(hand: &Hand, to: SessionId) -> Result<Option<Row>, String> {
    let mut whom = vec![to];
    whom.extend(above(hand.home.store.as_ref(), to).unwrap_or_default());
    let found = hand.runtime.ancestor(&whom).map_err(|e| chain(&e))?;
    Ok(found.filter(|row| row.session != hand.session))
}

/// Hands over the reports in a child's log that are newer than an entry, as if it had sent them itself.
pub(super) async fn read(hand: Arc<Hand>, child: SessionId, since: u64) {
    let found = hand
        .off_loop(move |hand| {
            let store = hand.home.store.as_ref();
            let mut to = above(store, child).map_err(|e| chain(&e))?;
            to.push(hand.session);
            let reader = store.reader(child).map_err(|e| chain(&e))?;
            if matches!(store.holder(child), Ok(None)) {
                reader.sync().map_err(|e| chain(&e))?;
            }
            reading::reports(reader.as_ref(), since, &to).map_err(|e| chain(&e))
        })
        .await;
    match found {
        Ok(reports) => {
            for (seq, event) in reports {
                drop(hand.mail.send(Mail::Report { from: child, seq, event: Box::new(event) }).await);
            }
        }
        Err(why) => {
            let message = format!("the reports of session s_{child} cannot be read: {why}");
            drop(hand.mail.send(Mail::Alert(message)).await);
        }
    }
}

/// Hands over what a child and everybody below it has spent.
pub(super) async fn spending(hand: Arc<Hand>, child: SessionId) {
    let paid = hand.off_loop(move |hand| reading::account(hand.home.store.as_ref(), child)).await;
    match paid {
        Ok(paid) => hand.tell(TreeNews::Spending { paid }).await,
        // Its session was deleted: what was read of it before stays.
        Err(StoreError::NotFound { .. }) => {}
        Err(e) => {
            let message = format!("what session s_{child} has spent cannot be read: {}", chain(&e));
            drop(hand.mail.send(Mail::Alert(message)).await);
        }
    }
}
