//! Calls: from the model's word until what came of it, one block each.

use minke_record::{AskId, CallId, Entry, Item, Kind, Millis, Outcome, Text, ToolDispatch, ToolResult};

use crate::block::{BlockId, Body, Call, CallState, Tail};
use crate::conversation::Conversation;
use crate::tell;

/// What is held of a call's arguments: they may be a whole file, which the diff shows better.
const ARGUMENTS_BYTES: usize = 16 * 1024;
/// What is held of a diff or a command.
const SHOWN_BYTES: usize = 256 * 1024;
/// Commands that go on behind their calls.
const BEHIND: usize = 64;

impl Call {
    pub(crate) fn new(id: CallId, tool: &str) -> Call {
        Call {
            id,
            tool: tool.to_owned(),
            about: String::new(),
            command: None,
            arguments: String::new(),
            state: CallState::Written,
            diff: None,
            path: None,
            output: Tail::default(),
            exit: None,
            summary: String::new(),
            behind: false,
            fence: None,
            began: None,
            ended: None,
            by: None,
        }
    }
}

impl Tail {
    /// Adds to the end; the oldest goes.
    pub(crate) fn push(&mut self, text: &str) {
        self.text.push_str(text);
        if self.text.len() > Tail::BYTES {
            // A good deal at once, so that it is not done for every piece.
            let from = self.text.ceil_char_boundary(self.text.len() - Tail::BYTES * 3 / 4);
            self.left_out = self.left_out.saturating_add(from as u64);
            self.text.drain(..from);
        }
    }

    fn of(text: &Text) -> Tail {
        let (text, left_out, blob) = tell::held(text);
        let from = text.ceil_char_boundary(text.len().saturating_sub(Tail::BYTES));
        let (before, end) = text.split_at(from);
        Tail { text: end.to_owned(), left_out: left_out.saturating_add(before.len() as u64), blob }
    }
}

impl Conversation {
    /// The model has written a call.
    pub(crate) fn call_written(
        &mut self,
        id: &CallId,
        tool: &str,
        arguments: &Text,
        part: u32,
        entry: &Entry,
    ) {
        let mut call = Call::new(id.clone(), tool);
        call.state = CallState::Waiting;
        self.write_arguments(&mut call, arguments);
        let block = self.put(entry, part, Body::Call(Box::new(call)));
        self.fold.calls.insert(id.clone(), block);
    }

    fn write_arguments(&self, call: &mut Call, arguments: &Text) {
        call.about = tell::written_about(arguments.here().unwrap_or_default(), &self.fold.cwd);
        call.arguments = tell::beginning(&arguments.show(), ARGUMENTS_BYTES);
    }

    pub(crate) fn call_asked(&mut self, call: &CallId, ask: AskId, entry: &Entry) {
        match self.fold.calls.get(call).copied() {
            Some(id) => self.touch(id, entry, |body| {
                if let Body::Call(call) = body {
                    call.state = CallState::Asked(ask);
                }
            }),
            // A client's call has no block before it starts; the model's stands in an older page.
            None if !self.fold.left.contains(call) => self.keep_loose(entry),
            None => {}
        }
    }

    pub(crate) fn call_answered(&mut self, ask: AskId, entry: &Entry) {
        let asked = |id: &&BlockId| matches!(self.blocks.body(**id), Some(Body::Call(call)) if call.state == CallState::Asked(ask));
        if let Some(id) = self.fold.calls.values().find(asked).copied() {
            self.touch(id, entry, |body| {
                if let Body::Call(call) = body {
                    call.state = CallState::Waiting;
                }
            });
        }
    }

    pub(crate) fn call_started(&mut self, e: &ToolDispatch, entry: &Entry) {
        let by = self.actor(e.by.as_ref());
        let Some(id) = self.block_of(&e.call_id, &e.tool, by, entry) else { return };
        let arguments = e.arguments.as_ref().map(|arguments| {
            let mut written = Call::new(e.call_id.clone(), &e.tool);
            self.write_arguments(&mut written, arguments);
            (written.arguments, written.about)
        });
        let about = tell::touches(&e.action, &self.fold.cwd);
        let path = e.preview.as_ref().map(|preview| preview.path.clone());
        let path = path.or_else(|| e.action.writes.first().cloned());
        let path = path.map(|path| tell::near(&path, &self.fold.cwd).to_owned());
        self.touch(id, entry, |body| {
            let Body::Call(call) = body else { return };
            call.tool.clone_from(&e.tool);
            call.state = CallState::Running;
            call.began = Some(entry.ts);
            if let Some((arguments, about)) = arguments {
                (call.arguments, call.about) = (arguments, about);
            }
            if !about.is_empty() {
                call.about = about;
            }
            call.command = e.action.command.as_ref().map(|line| tell::beginning(line, SHOWN_BYTES));
            let diff = e.preview.as_ref().and_then(|preview| preview.diff.as_ref());
            call.diff = diff.map(|diff| tell::beginning(diff, SHOWN_BYTES));
            call.path = path;
            call.fence.clone_from(&e.verdict.fence);
        });
    }

