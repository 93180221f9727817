//! Runs: what opens one, what is said in it, how it ends, what is taken back of it.

use minke_protocol::{Status, Waiting};
use minke_record::{
    Entry, Invoke, QueueMode, QueuedInput, RunErrored, RunResult, StateChange, StateWord, UserInput,
};

use crate::block::{Body, Ended, NoticeKind, Said, Saying};
use crate::conversation::{Conversation, Running};
use crate::standing::Queued;
use crate::store::Sifted;
use crate::tell;

impl Conversation {
    pub(crate) fn run_opened(&mut self, e: &Invoke, entry: &Entry) {
        self.hold(false);
        self.not_resumable();
        self.fold.ran = true;
        self.fold.run_known = true;
        self.fold.run = entry.run.map(|id| Running { id, inputs: Vec::new(), begun_before: false });
        self.standing.status = Some(Status::Running);
        self.standing.retry = None;
        // The next model is asked for something new.
        if e.continues.is_none() {
            self.standing.progress = None;
        }
    }

    pub(crate) fn input_came(&mut self, e: &UserInput, entry: &Entry) {
        let steered = e.queued.is_some() && e.queued == self.fold.steered;
        let (text, chips) = tell::said(&e.segments);
        let state = if steered { Saying::Steered } else { Saying::Said };
        let who = tell::who(&e.from, self.parent());
        let id = self.put(entry, 0, Body::Said(Said { who, text, chips, state }));
        match &mut self.fold.run {
            Some(run) if Some(run.id) == entry.run => run.inputs.push(id),
            // The run began, and whether this steers it was said, in an older page.
            _ => self.made_loose(entry),
        }
    }

    pub(crate) fn input_queued(&mut self, e: &QueuedInput) {
        if self.fold.run.is_none() && e.mode == QueueMode::Queue {
            self.hold(false);
        }
        let (text, chips) = tell::said(&e.segments);
        let (steer, held) = (e.mode == QueueMode::Steer, self.fold.held);
        self.standing.queue.push(Queued { id: e.id, text, chips, steer, held });
    }

    pub(crate) fn hold(&mut self, held: bool) {
        self.fold.held = held;
        self.standing.queue.iter_mut().for_each(|queued| queued.held = held);
    }

    pub(crate) fn run_ended(&mut self, result: &RunResult, reason: Option<&str>, entry: &Entry) {
        let resumable = matches!(result, RunResult::Paused | RunResult::Interrupted);
        if *result == RunResult::RolledBack {
            self.rolled_back(entry);
        }
        self.run_over(resumable);
        self.hold(matches!(result, RunResult::Paused | RunResult::Cancelled | RunResult::Interrupted));
        if *result != RunResult::Finished {
            let reason = reason.unwrap_or_default();
            self.end(result.as_str(), reason, resumable, entry);
        }
    }

    pub(crate) fn run_failed(&mut self, e: &RunErrored, entry: &Entry) {
        self.run_over(false);
        self.hold(true);
        self.end("error", &format!("{}: {}", e.code, e.message), false, entry);
    }

    pub(crate) fn run_over(&mut self, paused: bool) {
        self.reply_over();
        self.not_resumable();
        self.fold.ran = true;
        self.fold.run_known = true;
        self.fold.run = None;
        self.standing.status = Some(if paused { Status::Paused } else { Status::Idle });
        self.standing.activity = None;
        self.standing.detail = None;
        self.standing.waiting = None;
    }

    pub(crate) fn end(&mut self, result: &str, reason: &str, resumable: bool, entry: &Entry) {
        let reason = tell::beginning(reason, tell::NOTICE_BYTES);
        let body = Body::Ended(Ended { result: result.to_owned(), reason, resumable });
        self.fold.ended = Some(self.put(entry, 0, body));
    }

    /// Only the last run can be gone on with.
    pub(crate) fn not_resumable(&mut self) {
        if let Some(id) = self.fold.ended.take()
            && matches!(self.blocks.body(id), Some(Body::Ended(ended)) if ended.resumable)
        {
            self.blocks.change(id, |body| {
                if let Body::Ended(ended) = body {
                    ended.resumable = false;
                }
            });
        }
    }

    pub(crate) fn rolled_back(&mut self, entry: &Entry) {
        let run = self.fold.run.clone().filter(|run| entry.run.is_none_or(|id| id == run.id));
        if run.as_ref().is_none_or(|run| run.begun_before) {
            self.keep_loose(entry);
        }
        for id in run.map(|run| run.inputs).unwrap_or_default() {
            self.touch(id, entry, leave);
        }
    }

    pub(crate) fn rewound(&mut self, to_seq: u64, entry: &Entry) {
        // It counts for older pages, and for what is made anew behind them.
        self.keep_loose(entry);
        let gone = self.blocks.sift(to_seq, |block| match &mut block.body {
            Body::Said(said) if said.state == Saying::Left => Sifted::Same,
            Body::Said(_) => {
                leave(&mut block.body);
                Sifted::Changed
            }
            Body::Ask(card) if !card.closed => Sifted::Same,
            Body::Child(_) => Sifted::Same,
            Body::Notice(notice) => match notice.kind {
                NoticeKind::Alert(_) | NoticeKind::Change | NoticeKind::Note => Sifted::Same,
                NoticeKind::Compaction | NoticeKind::Opened | NoticeKind::Rewound => Sifted::Gone,
            },
            Body::Reply(_) | Body::Thinking(_) | Body::Call(_) | Body::Ask(_) | Body::Ended(_) => {
                Sifted::Gone
            }
        });
        for block in gone {
            if let Body::Call(call) = block.body {
                let open = self.fold.calls.remove(&call.id).is_some();
                self.fold.behind.remove(&call.id);
                if open {
                    self.fold.left.insert(call.id);
                }
            }
        }
        self.notice(entry, NoticeKind::Rewound, "rewound: what stood here is no longer in the context");
    }

    pub(crate) fn state_changed(&mut self, e: &StateChange) {
        match &e.state {
            StateWord::Abandoned => {
                self.not_resumable();
                self.fold.ran = true;
                self.fold.run_known = true;
            }
            StateWord::Waiting => {
                self.standing.waiting = e.on.clone().map(|on| Waiting { on, until: e.until });
            }
            StateWord::Working => self.standing.waiting = None,
            StateWord::Paused | StateWord::Queued | StateWord::Stopping | StateWord::Other(_) => {}
        }
    }
}

fn leave(body: &mut Body) {
    if let Body::Said(said) = body {
        said.state = Saying::Left;
    }
}
