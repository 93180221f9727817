//! Calls: one block per call, from the model's request to the result.

use minke_record::{AskId, CallId, Entry, Item, Kind, Millis, Outcome, Text, ToolDispatch, ToolResult};

use crate::block::{BlockBody, BlockId, CallCard, CallState, TextTail};
use crate::conversation::ConversationState;
use crate::format;

/// Limit for stored arguments. They may contain a whole file, which the diff shows better.
const MAX_ARGUMENT_BYTES: usize = 16 * 1024;
/// Limit for a stored diff or command.
const MAX_SHOWN_BYTES: usize = 256 * 1024;
/// Limit for commands in the background.
const MAX_BACKGROUND: usize = 64;

impl CallCard {
    pub(crate) fn new(id: CallId, tool: &str) -> CallCard {
        CallCard {
            id,
            tool: tool.to_owned(),
            subject: String::new(),
            command: None,
            arguments: String::new(),
            state: CallState::Streaming,
            diff: None,
            path: None,
            output: TextTail::default(),
            exit: None,
            summary: String::new(),
            in_background: false,
            sandbox: None,
            started_at: None,
            ended_at: None,
            caller: None,
        }
    }
}

impl TextTail {
    /// Appends text and drops the oldest bytes beyond the limit.
    pub(crate) fn push_text(&mut self, text: &str) {
        self.text.push_str(text);
        if self.text.len() > TextTail::BYTES {
            // Drop a larger piece at once, so that not every push has to move the text.
            let from = self.text.ceil_char_boundary(self.text.len() - TextTail::BYTES * 3 / 4);
            self.omitted_bytes = self.omitted_bytes.saturating_add(from as u64);
            self.text.drain(..from);
        }
    }

    fn from_text(text: &Text) -> TextTail {
        let (text, left_out, blob) = format::stored_text(text);
        let from = text.ceil_char_boundary(text.len().saturating_sub(TextTail::BYTES));
        let (before, end) = text.split_at(from);
        TextTail { text: end.to_owned(), omitted_bytes: left_out.saturating_add(before.len() as u64), blob }
    }
}

impl ConversationState {
    /// Adds a call that the model has written.
    pub(crate) fn add_written_call(
        &mut self,
        id: &CallId,
        tool: &str,
        arguments: &Text,
        part: u32,
        entry: &Entry,
    ) {
        let mut call = CallCard::new(id.clone(), tool);
        call.state = CallState::Pending;
        self.set_arguments(&mut call, arguments);
        let block = self.put_block(entry, part, BlockBody::CallCard(Box::new(call)));
        self.fold.calls.insert(id.clone(), block);
    }

    fn set_arguments(&self, call: &mut CallCard, arguments: &Text) {
        call.subject = format::arguments_subject(arguments.inline().unwrap_or_default(), &self.fold.cwd);
        call.arguments = format::truncate_text(&arguments.display_text(), MAX_ARGUMENT_BYTES);
    }

    pub(crate) fn set_call_asked(&mut self, call: &CallId, ask: AskId, entry: &Entry) {
        match self.fold.calls.get(call).copied() {
            Some(id) => self.change_or_keep(id, entry, |body| {
                if let BlockBody::CallCard(call) = body {
                    call.state = CallState::AwaitingAnswer(ask);
                }
            }),
            // A client's call has no block before it starts; a call of the model began in an older page.
            None if !self.fold.rewound.contains(call) => self.keep_unmatched(entry),
            None => {}
        }
    }

    pub(crate) fn set_call_answered(&mut self, ask: AskId, entry: &Entry) {
        let ask_id = |id: &&BlockId| matches!(self.blocks.body(**id), Some(BlockBody::CallCard(call)) if call.state == CallState::AwaitingAnswer(ask));
        if let Some(id) = self.fold.calls.values().find(ask_id).copied() {
            self.change_or_keep(id, entry, |body| {
                if let BlockBody::CallCard(call) = body {
                    call.state = CallState::Pending;
                }
            });
        }
    }

    pub(crate) fn set_call_started(&mut self, e: &ToolDispatch, entry: &Entry) {
        let by = self.actor_name(e.by.as_ref());
        let Some(id) = self.find_call_block(&e.call_id, &e.tool, by, entry) else { return };
        let arguments = e.arguments.as_ref().map(|arguments| {
            let mut written = CallCard::new(e.call_id.clone(), &e.tool);
            self.set_arguments(&mut written, arguments);
            (written.arguments, written.subject)
        });
        let about = format::action_subject(&e.action, &self.fold.cwd);
        let path = e.preview.as_ref().map(|preview| preview.path.clone());
        let path = path.or_else(|| e.action.writes.first().cloned());
        let path = path.map(|path| format::relative_path(&path, &self.fold.cwd).to_owned());
        self.change_or_keep(id, entry, |body| {
            let BlockBody::CallCard(call) = body else { return };
            call.tool.clone_from(&e.tool);
            call.state = CallState::Running;
            call.started_at = Some(entry.ts);
            if let Some((arguments, about)) = arguments {
                (call.arguments, call.subject) = (arguments, about);
            }
            if !about.is_empty() {
                call.subject = about;
            }
            call.command = e.action.command.as_ref().map(|line| format::truncate_text(line, MAX_SHOWN_BYTES));
            let diff = e.preview.as_ref().and_then(|preview| preview.diff.as_ref());
            call.diff = diff.map(|diff| format::truncate_text(diff, MAX_SHOWN_BYTES));
            call.path = path;
            call.sandbox = e.verdict.sandbox.name().map(str::to_owned);
        });
    }

