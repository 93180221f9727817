//! The fold of a thread's log for clients: its summary, conversation, goal and checkpoints.
//!
//! Here: one pure pass over the entries, and the resulting types. Elsewhere: reading the log (`thread_log`), the
//! summary (`thread`).
//! Invariant: rewound and rolled back entries are not part of the conversation
//! (`what_was_taken_back_is_not_in_the_history`).

use std::collections::BTreeMap;

use minke_record::{
    Content, Entry, GoalChange, History, Item, Kind, Millis, Position, RunId, RunResult, SegmentReason,
    SessionId, Text, flatten_input,
};
use minke_thread::SessionSummary;
use serde::Serialize;
use serde_json::{Value, json};

use crate::frames::ThreadGoal;

/// The maximum length of `history`.
pub(crate) const MAX_HISTORY: usize = 500;

/// The fold of a log.
#[derive(Debug, Default)]
pub(crate) struct ThreadFold {
    pub(crate) summary: SessionSummary,
    pub(crate) head: Option<Position>,
    pub(crate) goal: Option<ThreadGoal>,
    /// The newest entry of each checkpoint, and when it was saved.
    pub(crate) checkpoints: BTreeMap<String, (u64, Millis)>,
    /// The entries of the current conversation.
    visible_entries: Vec<(u64, Option<RunId>)>,
}

/// One item of the conversation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct HistoryRow {
    pub(crate) id: u64,
    /// The thread whose log contains it, if this thread was forked from that one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) thread_id: Option<String>,
    pub(crate) role: &'static str,
    pub(crate) content: String,
    pub(crate) item: Item,
    pub(crate) created_at: u64,
}

impl ThreadFold {
    pub(crate) fn apply(&mut self, entry: &Entry) {
        self.summary.apply_entry(entry);
        self.head = Some(Position { seq: entry.seq, h: entry.h });
        if is_conversation(entry) {
            self.visible_entries.push((entry.seq, entry.run));
        }
        match &entry.kind {
            Kind::Goal(goal) => {
                self.goal = match goal.change {
                    GoalChange::Done | GoalChange::Clear => None,
                    GoalChange::Set | GoalChange::Advance | GoalChange::Other(_) => {
                        Some(active_goal(&goal.text, goal.used))
                    }
                };
            }
            Kind::SegmentStart(start) if start.reason == SegmentReason::Fork => {
                let carried = start.carry.inline().and_then(|facts| facts.goal.clone());
                self.goal = carried.map(|goal| active_goal(&goal.text, goal.used));
            }
            Kind::Checkpoint(point) => {
                self.checkpoints.insert(point.id.clone(), (entry.seq, entry.ts));
            }
            Kind::Rewound(rewound) => self.visible_entries.retain(|(seq, _)| *seq <= rewound.to_seq),
            Kind::RunCompleted(end) if end.result == RunResult::RolledBack => {
                self.visible_entries.retain(|(_, run)| run.is_none() || *run != entry.run);
            }
            _ => {}
        }
    }

    /// Returns the newest entries of the conversation, oldest first.
    pub(crate) fn newest_entries(&self, most: usize) -> Vec<u64> {
        let skip = self.visible_entries.len().saturating_sub(most);
        self.visible_entries.iter().skip(skip).map(|(seq, _)| *seq).collect()
    }

    /// Returns the checkpoint that is not stored: the last input or answer.
    pub(crate) fn latest_checkpoint(&self) -> Option<Value> {
        let latest = self.summary.latest.as_ref()?;
        let mut state = json!({
            "seq": latest.seq,
            "role": latest.role,
            "model": self.summary.model,
            "model_provider": self.summary.provider,
        });
        if let (Some(run), Some(state)) = (latest.run, state.as_object_mut()) {
            state.insert("run".to_owned(), json!(run));
        }
        Some(checkpoint_value(LATEST_CHECKPOINT, &state, latest.at))
    }
}

fn active_goal(objective: &str, used: u32) -> ThreadGoal {
    ThreadGoal { objective: objective.to_owned(), status: "active", used, evidence: None }
}

/// The checkpoint that always exists.
pub(crate) const LATEST_CHECKPOINT: &str = "latest";

pub(crate) fn checkpoint_value(id: &str, state: &Value, at: Millis) -> Value {
    json!({ "checkpoint_id": id, "state": state, "created_at": at / 1_000 })
}

/// Returns whether an entry is part of the conversation.
fn is_conversation(entry: &Entry) -> bool {
    match &entry.kind {
        Kind::UserInput(_) | Kind::AssistantItem(_) | Kind::SystemEntry(_) => true,
        Kind::ToolResult(result) => result.by.is_none(),
        Kind::SegmentStart(start) => start.reason == SegmentReason::Import,
        _ => false,
    }
}

