//! `minke pause`, `resume`, `cancel`: orders to one pod.

use clap::Args;
use minke_client::{Delivered, Delivery, deliver, find, visit};
use minke_pod::Visit;
use minke_protocol::{Detail, Method};
use minke_record::Actor;
use minke_session::StoreError;
use serde_json::{Value, json};

use crate::around::{Surroundings, introduction};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::spoken::without_secrets;

#[derive(Debug, Args)]
pub(crate) struct Order {
    /// A live pod's name, a session's id, or a name that a session had
    name: String,
    /// Why; kept in the log
    #[arg(long)]
    detail: Option<String>,
}

impl Order {
    fn detail(&self) -> Detail {
        Detail { detail: self.detail.clone() }
    }
}

/// Only a live pod has a run that could be paused.
pub(crate) async fn pause(order: Order, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let home = around.home()?;
    let found = find(&home, &order.name)?;
    if found.live.is_none() {
        return Err(Failure::new(Exit::Failed, format!("no pod lives on session s_{}", found.session))
            .code("not_running")
            .why("nothing runs, so there is nothing to pause")
            .hint(format!("`minke resume {}` goes on with a run that was interrupted", order.name)));
    }
    let method = Method::Pause(order.detail());
    let delivery = Delivery { session: found.session, method, client: introduction(), visit: None };
    done(screen, "pausing", deliver(&home, delivery).await?)
}

/// Starts the pod if it sleeps.
pub(crate) async fn resume(order: Order, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let home = around.home()?;
    let session = find(&home, &order.name)?.session;
    crate::held::make_way(&home, session).await?;
    let method = Method::Resume(order.detail());
    let delivery = Delivery { session, method, client: introduction(), visit: None };
    done(screen, "resumed", deliver(&home, delivery).await?)
}

/// A run on which nobody works is given up without waking anybody.
pub(crate) async fn cancel(order: Order, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let home = around.home()?;
    let found = find(&home, &order.name)?;
    if found.live.is_none() {
        let reason = order.detail.clone().unwrap_or_else(|| "cancelled".to_owned());
        without_secrets(&[&reason], Vec::new(), around)?;
        let abandon = minke_host::step(Visit::Abandon { reason }, Actor::person("cli"));
        match visit(&home, found.session, &*abandon) {
            Ok(()) => return say(screen, "given up", &order.name, json!({})),
            // A pod has come to life meanwhile: it is told.
            Err(minke_client::DeliverError::Store(StoreError::Held { .. })) => {}
            Err(other) => return Err(other.into()),
        }
    }
    let method = Method::Cancel(order.detail());
    let delivery = Delivery { session: found.session, method, client: introduction(), visit: None };
    done(screen, "cancelled", deliver(&home, delivery).await?)
}

fn done(screen: &Screen, word: &str, delivered: Delivered) -> Result<Exit, Failure> {
    match delivered {
        Delivered::Replied { pod, result } => say(screen, word, pod.as_str(), result),
        Delivered::Visited { pod, .. } => say(screen, word, pod.as_str(), json!({})),
    }
}

fn say(screen: &Screen, word: &str, pod: &str, result: Value) -> Result<Exit, Failure> {
    if screen.json {
        screen.object(&json!({ "pod": pod, "result": result }))?;
    } else {
        screen.note(&format!("{pod}: {word}"));
    }
    Ok(Exit::Done)
}