    pub(crate) fn call_ended(&mut self, e: &ToolResult, entry: &Entry) {
        let Item::ToolResult { call_id, summary, content, blob, .. } = &e.item else { return };
        let by = self.actor(e.by.as_ref());
        let Some(id) = self.block_of(call_id, "", by, entry) else {
            self.fold.left.remove(call_id);
            return;
        };
        self.fold.calls.remove(call_id);
        self.fold.heard.remove(call_id);
        let behind = tell::goes_on(summary);
        if behind && self.fold.behind.len() < BEHIND {
            self.fold.behind.insert(call_id.clone(), id);
        }
        let end =
            End { outcome: e.outcome.clone(), summary, content: content.as_ref(), blob, ts: Some(entry.ts) };
        self.touch(id, entry, |body| end.put(body));
    }

    /// What ran in an earlier life of the pod does not run any more; what came of it is not known yet.
    pub(crate) fn calls_cut_off(&mut self, entry: &Entry) {
        self.fold.heard.clear();
        self.fold.behind.clear();
        // Calls of older pages too.
        self.keep_loose(entry);
        for id in self.fold.calls.values().copied().collect::<Vec<_>>() {
            if matches!(self.blocks.body(id), Some(Body::Call(call)) if call.state == CallState::Running) {
                self.touch(id, entry, |body| {
                    if let Body::Call(call) = body {
                        call.state = CallState::Waiting;
                    }
                });
            }
        }
    }

    /// A result that came along with a history from elsewhere.
    pub(crate) fn result_came(&mut self, item: &Item, entry: &Entry) {
        let Item::ToolResult { call_id, summary, content, is_error, blob, .. } = item else { return };
        let Some(id) = self.fold.calls.remove(call_id) else { return };
        let outcome = if *is_error { Outcome::Failed } else { Outcome::Done };
        let end = End { outcome, summary, content: content.as_ref(), blob, ts: None };
        self.touch(id, entry, |body| end.put(body));
    }

    /// The block of a call; one is made for a client's call, and for one that stands in an older page. None if a rewind
    /// has taken it out.
    fn block_of(&mut self, call: &CallId, tool: &str, by: Option<String>, entry: &Entry) -> Option<BlockId> {
        if let Some(id) = self.fold.calls.get(call) {
            return Some(*id);
        }
        if self.fold.left.contains(call) {
            return None;
        }
        // Nothing stands before the start of a client's call.
        if by.is_none() || !matches!(entry.kind, Kind::ToolDispatch(_)) {
            self.made_loose(entry);
        }
        let made = Call { by, ..Call::new(call.clone(), tool) };
        let id = self.put(entry, 0, Body::Call(Box::new(made)));
        self.fold.calls.insert(call.clone(), id);
        Some(id)
    }
}

/// How a call ended.
struct End<'a> {
    outcome: Outcome,
    summary: &'a str,
    content: Option<&'a Text>,
    blob: &'a Option<String>,
    ts: Option<Millis>,
}

impl End<'_> {
    fn put(self, body: &mut Body) {
        let Body::Call(call) = body else { return };
        call.state = CallState::Ended(self.outcome);
        call.summary = tell::beginning(self.summary, tell::NOTICE_BYTES);
        call.exit = tell::exit_code(self.summary);
        call.behind = tell::goes_on(self.summary);
        call.ended = self.ts;
        match self.content {
            // What was heard while it ran says more than the name of a blob.
            Some(content @ Text::Blob(_)) if !call.output.text.is_empty() => {
                call.output.blob = Tail::of(content).blob;
            }
            Some(content) => call.output = Tail::of(content),
            None => call.output = Tail::default(),
        }
        if self.blob.is_some() {
            call.output.blob.clone_from(self.blob);
        }
    }
}