/// Returns the items of an entry. `of`: the thread whose log contains it, if it is another one.
pub(crate) fn history_rows(entry: &Entry, of: Option<SessionId>) -> Vec<HistoryRow> {
    let items = match &entry.kind {
        Kind::UserInput(input) => vec![flatten_input(&input.segments)],
        Kind::AssistantItem(said) => vec![said.item.clone()],
        Kind::SystemEntry(told) => vec![told.item.to_item()],
        Kind::ToolResult(result) => vec![result.item.clone()],
        Kind::SegmentStart(start) => match &start.history {
            History::Here(items) => items.clone(),
            History::SameAs { .. } | History::Blob(_) => Vec::new(),
        },
        _ => Vec::new(),
    };
    let row = |item: Item| HistoryRow {
        id: entry.seq,
        thread_id: of.map(crate::response::format_session_id),
        role: item_role(&item),
        content: item_text(&item),
        item,
        created_at: entry.ts / 1_000,
    };
    items.into_iter().map(row).collect()
}

fn item_role(item: &Item) -> &'static str {
    match item {
        Item::Message { role, .. } => match role {
            minke_record::Role::User => "user",
            minke_record::Role::Assistant => "assistant",
            _ => "system",
        },
        Item::Reasoning { .. } | Item::ToolCall { .. } => "assistant",
        Item::ToolResult { .. } => "tool",
        Item::Unknown => "unknown",
    }
}

/// Returns the text of an item, or the name of the blob with its text.
pub(crate) fn item_text(item: &Item) -> String {
    match item {
        Item::Message { content, .. } => {
            let parts = content.iter().map(|part| match part {
                Content::Text { text } | Content::Refusal { text } => text.display_text().into_owned(),
                Content::Image { media_type, .. } => format!("[{media_type}]"),
                Content::Unknown => String::new(),
            });
            parts.collect::<Vec<String>>().join("")
        }
        Item::Reasoning { text, .. } => text.display_text().into_owned(),
        Item::ToolCall { arguments, .. } => arguments.display_text().into_owned(),
        Item::ToolResult { summary, content, .. } => {
            content.as_ref().map(Text::display_text).map_or_else(|| summary.clone(), Into::into)
        }
        Item::Unknown => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use minke_record::line;

    use super::*;

    const RUNS: [&str; 3] = [
        "01970000-0000-7000-8000-000000000001",
        "01970000-0000-7000-8000-000000000002",
        "01970000-0000-7000-8000-000000000003",
    ];

    fn fold_of(kinds: &[(Option<usize>, Value)]) -> ThreadFold {
        let mut story = ThreadFold::default();
        for (seq, (run, kind)) in kinds.iter().enumerate() {
            let mut object = json!({ "seq": seq, "ts": seq });
            if let Some(run) = run {
                object["run"] = json!(RUNS[*run]);
            }
            let object = object.as_object_mut().unwrap();
            object.extend(kind.as_object().unwrap().clone());
            object.insert("h".to_owned(), json!("0".repeat(32)));
            let text = json!(object).to_string();
            story.apply(&line::parse_entry(&text).unwrap_or_else(|e| panic!("{text}: {e}")));
        }
        story
    }

    fn user_message(text: &str) -> Value {
        let by = json!({ "actor": "person" });
        json!({ "kind": "user_input", "segments": [{ "kind": "text", "content": text }], "from": by })
    }

    #[test]
    fn what_was_taken_back_is_not_in_the_history() {
        let rolled = json!({ "kind": "run_completed", "result": "rolled_back" });
        let mut kinds = vec![(Some(0), user_message("a")), (Some(1), user_message("b")), (Some(1), rolled)];
        assert_eq!(fold_of(&kinds).newest_entries(MAX_HISTORY), [0]);
        kinds.push((Some(2), user_message("c")));
        assert_eq!(fold_of(&kinds).newest_entries(MAX_HISTORY), [0, 3]);
        kinds.push((None, json!({ "kind": "rewound", "to_seq": 2 })));
        assert_eq!(fold_of(&kinds).newest_entries(MAX_HISTORY), [0]);
        kinds.push((Some(0), user_message("d")));
        assert_eq!(fold_of(&kinds).newest_entries(MAX_HISTORY), [0, 5]);
        assert_eq!(fold_of(&kinds).newest_entries(1), [5]);
        let latest = fold_of(&kinds).latest_checkpoint().unwrap();
        assert_eq!(
            (&latest["checkpoint_id"], &latest["state"]["seq"]),
            (&json!(LATEST_CHECKPOINT), &json!(5))
        );
    }

    #[test]
    fn a_goal_holds_until_it_is_reached_or_taken_away() {
        let goal = |change: &str| (None, json!({ "kind": "goal", "change": change, "text": "x", "used": 2 }));
        let of = |changes: &[&str]| {
            let kinds: Vec<_> = changes.iter().map(|change| goal(change)).collect();
            fold_of(&kinds).goal.map(|goal| (goal.objective, goal.used))
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&["set", "advance"]), Some(("x".to_owned(), 2)));
        assert_eq!(of(&["set", "done"]), None);
        assert_eq!(of(&["set", "clear"]), None);
    }
}
