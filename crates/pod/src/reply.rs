//! The reply: from the first piece of a stream until the model has stopped.
//!
//! Here: the draft of the blocks, and what each piece leads to. A block is an entry when it is complete, so a crash
//! keeps finished blocks and loses only the words still streaming.

use std::collections::BTreeMap;
use std::sync::Arc;

use minke_model::{ATTEMPTS, BlockEnd, BlockKind, Failure, FailureKind, ModelEvent, Prompt, TokenUsage};
use minke_record::{
    AlertLevel, AlertSource, AssistantItem, Blob, CallId, Content, Continues, ErrorCode, Item, LlmEnd,
    LlmOutcome, LlmUsage, Role, Route, RunErrored, StateChange, StateWord, Text, WaitingOn,
};

use crate::Timer;
use crate::pod::{Making, Pod};
use crate::retry::{self, Next};
use crate::status::VISIBLE_WAIT_MS;
use crate::step::{Effect, LiveWhat, OpenBlock};

/// How often the reply of one turn is continued after its stream broke.
const CONTINUATIONS: u32 = 3;

/// A reply on its way in.
#[derive(Debug, Clone)]
pub(crate) struct ReplyDraft {
    pub(crate) call: u64,
    blocks: BTreeMap<u32, Block>,
    /// Something of this reply is in the log.
    said: bool,
    /// What came over the wire so far, compressed.
    recording: Option<Arc<Blob>>,
    /// The newest word on tokens; noted once, when the request is over.
    usage: Option<TokenUsage>,
    /// Why the provider refused or filtered the reply, in its own words.
    stop_detail: Option<String>,
    /// What the model said in a block of refusal.
    refusal: Option<String>,
    /// A text of this reply is in the log.
    has_text: bool,
    /// The request itself, to be made again.
    prompt: Arc<Prompt>,
    /// Attempts that have been made or are under way.
    attempts: u32,
    /// When the next attempt is made, while one is waited for.
    pub(crate) retry_at: Option<minke_record::Millis>,
}

#[derive(Debug, Clone)]
struct Block {
    kind: BlockKind,
    id: CallId,
    text: String,
}

impl ReplyDraft {
    pub(crate) fn new(call: u64, prompt: Arc<Prompt>) -> ReplyDraft {
        ReplyDraft {
            call,
            blocks: BTreeMap::new(),
            said: false,
            recording: None,
            usage: None,
            stop_detail: None,
            refusal: None,
            has_text: false,
            prompt,
            attempts: 1,
            retry_at: None,
        }
    }

    /// Nothing of this reply has come yet.
    fn is_untouched(&self) -> bool {
        !self.said && self.blocks.is_empty()
    }

    pub(crate) fn open_blocks(&self) -> Vec<OpenBlock> {
        let open = |block: &Block| match &block.kind {
            BlockKind::Text | BlockKind::Refusal => OpenBlock::Text { text: block.text.clone() },
            BlockKind::Thinking => OpenBlock::Thinking { text: block.text.clone() },
            BlockKind::ToolCall { name, .. } => OpenBlock::ToolCall {
                id: block.id.clone(),
                name: name.clone(),
                arguments: block.text.clone(),
            },
        };
        self.blocks.values().map(open).collect()
    }
}

impl Pod {
    pub(crate) fn model_said(&mut self, m: &mut Making, call: u64, event: ModelEvent) {
        if self.life.reply.as_ref().is_none_or(|reply| reply.call != call) {
            return; // a request that was stopped
        }
        match event {
            ModelEvent::BlockStart { index, kind } => self.block_began(m, index, kind),
            ModelEvent::Delta { index, text } => self.block_grew(m, index, text),
            ModelEvent::BlockStop { index, end } => self.block_ended(m, index, end),
            ModelEvent::Usage(usage) => {
                if let Some(reply) = &mut self.life.reply {
                    reply.usage = Some(usage);
                }
            }
            ModelEvent::StopDetail { text } => {
                if let Some(reply) = &mut self.life.reply {
                    reply.stop_detail = Some(text);
                }
            }
            ModelEvent::Unknown { kind, text } => self.unknown_block(m, &kind, &text),
            ModelEvent::Tape(_) => {} // for the recording; no part of the reply
            ModelEvent::Recorded { blob } => {
                if let Some(reply) = &mut self.life.reply {
                    reply.recording = Some(blob);
                }
            }
            ModelEvent::Done { stop } => self.reply_ended(m, &stop),
        }
    }

