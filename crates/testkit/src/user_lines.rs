//! User lines of a story: commands to a running pod, and offline edits.

use minke_pod::{
    JobAction, OfflineEdit, PodCommand, RewindRequest, RewindScan, SessionUpdate, ShutdownMode, WaitCondition,
};
use minke_record::{Decision, Kind, QueueId};
use serde_json::{Value, json};

use crate::describe;
use crate::story;
use crate::story::run::StoryRun;
use crate::world::StoryStop;

impl StoryRun<'_> {
    pub(crate) fn run_person_line(&mut self, what: &str) -> Result<(), StoryStop> {
        let command = self.parse_command(what).map_err(StoryStop::Failed)?;
        match command {
            Some(order) => self.send_command(order),
            None if self.was_killed => Ok(()),
            None => Err(StoryStop::Failed(format!("there is nothing to `{what}`"))),
        }
    }

    /// Parses the command; returns `None` if its target does not exist.
    fn parse_command(&self, what: &str) -> Result<Option<PodCommand>, String> {
        let (word, rest) = what.split_once(' ').unwrap_or((what, ""));
        let detail = (!rest.is_empty()).then(|| rest.to_owned());
        Ok(Some(match word {
            "pause" => PodCommand::Pause { detail },
            "resume" => PodCommand::Resume { detail },
            "cancel" => PodCommand::Cancel { detail },
            "approve" | "deny" | "abort" => {
                let Some(ask) = self.world.current_state().facts.asks.first() else { return Ok(None) };
                PodCommand::Answer { ask: ask.id, decision: parse_decision(word), note: detail }
            }
            "approve_session" | "approve_rule" => {
                let Some(ask) = self.world.current_state().facts.asks.first() else { return Ok(None) };
                PodCommand::Answer { ask: ask.id, decision: parse_decision(word), note: detail }
            }
            "answer_again" => {
                let Some(answered) = self.world.current_state().facts.answered.back() else {
                    return Ok(None);
                };
                PodCommand::Answer { ask: answered.id, decision: Decision::Approved, note: detail }
            }
            "grant" => {
                let grant = Some((rest.to_owned(), "session_tree".to_owned()));
                PodCommand::Set(Box::new(SessionUpdate { grant, ..SessionUpdate::default() }))
            }
            "tell" => {
                let Some(ask) = self.world.current_state().facts.asks.first() else { return Ok(None) };
                PodCommand::Answer { ask: ask.id, decision: Decision::Answered, note: detail }
            }
            "answer" => PodCommand::Answer {
                ask: minke_record::AskId(crate::scene::FORK.0),
                decision: Decision::Approved,
                note: None,
            },
            "rename" => {
                let name = rest.parse().map_err(|e| format!("{e}"))?;
                PodCommand::Set(Box::new(SessionUpdate { name: Some(name), ..SessionUpdate::default() }))
            }
            "archive" => {
                PodCommand::Set(Box::new(SessionUpdate { archived: Some(true), ..SessionUpdate::default() }))
            }
            "unarchive" => {
                PodCommand::Set(Box::new(SessionUpdate { archived: Some(false), ..SessionUpdate::default() }))
            }
            "posture" => {
                let change = ("permissions.posture".to_owned(), Value::from(rest));
                PodCommand::Set(Box::new(SessionUpdate { config: vec![change], ..SessionUpdate::default() }))
            }
            "checkpoint" => PodCommand::Checkpoint { id: rest.to_owned(), state: json!({"at": rest}) },
            "call" => {
                let (name, arguments) = story::parse_call(rest).ok_or("`call Tool {…}`")?;
                PodCommand::CallTool { name, arguments, call_id: None }
            }
            "dequeue" => PodCommand::Dequeue { id: self.queued_id(rest) },
            "rewind" => PodCommand::Rewind(Box::new(self.rewind_request(rest))),
            "shutdown" if rest == "after_run" => PodCommand::Shutdown { mode: ShutdownMode::AfterRun },
            "shutdown" => PodCommand::Shutdown { mode: ShutdownMode::Now },
            "wait" => {
                let until = if rest == "ask" { WaitCondition::Ask } else { WaitCondition::Idle };
                PodCommand::Wait { until, timeout_ms: 5_000 }
            }
            "compact" => PodCommand::Compact { instructions: None },
            "undo" => PodCommand::Undo { run: None },
            "yield" => PodCommand::Yield,
            _ => return Err(format!("a person does not `{what}` in a story")),
        }))
    }

    /// Returns the id of the queued input with this text, or an unknown id.
    fn queued_id(&self, text: &str) -> QueueId {
        let said = |queued: &minke_record::Queued| {
            describe::describe_item(&minke_record::flatten_input(&queued.segments))
        };
        let queue = &self.world.current_state().facts.queue;
        let found = queue.iter().find(|queued| said(queued) == format!("user {text}"));
        found.map_or(QueueId(crate::scene::FORK.0), |queued| queued.id)
    }

    /// Returns the rewind to the input with this text, as the driver reads it from the log. `stale` expects
    /// an older head.
    fn rewind_request(&self, text: &str) -> RewindRequest {
        let (text, head_matches) = match text.strip_prefix("stale ") {
            Some(text) => (text, false),
            None => (text, true),
        };
        let entries = self.world.log.entries();
        let target = entries.iter().find_map(|entry| match &entry.kind {
            Kind::UserInput(input)
                if describe::describe_item(&minke_record::flatten_input(&input.segments))
                    == format!("user {text}") =>
            {
                Some(entry.seq)
            }
            _ => None,
        });
        let Some(to_seq) = target else {
            return RewindRequest { to_seq: u64::MAX, head_matches, target: None };
        };
        let mut scan = RewindScan::new(Some(to_seq));
        for entry in entries {
            scan.scan_entry(entry);
        }
        RewindRequest { to_seq, head_matches, target: scan.into_targets().1 }
    }

    /// Runs an offline edit.
    pub(crate) fn run_offline_line(&mut self, what: &str) -> Result<(), StoryStop> {
        if self.world.pod.is_some() {
            return if self.was_killed {
                Ok(())
            } else {
                Err(StoryStop::Failed("the pod is running; send a command to it".to_owned()))
            };
        }
        let Some(edit) = self.parse_offline_edit(what).map_err(StoryStop::Failed)? else {
            return if self.was_killed {
                Ok(())
            } else {
                Err(StoryStop::Failed(format!("there is nothing to `{what}`")))
            };
        };
        self.world.apply_offline_edit(edit)
    }

    fn parse_offline_edit(&self, what: &str) -> Result<Option<OfflineEdit>, String> {
        let (word, rest) = what.split_once(' ').unwrap_or((what, ""));
        Ok(Some(match word {
            "queue" => OfflineEdit::Queue {
                segments: crate::scene::parse_input(rest),
                op_id: Some(format!("visit {rest}")),
            },
            "notify" => OfflineEdit::Notify { message: rest.to_owned(), wake: true },
            "rename" => OfflineEdit::Rename(rest.parse().map_err(|e| format!("{e}"))?),
            "archive" => OfflineEdit::Archive(true),
            "checkpoint" => OfflineEdit::Checkpoint { id: rest.to_owned(), state: json!({"at": rest}) },
            "abandon" => OfflineEdit::Abandon { reason: "given up".to_owned() },
            "pause" => OfflineEdit::Job { action: JobAction::Pause, detail: None },
            "cancel" => OfflineEdit::Job { action: JobAction::Cancel, detail: None },
            "approve" | "approve_session" | "approve_rule" | "deny" | "abort" => {
                let Some(ask) = self.world.current_state().facts.asks.first() else { return Ok(None) };
                let note = (!rest.is_empty()).then(|| rest.to_owned());
                OfflineEdit::Answer { ask: ask.id, decision: parse_decision(word), note }
            }
            _ => return Err(format!("a visitor does not `{what}`")),
        }))
    }
}

pub(crate) fn parse_decision(word: &str) -> Decision {
    match word {
        "approve" => Decision::Approved,
        "approve_session" => Decision::ApprovedForSession,
        "approve_rule" => Decision::ApprovedRule,
        "deny" => Decision::Denied,
        _ => Decision::Abort,
    }
}
