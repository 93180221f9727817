//! Rewinding: which inputs of a session can be gone back to, and what the context was just before one.

use minke_record::{Class, Entry, InputSegment, Kind, Millis, RunId, RunResult, Text};

use crate::input::RewindTarget;
use crate::state::State;

/// How much of an input a list of targets shows.
const PREVIEW_CHARS: usize = 120;

/// An input that can be gone back to.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    pub seq: u64,
    pub ts: Millis,
    /// Which input of the session it is, from 0.
    pub turn: u64,
    pub preview: String,
    /// What a rewind will not undo.
    pub warning: Option<String>,
}

/// Reads a session's entries in order and finds the targets.
#[derive(Debug, Default)]
pub struct RewindScan {
    wanted: Option<u64>,
    state: State,
    targets: Vec<(Option<RunId>, Target)>,
    found: Option<RewindTarget>,
}

impl RewindScan {
    /// `wanted`: the target whose context is to be kept.
    pub fn new(wanted: Option<u64>) -> RewindScan {
        RewindScan { wanted, ..RewindScan::default() }
    }

    pub fn see(&mut self, entry: &Entry) {
        match &entry.kind {
            // The numbers of a fork are its own; what its parent said stays in the context.
            Kind::SessionStart(_) => self.targets.clear(),
            Kind::UserInput(e) => {
                if self.wanted == Some(entry.seq) {
                    let history = self.state.context.to_items();
                    self.found = Some(RewindTarget { history, input: e.segments.clone() });
                }
                let turn = self.targets.len() as u64;
                let target = Target {
                    seq: entry.seq,
                    ts: entry.ts,
                    turn,
                    preview: preview(&e.segments),
                    warning: None,
                };
                self.targets.push((entry.run, target));
            }
            Kind::RunCompleted(e) if e.result == RunResult::RolledBack => {
                self.targets.retain(|(run, _)| *run != entry.run);
            }
            Kind::Rewound(e) => self.targets.retain(|(_, target)| target.seq < e.to_seq),
            Kind::ToolDispatch(e) if e.class != Class::Pure => {
                for (_, target) in &mut self.targets {
                    target.warning =
                        Some("calls with side effects ran after it; they are not undone".to_owned());
                }
            }
            _ => {}
        }
        self.state.apply(entry);
    }

    /// The targets, oldest first, and the one that was wanted if it is among them.
    pub fn finish(self) -> (Vec<Target>, Option<RewindTarget>) {
        let targets: Vec<Target> = self.targets.into_iter().map(|(_, target)| target).collect();
        let found = self.found.filter(|_| targets.iter().any(|target| Some(target.seq) == self.wanted));
        (targets, found)
    }
}

fn preview(segments: &[InputSegment]) -> String {
    let text = segments.iter().find_map(|segment| match segment {
        InputSegment::Text { content: Text::Here(text) } => Some(text.as_str()),
        _ => None,
    });
    text.unwrap_or("[no text]").chars().take(PREVIEW_CHARS).collect()
}
