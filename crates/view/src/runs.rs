//! Runs: their start, inputs, end and rewind.

use minke_protocol::{Status, WaitState};
use minke_record::{
    Entry, Invoke, QueueMode, QueuedInput, RunErrored, RunResult, StateChange, StateWord, UserInput,
};

use crate::block::{BlockBody, InputBlock, InputState, NoticeKind, RunEndNotice};
use crate::block_store::RetainAction;
use crate::conversation::{ActiveRun, ConversationState};
use crate::format;
use crate::status::QueueRow;

impl ConversationState {
    pub(crate) fn apply_invoke(&mut self, e: &Invoke, entry: &Entry) {
        self.set_queue_held(false);
        self.clear_resumable();
        self.fold.saw_run = true;
        self.fold.is_run_known = true;
        self.fold.run = entry.run.map(|id| ActiveRun { id, inputs: Vec::new(), started_before: false });
        self.status.status = Some(Status::Running);
        self.status.retry = None;
        // The next model request starts a new reply.
        if e.continues.is_none() {
            self.status.progress = None;
        }
    }

    pub(crate) fn apply_user_input(&mut self, e: &UserInput, entry: &Entry) {
        let steered = e.queued.is_some() && e.queued == self.fold.steering;
        let (text, attachments) = format::input_text(&e.segments);
        let state = if steered { InputState::Steered } else { InputState::Delivered };
        let sender = format::actor_name(&e.from, self.parent_name());
        let id = self.put_block(entry, 0, BlockBody::Input(InputBlock { sender, text, attachments, state }));
        match &mut self.fold.run {
            Some(run) if Some(run.id) == entry.run => run.inputs.push(id),
            // An older page has the start of the run and tells whether this input steers it.
            _ => self.mark_unmatched(entry),
        }
    }

    pub(crate) fn apply_queued_input(&mut self, e: &QueuedInput) {
        if self.fold.run.is_none() && e.mode == QueueMode::Queue {
            self.set_queue_held(false);
        }
        let (text, attachments) = format::input_text(&e.segments);
        let (steer, is_held) = (e.mode == QueueMode::Steer, self.fold.queue_held);
        self.status.queue.push(QueueRow { id: e.id, text, attachments, steer, is_held });
    }

    pub(crate) fn set_queue_held(&mut self, held: bool) {
        self.fold.queue_held = held;
        self.status.queue.iter_mut().for_each(|queued| queued.is_held = held);
    }

    pub(crate) fn apply_run_end(&mut self, result: &RunResult, reason: Option<&str>, entry: &Entry) {
        let resumable = matches!(result, RunResult::Paused | RunResult::Interrupted);
        if *result == RunResult::RolledBack {
            self.apply_rollback(entry);
        }
        self.close_run(resumable);
        self.set_queue_held(matches!(
            result,
            RunResult::Paused | RunResult::Cancelled | RunResult::Interrupted
        ));
        if *result != RunResult::Finished {
            let reason = reason.unwrap_or_default();
            self.add_run_end(result.as_str(), reason, resumable, entry);
        }
    }

    pub(crate) fn apply_run_error(&mut self, e: &RunErrored, entry: &Entry) {
        self.close_run(false);
        self.set_queue_held(true);
        self.add_run_end("error", &format!("{}: {}", e.code, e.message), false, entry);
    }

    pub(crate) fn close_run(&mut self, paused: bool) {
        self.discard_live_blocks();
        self.clear_resumable();
        self.fold.saw_run = true;
        self.fold.is_run_known = true;
        self.fold.run = None;
        self.status.status = Some(if paused { Status::Paused } else { Status::Idle });
        self.status.activity = None;
        self.status.detail = None;
        self.status.waiting = None;
    }

    pub(crate) fn add_run_end(&mut self, result: &str, reason: &str, resumable: bool, entry: &Entry) {
        let reason = format::truncate_text(reason, format::MAX_NOTICE_BYTES);
        let body = BlockBody::RunEnd(RunEndNotice { result: result.to_owned(), reason, resumable });
        self.fold.last_end = Some(self.put_block(entry, 0, body));
    }

    /// Only the last run can be resumed.
    pub(crate) fn clear_resumable(&mut self) {
        if let Some(id) = self.fold.last_end.take()
            && matches!(self.blocks.body(id), Some(BlockBody::RunEnd(ended)) if ended.resumable)
        {
            self.blocks.change_block(id, |body| {
                if let BlockBody::RunEnd(ended) = body {
                    ended.resumable = false;
                }
            });
        }
    }

    pub(crate) fn apply_rollback(&mut self, entry: &Entry) {
        let run = self.fold.run.clone().filter(|run| entry.run.is_none_or(|id| id == run.id));
        if run.as_ref().is_none_or(|run| run.started_before) {
            self.keep_unmatched(entry);
        }
        for id in run.map(|run| run.inputs).unwrap_or_default() {
            self.change_or_keep(id, entry, mark_rewound);
        }
    }

    pub(crate) fn apply_rewind(&mut self, to_seq: u64, entry: &Entry) {
        // The rewind also applies to older pages and to blocks that are rebuilt after them.
        self.keep_unmatched(entry);
        let gone = self.blocks.retain_blocks(to_seq, |block| match &mut block.body {
            BlockBody::Input(said) if said.state == InputState::Rewound => RetainAction::Keep,
            BlockBody::Input(_) => {
                mark_rewound(&mut block.body);
                RetainAction::KeepChanged
            }
            BlockBody::Ask(card) if !card.closed => RetainAction::Keep,
            BlockBody::Child(_) => RetainAction::Keep,
            BlockBody::NoticeLine(notice) => match notice.kind {
                NoticeKind::Alert(_) | NoticeKind::SettingChange | NoticeKind::ClientNote => {
                    RetainAction::Keep
                }
                NoticeKind::Compaction | NoticeKind::Reopened | NoticeKind::Rewound => RetainAction::Remove,
            },
            BlockBody::Reply(_)
            | BlockBody::Thinking(_)
            | BlockBody::CallCard(_)
            | BlockBody::Ask(_)
            | BlockBody::RunEnd(_) => RetainAction::Remove,
        });
        for block in gone {
            if let BlockBody::CallCard(call) = block.body {
                let open = self.fold.calls.remove(&call.id).is_some();
                self.fold.background.remove(&call.id);
                if open {
                    self.fold.rewound.insert(call.id);
                }
            }
        }
        self.add_notice(entry, NoticeKind::Rewound, "rewound: later messages are no longer in the context");
    }

    pub(crate) fn apply_state_change(&mut self, e: &StateChange) {
        match &e.state {
            StateWord::Abandoned => {
                self.clear_resumable();
                self.fold.saw_run = true;
                self.fold.is_run_known = true;
            }
            StateWord::Waiting => {
                self.status.waiting = e.on.clone().map(|on| WaitState { on, until: e.until });
            }
            StateWord::Working => self.status.waiting = None,
            StateWord::Paused | StateWord::Queued | StateWord::Stopping | StateWord::Other(_) => {}
        }
    }
}

fn mark_rewound(body: &mut BlockBody) {
    if let BlockBody::Input(said) = body {
        said.state = InputState::Rewound;
    }
}
