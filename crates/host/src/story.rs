//! What a thread's log tells those who read it: its summary, its conversation, its goal and its named points.
//!
//! Here: one pure pass over entries, and the shapes that are made of them. Elsewhere: reading the log (`look`), what a
//! summary holds (`thread`).
//! Invariant: what was rewound or rolled back is not part of the conversation
//! (`what_was_taken_back_is_not_in_the_history`).

use std::collections::BTreeMap;

use minke_record::{
    Content, Entry, GoalChange, History, Item, Kind, Millis, Position, RunId, RunResult, SegmentReason,
    SessionId, Text, flatten,
};
use minke_thread::Summary;
use serde::Serialize;
use serde_json::{Value, json};

use crate::frames::Goal;

/// The most that `history` holds.
pub(crate) const HISTORY: usize = 500;

/// A log, read once.
#[derive(Debug, Default)]
pub(crate) struct Story {
    pub(crate) summary: Summary,
    pub(crate) head: Option<Position>,
    pub(crate) goal: Option<Goal>,
    /// The newest entry of each named point, and when it was saved.
    pub(crate) checkpoints: BTreeMap<String, (u64, Millis)>,
    /// Entries of the conversation as it stands.
    shown: Vec<(u64, Option<RunId>)>,
}

/// One item of the conversation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Row {
    pub(crate) id: u64,
    /// The thread in whose log it stands, if that is one that this one was forked from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) thread_id: Option<String>,
    pub(crate) role: &'static str,
    pub(crate) content: String,
    pub(crate) item: Item,
    pub(crate) created_at: u64,
}

impl Story {
    pub(crate) fn apply(&mut self, entry: &Entry) {
        self.summary.apply(entry);
        self.head = Some(Position { seq: entry.seq, h: entry.h });
        if is_said(entry) {
            self.shown.push((entry.seq, entry.run));
        }
        match &entry.kind {
            Kind::Goal(goal) => {
                self.goal = match goal.change {
                    GoalChange::Done | GoalChange::Clear => None,
                    GoalChange::Set | GoalChange::Advance | GoalChange::Other(_) => {
                        Some(active(&goal.text, goal.used))
                    }
                };
            }
            Kind::SegmentStart(start) if start.reason == SegmentReason::Fork => {
                let carried = start.carry.here().and_then(|facts| facts.goal.clone());
                self.goal = carried.map(|goal| active(&goal.text, goal.used));
            }
            Kind::Checkpoint(point) => {
                self.checkpoints.insert(point.id.clone(), (entry.seq, entry.ts));
            }
            Kind::Rewound(rewound) => self.shown.retain(|(seq, _)| *seq <= rewound.to_seq),
            Kind::RunCompleted(end) if end.result == RunResult::RolledBack => {
                self.shown.retain(|(_, run)| run.is_none() || *run != entry.run);
            }
            _ => {}
        }
    }

    /// The newest entries of the conversation, oldest first.
    pub(crate) fn newest(&self, most: usize) -> Vec<u64> {
        let skip = self.shown.len().saturating_sub(most);
        self.shown.iter().skip(skip).map(|(seq, _)| *seq).collect()
    }

    /// The point that is not stored: the last input or answer.
    pub(crate) fn latest(&self) -> Option<Value> {
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
        Some(checkpoint(LATEST, &state, latest.at))
    }
}

fn active(objective: &str, used: u32) -> Goal {
    Goal { objective: objective.to_owned(), status: "active", used, evidence: None }
}

/// The point that is always there.
pub(crate) const LATEST: &str = "latest";

pub(crate) fn checkpoint(id: &str, state: &Value, at: Millis) -> Value {
    json!({ "checkpoint_id": id, "state": state, "created_at": at / 1_000 })
}

/// Whether an entry is part of the conversation.
fn is_said(entry: &Entry) -> bool {
    match &entry.kind {
        Kind::UserInput(_) | Kind::AssistantItem(_) | Kind::SystemEntry(_) => true,
        Kind::ToolResult(result) => result.by.is_none(),
        Kind::SegmentStart(start) => start.reason == SegmentReason::Import,
        _ => false,
    }
}