    fn block_began(&mut self, m: &mut Making, index: u32, kind: BlockKind) {
        let Some(reply) = &mut self.life.reply else { return };
        // A provider's own ids are not stored: they repeat, and a session continues on another provider.
        let id = CallId(format!("call_{}_{index}", reply.call));
        let told = match &kind {
            BlockKind::Thinking => Some(LiveWhat::ThinkingStart),
            BlockKind::ToolCall { name, .. } => {
                Some(LiveWhat::ToolCallStart { id: id.clone(), name: name.clone() })
            }
            BlockKind::Text | BlockKind::Refusal => None,
        };
        if reply.blocks.insert(index, Block { kind, id, text: String::new() }).is_some() {
            return self.broke_contract(m, &format!("block {index} began twice"));
        }
        if let Some(what) = told {
            self.live(m, what);
        }
    }

    fn block_grew(&mut self, m: &mut Making, index: u32, text: String) {
        let block = self.life.reply.as_mut().and_then(|reply| reply.blocks.get_mut(&index));
        let Some(block) = block else {
            return self.broke_contract(m, &format!("a piece of block {index}, which has not begun"));
        };
        block.text.push_str(&text);
        let what = match &block.kind {
            BlockKind::Text | BlockKind::Refusal => LiveWhat::TextDelta { text },
            BlockKind::Thinking => LiveWhat::ThinkingDelta { text },
            BlockKind::ToolCall { .. } => LiveWhat::ToolCallArgs { id: block.id.clone(), json: text },
        };
        self.live(m, what);
    }

    fn block_ended(&mut self, m: &mut Making, index: u32, end: BlockEnd) {
        let Some(reply) = &mut self.life.reply else { return };
        let call = reply.call;
        let by = format!("{}/{}", reply.prompt.route.provider, reply.prompt.route.model);
        let Some(block) = reply.blocks.remove(&index) else {
            return self.broke_contract(m, &format!("the end of block {index}, which has not begun"));
        };
        reply.said = true;
        reply.has_text |= block.is_text() && !block.text.trim().is_empty();
        if block.kind == BlockKind::Refusal {
            reply.refusal = Some(block.text.clone());
        }
        self.note(m, AssistantItem { call, item: block.item(end, by) });
    }

    fn note_usage(&mut self, m: &mut Making, call: u64, usage: &TokenUsage) {
        self.note(
            m,
            LlmUsage {
                call,
                input: usage.input,
                output: usage.output,
                cache_read: usage.cache_read,
                cache_write: usage.cache_write,
                cost_usd: usage.cost_usd.filter(|cost| cost.is_finite()),
                cache_drop: None,
            },
        );
    }

    /// A stream that breaks its own rules is a provider's failure, not an empty answer.
    fn broke_contract(&mut self, m: &mut Making, what: &str) {
        let Some(call) = self.life.reply.as_ref().map(|reply| reply.call) else { return };
        m.effect(Effect::StopModel { call });
        let failure = Failure {
            kind: FailureKind::Permanent,
            message: format!("the provider's stream is out of order: {what}"),
            status: None,
            retry_after_ms: None,
        };
        self.model_failed(m, call, failure);
    }

    /// Ends the draft: begun text is kept as an entry, begun thinking and unfinished calls are dropped. Gives the
    /// request's number and whether the model has said anything in this reply.
    pub(crate) fn keep_begun_text(&mut self, m: &mut Making) -> Kept {
        let Some(reply) = self.life.reply.take() else { return Kept::default() };
        let begun = !reply.is_untouched();
        let (mut said, mut has_text, mut refusal) = (reply.said, reply.has_text, reply.refusal);
        for block in reply.blocks.into_values() {
            match block.kind {
                BlockKind::Text | BlockKind::Refusal if !block.text.is_empty() => {
                    said = true;
                    has_text |= !block.text.trim().is_empty();
                    if block.kind == BlockKind::Refusal {
                        refusal = Some(block.text.clone());
                    }
                    let item = block.item(BlockEnd::default(), String::new());
                    self.note(m, AssistantItem { call: reply.call, item });
                }
                BlockKind::Text | BlockKind::Refusal | BlockKind::Thinking => {}
                BlockKind::ToolCall { name, .. } => {
                    let message = format!("an unfinished call of {name} was dropped; it has not run");
                    self.alert(m, AlertLevel::Warn, AlertSource::Worker, message);
                }
            }
        }
        if let Some(usage) = &reply.usage {
            self.note_usage(m, reply.call, usage);
        }
        // An attempt that is only waited for has not been made.
        let attempts = reply.attempts.saturating_sub(u32::from(reply.retry_at.is_some()));
        let (call, stop_detail, recording) = (reply.call, reply.stop_detail, reply.recording);
        Kept { call, begun, said, has_text, refusal, stop_detail, attempts, recording }
    }

