//! Rewind: the inputs of a session that can be rewound to, and the context before one.

use minke_record::{Class, Entry, InputSegment, Kind, Millis, RunId, RunResult, Text};

use crate::input::RewindTarget;
use crate::state::State;

/// Preview length of an input in the list.
const PREVIEW_CHARS: usize = 120;

/// An input that can be rewound to.
#[derive(Debug, Clone, PartialEq)]
pub struct RewindPoint {
    pub seq: u64,
    pub ts: Millis,
    /// The index of the input in the session, from 0.
    pub turn: u64,
    pub preview: String,
    /// A warning about effects that the rewind does not undo.
    pub warning: Option<String>,
}

/// Reads a session's entries in order and collects the rewind points.
#[derive(Debug, Default)]
pub struct RewindScan {
    wanted: Option<u64>,
    state: State,
    points: Vec<(Option<RunId>, RewindPoint)>,
    wanted_target: Option<RewindTarget>,
}

impl RewindScan {
    /// `wanted`: the point whose context is returned.
    pub fn new(wanted: Option<u64>) -> RewindScan {
        RewindScan { wanted, ..RewindScan::default() }
    }

    pub fn scan_entry(&mut self, entry: &Entry) {
        match &entry.kind {
            // A fork numbers its own inputs; the parent's stay in the context.
            Kind::SessionStart(_) => self.points.clear(),
            Kind::UserInput(e) => {
                if self.wanted == Some(entry.seq) {
                    let history = self.state.context.to_items();
                    self.wanted_target = Some(RewindTarget { history, input: e.segments.clone() });
                }
                let turn = self.points.len() as u64;
                let target = RewindPoint {
                    seq: entry.seq,
                    ts: entry.ts,
                    turn,
                    preview: input_preview(&e.segments),
                    warning: None,
                };
                self.points.push((entry.run, target));
            }
            Kind::RunCompleted(e) if e.result == RunResult::RolledBack => {
                self.points.retain(|(run, _)| *run != entry.run);
            }
            Kind::Rewound(e) => self.points.retain(|(_, target)| target.seq < e.to_seq),
            Kind::ToolDispatch(e) if e.class != Class::Pure => {
                for (_, target) in &mut self.points {
                    target.warning =
                        Some("calls with side effects ran after it; they are not undone".to_owned());
                }
            }
            _ => {}
        }
        self.state.apply_entry(entry);
    }

    /// Returns the points, oldest first, and the wanted one if it is among them.
    pub fn into_targets(self) -> (Vec<RewindPoint>, Option<RewindTarget>) {
        let targets: Vec<RewindPoint> = self.points.into_iter().map(|(_, target)| target).collect();
        let found =
            self.wanted_target.filter(|_| targets.iter().any(|target| Some(target.seq) == self.wanted));
        (targets, found)
    }
}

fn input_preview(segments: &[InputSegment]) -> String {
    let text = segments.iter().find_map(|segment| match segment {
        InputSegment::Text { content: Text::Inline(text) } => Some(text.as_str()),
        _ => None,
    });
    text.unwrap_or("[no text]").chars().take(PREVIEW_CHARS).collect()
}