/// The items of an entry of the conversation. `of`: the thread in whose log it stands, if it is another one.
pub(crate) fn rows(entry: &Entry, of: Option<SessionId>) -> Vec<Row> {
    let items = match &entry.kind {
        Kind::UserInput(input) => vec![flatten(&input.segments)],
        Kind::AssistantItem(said) => vec![said.item.clone()],
        Kind::SystemEntry(told) => vec![told.item.item()],
        Kind::ToolResult(result) => vec![result.item.clone()],
        Kind::SegmentStart(start) => match &start.history {
            History::Here(items) => items.clone(),
            History::SameAs { .. } | History::Blob(_) => Vec::new(),
        },
        _ => Vec::new(),
    };
    let row = |item: Item| Row {
        id: entry.seq,
        thread_id: of.map(crate::answer::id),
        role: role(&item),
        content: content(&item),
        item,
        created_at: entry.ts / 1_000,
    };
    items.into_iter().map(row).collect()
}

fn role(item: &Item) -> &'static str {
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

/// The text of an item; a text that lies in a blob is named.
pub(crate) fn content(item: &Item) -> String {
    match item {
        Item::Message { content, .. } => {
            let parts = content.iter().map(|part| match part {
                Content::Text { text } | Content::Refusal { text } => text.show().into_owned(),
                Content::Image { media_type, .. } => format!("[{media_type}]"),
                Content::Unknown => String::new(),
            });
            parts.collect::<Vec<String>>().join("")
        }
        Item::Reasoning { text, .. } => text.show().into_owned(),
        Item::ToolCall { arguments, .. } => arguments.show().into_owned(),
        Item::ToolResult { summary, content, .. } => {
            content.as_ref().map(Text::show).map_or_else(|| summary.clone(), Into::into)
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

    fn story(kinds: &[(Option<usize>, Value)]) -> Story {
        let mut story = Story::default();
        for (seq, (run, kind)) in kinds.iter().enumerate() {
            let mut object = json!({ "seq": seq, "ts": seq });
            if let Some(run) = run {
                object["run"] = json!(RUNS[*run]);
            }
            let object = object.as_object_mut().unwrap();
            object.extend(kind.as_object().unwrap().clone());
            object.insert("h".to_owned(), json!("0".repeat(32)));
            let text = json!(object).to_string();
            story.apply(&line::parse(&text).unwrap_or_else(|e| panic!("{text}: {e}")));
        }
        story
    }

    fn said(text: &str) -> Value {
        let by = json!({ "actor": "person" });
        json!({ "kind": "user_input", "segments": [{ "kind": "text", "content": text }], "from": by })
    }

    #[test]
    fn what_was_taken_back_is_not_in_the_history() {
        let rolled = json!({ "kind": "run_completed", "result": "rolled_back" });
        let mut kinds = vec![(Some(0), said("a")), (Some(1), said("b")), (Some(1), rolled)];
        assert_eq!(story(&kinds).newest(HISTORY), [0]);
        kinds.push((Some(2), said("c")));
        assert_eq!(story(&kinds).newest(HISTORY), [0, 3]);
        kinds.push((None, json!({ "kind": "rewound", "to_seq": 2 })));
        assert_eq!(story(&kinds).newest(HISTORY), [0]);
        kinds.push((Some(0), said("d")));
        assert_eq!(story(&kinds).newest(HISTORY), [0, 5]);
        assert_eq!(story(&kinds).newest(1), [5]);
        let latest = story(&kinds).latest().unwrap();
        assert_eq!((&latest["checkpoint_id"], &latest["state"]["seq"]), (&json!(LATEST), &json!(5)));
    }

    #[test]
    fn a_goal_holds_until_it_is_reached_or_taken_away() {
        let goal = |change: &str| (None, json!({ "kind": "goal", "change": change, "text": "x", "used": 2 }));
        let of = |changes: &[&str]| {
            let kinds: Vec<_> = changes.iter().map(|change| goal(change)).collect();
            story(&kinds).goal.map(|goal| (goal.objective, goal.used))
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&["set", "advance"]), Some(("x".to_owned(), 2)));
        assert_eq!(of(&["set", "done"]), None);
        assert_eq!(of(&["set", "clear"]), None);
    }
}