    pub(crate) fn set_call_ended(&mut self, e: &ToolResult, entry: &Entry) {
        let Item::ToolResult { call_id, summary, content, blob, .. } = &e.item else { return };
        let by = self.actor_name(e.by.as_ref());
        let Some(id) = self.find_call_block(call_id, "", by, entry) else {
            self.fold.rewound.remove(call_id);
            return;
        };
        self.fold.calls.remove(call_id);
        self.fold.output_offsets.remove(call_id);
        let behind = format::is_in_background(summary);
        if behind && self.fold.background.len() < MAX_BACKGROUND {
            self.fold.background.insert(call_id.clone(), id);
        }
        let end = FinishedCall {
            outcome: e.outcome.clone(),
            summary,
            content: content.as_ref(),
            blob,
            ts: Some(entry.ts),
        };
        self.change_or_keep(id, entry, |body| end.apply_to(body));
    }

    /// Marks calls of an earlier process as interrupted; their results are not known yet.
    pub(crate) fn mark_interrupted_calls(&mut self, entry: &Entry) {
        self.fold.output_offsets.clear();
        self.fold.background.clear();
        // Older pages may contain running calls too.
        self.keep_unmatched(entry);
        for id in self.fold.calls.values().copied().collect::<Vec<_>>() {
            if matches!(self.blocks.body(id), Some(BlockBody::CallCard(call)) if call.state == CallState::Running)
            {
                self.change_or_keep(id, entry, |body| {
                    if let BlockBody::CallCard(call) = body {
                        call.state = CallState::Pending;
                    }
                });
            }
        }
    }

    /// Adds the result of a call from an imported history.
    pub(crate) fn add_imported_result(&mut self, item: &Item, entry: &Entry) {
        let Item::ToolResult { call_id, summary, content, is_error, blob, .. } = item else { return };
        let Some(id) = self.fold.calls.remove(call_id) else { return };
        let outcome = if *is_error { Outcome::Failed } else { Outcome::Done };
        let end = FinishedCall { outcome, summary, content: content.as_ref(), blob, ts: None };
        self.change_or_keep(id, entry, |body| end.apply_to(body));
    }

    /// Returns the block of a call. Creates one for a client's call and for a call that began in an older
    /// page. Returns `None` if a rewind has removed the call.
    fn find_call_block(
        &mut self,
        call: &CallId,
        tool: &str,
        caller: Option<String>,
        entry: &Entry,
    ) -> Option<BlockId> {
        if let Some(id) = self.fold.calls.get(call) {
            return Some(*id);
        }
        if self.fold.rewound.contains(call) {
            return None;
        }
        // A client's call has no entry before its start.
        if caller.is_none() || !matches!(entry.kind, Kind::ToolDispatch(_)) {
            self.mark_unmatched(entry);
        }
        let created = CallCard { caller, ..CallCard::new(call.clone(), tool) };
        let id = self.put_block(entry, 0, BlockBody::CallCard(Box::new(created)));
        self.fold.calls.insert(call.clone(), id);
        Some(id)
    }
}

/// The end of a call.
struct FinishedCall<'a> {
    outcome: Outcome,
    summary: &'a str,
    content: Option<&'a Text>,
    blob: &'a Option<String>,
    ts: Option<Millis>,
}

impl FinishedCall<'_> {
    fn apply_to(self, body: &mut BlockBody) {
        let BlockBody::CallCard(call) = body else { return };
        call.state = CallState::RunEndNotice(self.outcome);
        call.summary = format::truncate_text(self.summary, format::MAX_NOTICE_BYTES);
        call.exit = format::parse_exit_code(self.summary);
        call.in_background = format::is_in_background(self.summary);
        call.ended_at = self.ts;
        match self.content {
            // The streamed output is more useful than the name of a blob.
            Some(content @ Text::Blob(_)) if !call.output.text.is_empty() => {
                call.output.blob = TextTail::from_text(content).blob;
            }
            Some(content) => call.output = TextTail::from_text(content),
            None => call.output = TextTail::default(),
        }
        if self.blob.is_some() {
            call.output.blob.clone_from(self.blob);
        }
    }
}