    /// The request is over. Its recording goes into the same step, so there is none that nothing names.
    pub(crate) fn note_end(&mut self, m: &mut Making, kept: Kept, outcome: LlmOutcome) {
        let Kept { call, attempts, recording, .. } = kept;
        let room = self.state.manifest.session.record_max_bytes.saturating_sub(self.state.facts.recorded);
        let wanted = recording.filter(|_| self.state.manifest.session.record_streams);
        let fits = wanted.as_ref().is_none_or(|blob| blob.name.bytes <= room);
        let kept = wanted.filter(|_| fits);
        if let Some(blob) = &kept {
            m.step.recordings.push(Arc::clone(blob));
        }
        let stream_blob = kept.as_ref().map(|blob| blob.name.blob.clone());
        let stream_bytes = kept.as_ref().map(|blob| blob.name.bytes);
        self.note(m, LlmEnd { call, outcome, attempts, stream_blob, stream_bytes });
        if !fits && !self.life.told_full {
            self.life.told_full = true;
            let message = format!(
                "the recordings of this session have reached {} bytes (session.record_max_bytes); no more are kept",
                self.state.manifest.session.record_max_bytes
            );
            self.alert(m, AlertLevel::Warn, AlertSource::Storage, message);
        }
    }

    /// A block of a kind that we do not know is not history; the person is told, with what it says.
    fn unknown_block(&mut self, m: &mut Making, kind: &str, text: &str) {
        let shown = if text.is_empty() { String::new() } else { format!(": {text}") };
        let message =
            format!("the model sent a block of an unknown kind, `{kind}`, which is left out{shown}");
        self.alert(m, AlertLevel::Warn, AlertSource::Worker, message);
    }

    /// Cuts a reply off at once. Gives whether the model has said anything in it.
    pub(crate) fn cut_reply(&mut self, m: &mut Making) -> bool {
        let Some(call) = self.life.reply.as_ref().map(|reply| reply.call) else { return false };
        m.effect(Effect::StopModel { call });
        if self.life.reply.as_ref().is_some_and(|reply| reply.retry_at.is_some()) {
            m.effect(Effect::ClearTimer { timer: Timer::Retry(call) });
        }
        let kept = self.keep_begun_text(m);
        let said = kept.said;
        self.note_end(m, kept, LlmOutcome::Cancelled);
        said
    }

    /// Makes a request again that failed before the model said anything. Gives whether it will.
    fn retry(&mut self, m: &mut Making, failure: &Failure) -> bool {
        let Some(reply) = self.life.reply.as_mut().filter(|reply| reply.is_untouched()) else { return false };
        let Next::Wait { ms } = retry::after(failure, reply.attempts, m.ids.next_uuid().as_u64_pair().1)
        else {
            return false;
        };
        let (call, failed_attempt) = (reply.call, reply.attempts);
        reply.attempts += 1;
        reply.retry_at = Some(m.now + ms);
        m.effect(Effect::SetTimer { timer: Timer::Retry(call), at: m.now + ms });
        if ms > VISIBLE_WAIT_MS {
            self.note(
                m,
                StateChange {
                    state: StateWord::Waiting,
                    on: Some(WaitingOn::Time),
                    until: Some(m.now + ms),
                    reason: Some(failure.message.clone()),
                    by: None,
                    firing: None,
                },
            );
        }
        let (status, error) = (failure.status, failure.message.clone());
        self.live(
            m,
            LiveWhat::LlmRetry { call, failed_attempt, max_attempts: ATTEMPTS, wait_ms: ms, status, error },
        );
        true
    }

    /// The wait before the next attempt is over.
    pub(crate) fn retry_now(&mut self, m: &mut Making, call: u64) {
        let waiting = |reply: &&mut ReplyDraft| reply.call == call && reply.retry_at.is_some();
        if let Some(reply) = self.life.reply.as_mut().filter(waiting) {
            reply.retry_at = None;
            m.effect(Effect::AskModel { call, prompt: reply.prompt.clone() });
            if self.state.facts.run.as_ref().is_some_and(|run| run.waits_until.is_some()) {
                let state = StateWord::Working;
                self.note(
                    m,
                    StateChange { state, on: None, until: None, reason: None, by: None, firing: None },
                );
            }
        }
    }

