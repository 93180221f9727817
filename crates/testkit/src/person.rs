//! What a person does in a story: orders to a live pod, and visits while none lives.

use minke_pod::{Changes, Order, Rewind, RewindScan, ShutdownMode, Until, Visit, Wish};
use minke_record::{Decision, Kind, QueueId};
use serde_json::{Value, json};

use crate::show;
use crate::story;
use crate::tell::Telling;
use crate::world::Stop;

impl Telling<'_> {
    pub(crate) fn person(&mut self, what: &str) -> Result<(), Stop> {
        let order = self.order_named(what).map_err(Stop::Wrong)?;
        match order {
            Some(order) => self.order(order),
            None if self.killed => Ok(()),
            None => Err(Stop::Wrong(format!("there is nothing to `{what}`"))),
        }
    }

    /// The order, or `None` if what it is about is not there.
    fn order_named(&self, what: &str) -> Result<Option<Order>, String> {
        let (word, rest) = what.split_once(' ').unwrap_or((what, ""));
        let detail = (!rest.is_empty()).then(|| rest.to_owned());
        Ok(Some(match word {
            "pause" => Order::Pause { detail },
            "resume" => Order::Resume { detail },
            "cancel" => Order::Cancel { detail },
            "approve" | "deny" | "abort" => {
                let Some(ask) = self.world.state().facts.asks.first() else { return Ok(None) };
                Order::Answer { ask: ask.id, decision: decision(word), note: detail }
            }
            "approve_session" | "approve_rule" => {
                let Some(ask) = self.world.state().facts.asks.first() else { return Ok(None) };
                Order::Answer { ask: ask.id, decision: decision(word), note: detail }
            }
            "answer_again" => {
                let Some(answered) = self.world.state().facts.answered.back() else { return Ok(None) };
                Order::Answer { ask: answered.id, decision: Decision::Approved, note: detail }
            }
            "grant" => {
                let grant = Some((rest.to_owned(), "session_tree".to_owned()));
                Order::Set(Box::new(Changes { grant, ..Changes::default() }))
            }
            "tell" => {
                let Some(ask) = self.world.state().facts.asks.first() else { return Ok(None) };
                Order::Answer { ask: ask.id, decision: Decision::Answered, note: detail }
            }
            "answer" => Order::Answer {
                ask: minke_record::AskId(crate::scene::FORK.0),
                decision: Decision::Approved,
                note: None,
            },
            "rename" => {
                let name = rest.parse().map_err(|e| format!("{e}"))?;
                Order::Set(Box::new(Changes { name: Some(name), ..Changes::default() }))
            }
            "archive" => Order::Set(Box::new(Changes { archived: Some(true), ..Changes::default() })),
            "unarchive" => Order::Set(Box::new(Changes { archived: Some(false), ..Changes::default() })),
            "posture" => {
                let change = ("permissions.posture".to_owned(), Value::from(rest));
                Order::Set(Box::new(Changes { config: vec![change], ..Changes::default() }))
            }
            "checkpoint" => Order::Checkpoint { id: rest.to_owned(), state: json!({"at": rest}) },
            "call" => {
                let (name, arguments) = story::call(rest).ok_or("`call Tool {…}`")?;
                Order::CallTool { name, arguments, call_id: None }
            }
            "dequeue" => Order::Dequeue { id: self.queued(rest) },
            "rewind" => Order::Rewind(Box::new(self.rewind(rest))),
            "shutdown" if rest == "after_run" => Order::Shutdown { mode: ShutdownMode::AfterRun },
            "shutdown" => Order::Shutdown { mode: ShutdownMode::Now },
            "wait" => {
                let until = if rest == "ask" { Until::Ask } else { Until::Idle };
                Order::Wait { until, timeout_ms: 5_000 }
            }
            "compact" => Order::Compact { instructions: None },
            "undo" => Order::Undo { run: None },
            "yield" => Order::Yield,
            _ => return Err(format!("a person does not `{what}` in a story")),
        }))
    }

    /// The id of the queued input that says this; one that nobody has if none does.
    fn queued(&self, text: &str) -> QueueId {
        let said = |queued: &minke_record::Queued| show::item(&minke_record::flatten(&queued.segments));
        let queue = &self.world.state().facts.queue;
        let found = queue.iter().find(|queued| said(queued) == format!("user {text}"));
        found.map_or(QueueId(crate::scene::FORK.0), |queued| queued.id)
    }

    /// What the driver reads from the log for a rewind to the input that says this. `stale` has seen an older head.
    fn rewind(&self, text: &str) -> Rewind {
        let (text, head_fits) = match text.strip_prefix("stale ") {
            Some(text) => (text, false),
            None => (text, true),
        };
        let entries = self.world.log.entries();
        let target = entries.iter().find_map(|entry| match &entry.kind {
            Kind::UserInput(input)
                if show::item(&minke_record::flatten(&input.segments)) == format!("user {text}") =>
            {
                Some(entry.seq)
            }
            _ => None,
        });
        let Some(to_seq) = target else { return Rewind { to_seq: u64::MAX, head_fits, target: None } };
        let mut scan = RewindScan::new(Some(to_seq));
        for entry in entries {
            scan.see(entry);
        }
        Rewind { to_seq, head_fits, target: scan.finish().1 }
    }

    /// A change while no pod lives.
    pub(crate) fn visit(&mut self, what: &str) -> Result<(), Stop> {
        if self.world.pod.is_some() {
            return if self.killed {
                Ok(())
            } else {
                Err(Stop::Wrong("the pod lives: send to it".to_owned()))
            };
        }
        let Some(visit) = self.visit_named(what).map_err(Stop::Wrong)? else {
            return if self.killed {
                Ok(())
            } else {
                Err(Stop::Wrong(format!("there is nothing to `{what}`")))
            };
        };
        self.world.visit(visit)
    }

    fn visit_named(&self, what: &str) -> Result<Option<Visit>, String> {
        let (word, rest) = what.split_once(' ').unwrap_or((what, ""));
        Ok(Some(match word {
            "queue" => {
                Visit::Queue { segments: crate::scene::said(rest), op_id: Some(format!("visit {rest}")) }
            }
            "notify" => Visit::Notify { message: rest.to_owned(), wake: true },
            "rename" => Visit::Rename(rest.parse().map_err(|e| format!("{e}"))?),
            "archive" => Visit::Archive(true),
            "checkpoint" => Visit::Checkpoint { id: rest.to_owned(), state: json!({"at": rest}) },
            "abandon" => Visit::Abandon { reason: "given up".to_owned() },
            "pause" => Visit::Job { wish: Wish::Pause, detail: None },
            "cancel" => Visit::Job { wish: Wish::Cancel, detail: None },
            "approve" | "approve_session" | "approve_rule" | "deny" | "abort" => {
                let Some(ask) = self.world.state().facts.asks.first() else { return Ok(None) };
                let note = (!rest.is_empty()).then(|| rest.to_owned());
                Visit::Answer { ask: ask.id, decision: decision(word), note }
            }
            _ => return Err(format!("a visitor does not `{what}`")),
        }))
    }
}

pub(crate) fn decision(word: &str) -> Decision {
    match word {
        "approve" => Decision::Approved,
        "approve_session" => Decision::ApprovedForSession,
        "approve_rule" => Decision::ApprovedRule,
        "deny" => Decision::Denied,
        _ => Decision::Abort,
    }
}
