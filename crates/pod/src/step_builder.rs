//! The step being built: what it adds to the log and asks of the driver, with the durable state.

use minke_record::{
    Alert, AlertLevel, AlertSource, Carry, Draft, Durability, Entry, IdGenerator, Kind, Millis, RunId, limits,
};

use crate::input::ReplyId;
use crate::state::State;
use crate::step::{
    CommandRefusal, CommandReply, Effect, LiveEvent, LiveEventKind, ReplyBody, Step, StepEvent,
};

/// Margin before the carry limit, so that no step exceeds it.
const CARRY_MARGIN: u64 = 1_000;

/// The step being built: its time, ids and result.
pub(crate) struct StepBuilder<'a> {
    /// The durable state, with all entries of this step.
    pub(crate) state: &'a mut State,
    pub(crate) now: Millis,
    pub(crate) ids: IdGenerator,
    pub(crate) result: Step,
}

impl<'a> StepBuilder<'a> {
    pub(crate) fn new(state: &'a mut State, now: Millis, seed: u64) -> StepBuilder<'a> {
        let ids = IdGenerator::new(now, seed);
        let now = now.max(state.facts.last_ts);
        StepBuilder { state, now, ids, result: Step::default() }
    }

    pub(crate) fn add_effect(&mut self, effect: Effect) {
        self.result.effects.push(effect);
    }

    pub(crate) fn accept_request(&mut self, to: Option<ReplyId>, body: ReplyBody) {
        if to.is_some() {
            self.result.replies.push(CommandReply { to, result: Ok(body) });
        }
    }

    pub(crate) fn refuse_request(&mut self, to: Option<ReplyId>, refusal: CommandRefusal) {
        self.result.replies.push(CommandReply { to, result: Err(refusal) });
    }

    /// Appends an entry: moves long texts to blobs, applies the entry and adds it to the step.
    pub(crate) fn append_entry(&mut self, kind: impl Into<Kind>) -> u64 {
        let kind = kind.into();
        let durability = kind.durability();
        self.append_with_durability(kind, durability)
    }

    /// Appends an entry whose durability the caller chooses (results of pure calls).
    pub(crate) fn append_with_durability(&mut self, mut kind: Kind, durability: Durability) -> u64 {
        self.result.blobs.extend(kind.spill_texts());
        let run = match &kind {
            Kind::Invoke(_) => Some(RunId(self.ids.next_uuid())),
            _ => self.state.facts.run.as_ref().map(|run| run.id),
        };
        let run = run.filter(|_| belongs_to_run(&kind));
        let seq = self.state.next_seq;
        let entry = Entry { seq, ts: self.now, run, more: false, kind, h: minke_record::ChainHash::ZERO };
        self.state.apply_entry(&entry);
        let mut kind = entry.kind;
        self.result.blobs.extend(kind.spill_lists());
        self.result.events.push(StepEvent::Entry(self.result.entries.len()));
        self.result.entries.push(Draft { seq, ts: self.now, run, kind, durability });
        seq
    }

    pub(crate) fn append_alert(&mut self, level: AlertLevel, source: AlertSource, message: String) {
        let mut message = message;
        if message.len() > limits::ALERT_BYTES {
            let end = (0..=limits::ALERT_BYTES).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
            message.truncate(end);
            message.push('…');
        }
        self.append_entry(Alert { level, source, message });
    }

    pub(crate) fn publish_live(&mut self, kind: LiveEventKind) {
        let run = self.state.facts.run.as_ref().map(|run| run.id);
        self.result.events.push(StepEvent::Live(LiveEvent { run, kind }));
    }

    pub(crate) fn carry_if_due(&mut self) {
        if self.state.entries_since_carry < limits::CARRY_EVERY - CARRY_MARGIN
            || self.result.entries.is_empty()
        {
            return;
        }
        let Some(start) = self.state.segment.as_ref().map(|segment| segment.start) else { return };
        let (history, carry) = self.state.carry_contents();
        let segment = self.state.facts.segment;
        self.append_entry(Carry { segment, start, history, carry });
    }
}

/// Returns whether an entry belongs to the open run. Entries about the session and client calls do not.
fn belongs_to_run(kind: &Kind) -> bool {
    match kind {
        Kind::SessionStart(_)
        | Kind::Opened(_)
        | Kind::SegmentStart(_)
        | Kind::Carry(_)
        | Kind::QueuedInput(_)
        | Kind::Inbox(_)
        | Kind::Checkpoint(_)
        | Kind::Rewound(_)
        | Kind::ConfigChanged(_)
        | Kind::Renamed(_)
        | Kind::Archived(_)
        | Kind::Unarchived(_)
        | Kind::OutboxAck(_)
        | Kind::Extension(_) => false,
        Kind::ToolDispatch(e) => e.by.is_none(),
        Kind::ToolResult(e) => e.by.is_none(),
        _ => true,
    }
}