    pub(crate) fn model_failed(&mut self, m: &mut Making, call: u64, failure: Failure) {
        if self.life.reply.as_ref().is_none_or(|reply| reply.call != call) {
            return;
        }
        if self.retry(m, &failure) {
            return;
        }
        let Some(run) = &self.state.facts.run else { return };
        let attempt = run.continued.saturating_add(1);
        let kept = self.keep_begun_text(m);
        let (call, begun) = (kept.call, kept.begun);
        let retryable = failure.kind.retryable();
        let outcome =
            if begun || failure.kind == FailureKind::Cut { LlmOutcome::Broken } else { LlmOutcome::Failed };
        self.note_end(m, kept, outcome);
        if self.has_calls() {
            // Whole calls came before the break: they are made, and the next request tells what came of them.
            self.life.stop_reason = "broken".to_owned();
            return self.go_on(m);
        }
        // A break inside thinking or inside the only call leaves no entry behind: the model is asked anew all the same.
        if retryable && begun && attempt <= CONTINUATIONS {
            let message = format!(
                "the reply broke off and is continued ({attempt} of {CONTINUATIONS}): {}",
                failure.message
            );
            self.alert(m, AlertLevel::Warn, AlertSource::Worker, message);
            return self.next_request(m, Some(Continues { call, attempt, reason: failure.message }));
        }
        let refused = failure.kind == FailureKind::Refused;
        if failure.kind != FailureKind::TooLong && !refused && self.fall_back(m, call, &failure) {
            return;
        }
        let Failure { message, retry_after_ms, .. } = failure;
        let code = if refused { ErrorCode::Refused } else { ErrorCode::ProviderError };
        self.fail_with(m, RunErrored { code, message, retryable, retry_after_ms });
    }

    /// Asks the next model of `model.fallback`, for the rest of this run. Gives whether there is one.
    fn fall_back(&mut self, m: &mut Making, call: u64, failure: &Failure) -> bool {
        let failed = self.route().map(name_of).unwrap_or_default();
        let next = self.life.boot.as_ref().and_then(|boot| boot.fallbacks.get(self.life.fallen));
        let Some(next) = next.map(name_of) else { return false };
        self.life.fallen += 1;
        let message = format!("{failed} cannot be had; the run goes on with {next}: {}", failure.message);
        self.alert(m, AlertLevel::Warn, AlertSource::Worker, message);
        let reason = format!("{failed} failed: {}", failure.message);
        self.next_request(m, Some(Continues { call, attempt: 0, reason }));
        true
    }
}

fn name_of(route: &Route) -> String {
    format!("{}/{}", route.provider, route.model)
}

/// What is left of a reply that has ended.
#[derive(Default)]
pub(crate) struct Kept {
    call: u64,
    /// Some block had begun, even if nothing of it could be kept.
    begun: bool,
    /// An entry holds some part of the reply.
    pub(crate) said: bool,
    /// An entry holds a text that is not blank.
    pub(crate) has_text: bool,
    /// What the model said in a block of refusal.
    pub(crate) refusal: Option<String>,
    /// Why the provider refused or filtered the reply, in its own words.
    pub(crate) stop_detail: Option<String>,
    attempts: u32,
    recording: Option<Arc<Blob>>,
}

impl Block {
    fn is_text(&self) -> bool {
        match self.kind {
            BlockKind::Text | BlockKind::Refusal => true,
            BlockKind::Thinking | BlockKind::ToolCall { .. } => false,
        }
    }

    /// `by`: the model that said it, as `provider/model`.
    fn item(self, end: BlockEnd, by: String) -> Item {
        match self.kind {
            BlockKind::Text => Item::assistant(self.text),
            BlockKind::Refusal => Item::Message {
                role: Role::Assistant,
                content: vec![Content::Refusal { text: self.text.into() }],
            },
            BlockKind::Thinking => Item::Reasoning {
                text: self.text.into(),
                summary: end.summary,
                signature: end.signature.map(Text::from),
                encrypted: end.encrypted.map(Text::from),
                by: Some(by),
            },
            BlockKind::ToolCall { name, .. } => {
                Item::ToolCall { call_id: self.id, name, arguments: self.text.into() }
            }
        }
    }
}
