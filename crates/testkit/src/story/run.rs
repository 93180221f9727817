//! Runs a story: each line acts on the scripted world or is an assertion about it.
//!
//! There is a strict mode, and a tolerant mode after a kill (an unacknowledged command is sent again, an
//! interrupted run is resumed, a lost reply is repeated). Elsewhere: the language (`story`), the kills
//! (`kill_everywhere`).

use std::collections::BTreeMap;

use minke_model::{BlockEnd, BlockKind, ModelError, ModelErrorKind, ModelEvent, StopReason, TokenUsage};
use minke_pod::{CallEnd, InputKind, PodCommand, PodPhase, ReplyId, RunMode};
use minke_record::{Actor, EndResult, Item, Kind, Role, RunResult};

use crate::describe;
use crate::memory_log::{DeathKind, FullDisk};
use crate::story::{DiskAction, LineAction, ReplyPiece, Story, StoryInputMode, StoryLine};
use crate::world::{StoryStop, StoryWorld, SyncTiming};

/// Maximum number of actions to bring a killed run to the position of the unkilled one.
const MAX_PUSHES: usize = 12;
/// The model's reply in a killed run if the story has none.
pub(crate) const CLOSING_TEXT: &str = "(closing)";

/// A running story.
#[derive(Debug)]
pub(crate) struct StoryRun<'a> {
    pub(crate) story: &'a Story,
    pub(crate) world: StoryWorld,
    /// The position of the pod after each line.
    pub(crate) positions: Vec<PodPosition>,
    /// The reply to the newest command.
    pub(crate) last_reply: Option<ReplyId>,
    /// `log` lines have checked all entries before this one.
    pub(crate) checked_seq: u64,
    /// A kill has happened; assertions are skipped.
    pub(crate) was_killed: bool,
    /// The context differs from the unkilled run.
    pub(crate) context_differs: bool,
    /// The requests that each model line has answered.
    answered_requests: BTreeMap<usize, Vec<u64>>,
    /// The command of the current line, if it was sent.
    sent_reply: Option<ReplyId>,
    /// The newest model line in this process.
    last_model_line: Option<usize>,
}

/// The position of the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PodPosition {
    /// `None`: no pod runs.
    pub(crate) phase: Option<PodPhase>,
    pub(crate) has_request: bool,
    /// The newest model line in this process.
    pub(crate) last_model_line: Option<usize>,
}

impl<'a> StoryRun<'a> {
    pub(crate) fn new(story: &'a Story, sync_when: SyncTiming) -> StoryRun<'a> {
        StoryRun {
            story,
            world: StoryWorld::new(story.scene.clone(), sync_when),
            positions: Vec::new(),
            last_reply: None,
            checked_seq: 0,
            was_killed: false,
            context_differs: false,
            answered_requests: BTreeMap::new(),
            sent_reply: None,
            last_model_line: None,
        }
    }

    /// Boots the pod and runs all lines strictly.
    pub(crate) fn run_all(&mut self) -> Result<(), StoryStop> {
        self.world.boot_pod()?;
        self.checked_seq = self.world.current_state().next_seq;
        for at in 0..self.story.lines.len() {
            self.run_line(at)?;
        }
        Ok(())
    }

    pub(crate) fn run_line(&mut self, at: usize) -> Result<(), StoryStop> {
        let story = self.story;
        let line = &story.lines[at];
        self.world.add_transcript(|| format!("{:>3} {}", line.number, line.text));
        self.sent_reply = None;
        self.run_action(at, line)?;
        self.world.settle_inputs()?;
        match &line.action {
            LineAction::Model(_) => self.last_model_line = Some(at),
            LineAction::Crash { .. }
            | LineAction::Boot
            | LineAction::Fork
            | LineAction::Signal
            | LineAction::Clock { .. } => self.last_model_line = None,
            _ => {}
        }
        if !self.was_killed {
            let reached = self.current_position();
            self.positions.push(reached);
        }
        Ok(())
    }

    pub(crate) fn current_position(&self) -> PodPosition {
        PodPosition {
            phase: self.world.pod.as_ref().map(minke_pod::Pod::phase),
            has_request: !self.world.requests.is_empty(),
            last_model_line: self.last_model_line,
        }
    }

    fn run_action(&mut self, at: usize, line: &StoryLine) -> Result<(), StoryStop> {
        match &line.action {
            LineAction::User { mode, op, text } => {
                let op_id = op.clone().unwrap_or_else(|| format!("line {}", line.number));
                let input = crate::scene::parse_input(text);
                self.send_command(PodCommand::Run {
                    attached: crate::scene::read_references(&input),
                    input,
                    mode: to_run_mode(*mode),
                    op_id: Some(op_id),
                })
            }
            LineAction::Model(pieces) => self.run_model_line(at, pieces),
            LineAction::Person(what) => self.run_person_line(what),
            LineAction::Notify { wake, text } => {
                self.send_command(PodCommand::Notify { message: text.clone(), auto_run: *wake })
            }
            LineAction::Child { number, what } => {
                let event = crate::scene::parse_report(what).map_err(StoryStop::Failed)?;
                let from = Some(crate::scene::CHILD);
                self.send_command_as(
                    Actor::from_pod(crate::scene::CHILD),
                    PodCommand::PodEvent { event, from, from_seq: Some(*number) },
                )
            }
            LineAction::Pod { name, what } => match self.world.pods.run_line(name, what) {
                Ok(heard) => self.world.feed_all(heard),
                Err(_) if self.was_killed => Ok(()),
                Err(why) => Err(StoryStop::Failed(why)),
            },
            LineAction::Parent { away: true } => {
                self.world.pods.is_parent_away = true;
                Ok(())
            }
            LineAction::Parent { away: false } => {
                let state = self.world.current_state().clone();
                let heard = self.world.pods.restore_parent(&state);
                self.world.feed_all(heard)
            }
            LineAction::ToolsHold => {
                self.world.tools.hold_calls = true;
                Ok(())
            }
            LineAction::ToolsGo => {
                self.world.tools.hold_calls = false;
                while self.end_held_call(None)? {}
                Ok(())
            }
            LineAction::Tool(how) => {
                let end = parse_call_end(how).map_err(StoryStop::Failed)?;
                if self.end_held_call(end)? || self.was_killed {
                    return Ok(());
                }
                Err(StoryStop::Failed("no call is held".to_owned()))
            }
            LineAction::Hook { who, what } => self.world.set_hook_reply(who, what),
            LineAction::Edit { path, text } => {
                self.world.tools.files.insert(path.clone(), text.clone());
                Ok(())
            }
            LineAction::Policy(what) => {
                let rules = crate::scripted::hooks::parse_rules(what).map_err(StoryStop::Failed)?;
                self.world.rules = rules.clone();
                self.feed_live_pod(InputKind::RulesChanged(Box::new(rules)))
            }
            LineAction::Clock { seconds } => self.world.advance_clock(seconds * 1_000),
            LineAction::Clients(count) => self.feed_live_pod(InputKind::ClientCount(*count)),
            LineAction::OwnerGone => self.feed_live_pod(InputKind::OwnerDisconnected),
            LineAction::Signal => self.feed_live_pod(InputKind::Signal),
            LineAction::Crash { power } => {
                if self.world.pod.is_some() {
                    self.world.kill_process(if *power { DeathKind::PowerLost } else { DeathKind::Kill })?;
                }
                self.world.boot_pod()
            }
            LineAction::Boot if self.world.pod.is_some() && self.was_killed => Ok(()),
            LineAction::Boot if self.world.pod.is_some() => {
                Err(StoryStop::Failed("the pod is still running".to_owned()))
            }
            LineAction::Boot => self.world.boot_pod(),
            LineAction::Disk(word) => {
                self.world.log.set_full(match word {
                    DiskAction::Full => Some(FullDisk::ExceptBallast),
                    DiskAction::CompletelyFull => Some(FullDisk::Completely),
                    DiskAction::Restored => None,
                });
                if *word == DiskAction::Restored {
                    self.feed_live_pod(InputKind::StorageRestored)
                } else {
                    Ok(())
                }
            }
            LineAction::Visit(what) => self.run_offline_line(what),
            LineAction::Fork => self.world.fork_session(),
            LineAction::Assertion(must) => {
                if self.was_killed {
                    Ok(())
                } else {
                    self.check_assertion(must)
                }
            }
        }
    }

    /// Feeds an input to a running pod; after a kill there may be none.
    fn feed_live_pod(&mut self, what: InputKind) -> Result<(), StoryStop> {
        if self.world.pod.is_none() && self.was_killed {
            return Ok(());
        }
        self.world.feed_input(what)?;
        self.world.settle_inputs()
    }

    pub(crate) fn send_command(&mut self, command: PodCommand) -> Result<(), StoryStop> {
        self.send_command_as(Actor::from_person("story"), command)
    }

    fn send_command_as(&mut self, from: Actor, order: PodCommand) -> Result<(), StoryStop> {
        if self.world.pod.is_none() {
            if self.was_killed {
                return Ok(());
            }
            return Err(StoryStop::Failed("no pod is running; use `boot` or `visit >`".to_owned()));
        }
        let reply = self.world.next_reply();
        self.sent_reply = Some(reply);
        self.last_reply = Some(reply);
        self.world.send_command(from, order).map(|_| ())
    }

    fn end_held_call(&mut self, end: Option<CallEnd>) -> Result<bool, StoryStop> {
        let Some((call_id, natural)) = self.world.tools.release_call() else { return Ok(false) };
        self.world.feed_input(InputKind::CallEnded { call_id, ended: end.unwrap_or(natural) })?;
        self.world.settle_inputs()?;
        Ok(true)
    }

    fn run_model_line(&mut self, at: usize, pieces: &[ReplyPiece]) -> Result<(), StoryStop> {
        if self.was_killed && self.is_line_answered(at) {
            return Ok(());
        }
        if self.was_killed && self.world.requests.is_empty() {
            self.resume_if_interrupted()?;
        }
        let Some(call) = self.world.requests.last_key_value().map(|(call, _)| *call) else {
            if self.was_killed {
                return Ok(());
            }
            return Err(StoryStop::Failed("no model request is open".to_owned()));
        };
        self.answered_requests.entry(at).or_default().push(call);
        self.send_reply(call, pieces)
    }

    /// Returns whether the log contains the end of a request that the line answered.
    fn is_line_answered(&self, at: usize) -> bool {
        let Some(calls) = self.answered_requests.get(&at) else { return false };
        self.world.log.entries().iter().any(|entry| match &entry.kind {
            Kind::LlmEnd(end) => calls.contains(&end.call),
            _ => false,
        })
    }

    /// Sends the pieces of a reply, one stream event at a time.
    fn send_reply(&mut self, call: u64, pieces: &[ReplyPiece]) -> Result<(), StoryStop> {
        let mut open = false;
        let mut calls = false;
        for (index, piece) in (0u32..).zip(pieces) {
            let (kind, text) = match piece {
                ReplyPiece::Text(text) => (BlockKind::Text, text),
                ReplyPiece::BeginText(text) => {
                    open = true;
                    (BlockKind::Text, text)
                }
                ReplyPiece::Think(text) => (BlockKind::Thinking, text),
                ReplyPiece::BeginThink(text) => {
                    open = true;
                    (BlockKind::Thinking, text)
                }
                ReplyPiece::Call { tool, arguments } | ReplyPiece::BeginCall { tool, arguments } => {
                    open |= matches!(piece, ReplyPiece::BeginCall { .. });
                    calls = true;
                    (BlockKind::ToolCall { id: format!("theirs_{index}"), name: tool.clone() }, arguments)
                }
                ReplyPiece::Cut => {
                    return self.fail_request(call, ModelErrorKind::Interrupted, "the stream ended");
                }
                ReplyPiece::Busy(why) => return self.fail_request(call, ModelErrorKind::Transient, why),
                ReplyPiece::BusyFor { seconds, why } => {
                    let busy = ModelError {
                        kind: ModelErrorKind::Transient,
                        message: why.clone(),
                        status: Some(429),
                        retry_after_ms: Some(seconds * 1_000),
                    };
                    return self.fail_request_with(call, busy);
                }
                ReplyPiece::UnknownBlock { kind, text } => {
                    let (kind, text) = (kind.clone(), text.clone());
                    self.send_model_event(call, ModelEvent::Unknown { kind, text })?;
                    continue;
                }
                ReplyPiece::Refused(why) => return self.fail_request(call, ModelErrorKind::Refused, why),
                ReplyPiece::Permanent(why) => return self.fail_request(call, ModelErrorKind::Permanent, why),
                ReplyPiece::Stop(reason) => {
                    return self.send_model_event(call, ModelEvent::Done { stop: reason.as_str().into() });
                }
            };
            self.send_model_event(call, ModelEvent::BlockStart { index, kind })?;
            for part in split_in_two(text) {
                self.send_model_event(call, ModelEvent::Delta { index, text: part })?;
            }
            if !matches!(
                piece,
                ReplyPiece::BeginText(_) | ReplyPiece::BeginThink(_) | ReplyPiece::BeginCall { .. }
            ) {
                self.send_model_event(call, ModelEvent::BlockStop { index, end: BlockEnd::default() })?;
            }
        }
        if open {
            return Ok(());
        }
        let usage = TokenUsage { input: 10, output: 5, ..TokenUsage::default() };
        self.send_model_event(call, ModelEvent::Usage(usage))?;
        let stop = if calls { StopReason::ToolUse } else { StopReason::EndTurn };
        self.send_model_event(call, ModelEvent::Done { stop })
    }

    fn send_model_event(&mut self, call: u64, event: ModelEvent) -> Result<(), StoryStop> {
        if !self.world.requests.contains_key(&call) {
            return Ok(()); // the request was dropped
        }
        if matches!(event, ModelEvent::Done { .. }) {
            // Recordings contain decoded events, and every decoder closes open blocks before `Done`.
            for index in self.world.open_blocks(call) {
                self.send_model_event(call, ModelEvent::BlockStop { index, end: BlockEnd::default() })?;
            }
        }
        self.world.record_event(call, Ok(&event))?;
        if matches!(event, ModelEvent::Done { .. }) {
            self.world.requests.remove(&call);
        }
        self.world.feed_input(InputKind::Model { call, event })?;
        self.world.settle_inputs()
    }

    fn fail_request(&mut self, call: u64, kind: ModelErrorKind, why: &str) -> Result<(), StoryStop> {
        self.fail_request_with(
            call,
            ModelError { kind, message: why.to_owned(), status: None, retry_after_ms: None },
        )
    }

    fn fail_request_with(&mut self, call: u64, failure: ModelError) -> Result<(), StoryStop> {
        if self.world.requests.remove(&call).is_none() {
            return Ok(());
        }
        self.world.record_event(call, Err(&failure))?;
        self.world.feed_input(InputKind::ModelFailed { call, failure })?;
        self.world.settle_inputs()
    }

    /// Recovers from a crash in line `at` after a new process has booted: brings the pod to its position
    /// before the line, repeats the line if necessary, and brings the pod to the unkilled run's position
    /// after it.
    pub(crate) fn recover_line(&mut self, at: usize, reached: &[PodPosition]) -> Result<(), StoryStop> {
        let story = self.story;
        let line = &story.lines[at];
        // A crash line is equivalent to this crash.
        let died_anyway = matches!(line.action, LineAction::Crash { .. } | LineAction::Boot);
        if let Some(before) = at.checked_sub(1).map(|before| reached[before])
            && before.phase.is_some()
            && !died_anyway
        {
            self.advance_to(before)?;
        }
        self.world.add_transcript(|| format!("{:>3} {} (again, if it was lost)", line.number, line.text));
        if self.needs_repeat(line) {
            self.sent_reply = None;
            self.context_differs |= matches!(&line.action, LineAction::Notify { .. });
            self.run_action(at, line)?;
        }
        self.advance_to(reached[at])
    }

    fn needs_repeat(&self, line: &StoryLine) -> bool {
        match &line.action {
            LineAction::User { .. }
            | LineAction::Person(_)
            | LineAction::Notify { .. }
            | LineAction::Child { .. } => {
                !self.sent_reply.is_some_and(|reply| self.world.replies.contains_key(&reply))
            }
            LineAction::Clock { .. }
            | LineAction::Hook { .. }
            | LineAction::Policy(_)
            | LineAction::Model(_)
            | LineAction::ToolsHold
            | LineAction::ToolsGo
            | LineAction::Clients(_)
            | LineAction::OwnerGone
            | LineAction::Signal
            | LineAction::Disk(_) => true,
            // A held call died with the process.
            LineAction::Tool(_) | LineAction::Crash { .. } | LineAction::Boot | LineAction::Assertion(_) => {
                false
            }
            // Other actors did it, so it is still in effect.
            LineAction::Visit(_)
            | LineAction::Fork
            | LineAction::Edit { .. }
            | LineAction::Pod { .. }
            | LineAction::Parent { .. } => false,
        }
    }

    /// Brings a killed run to the position of the unkilled one.
    pub(crate) fn advance_to(&mut self, then: PodPosition) -> Result<(), StoryStop> {
        for _ in 0..MAX_PUSHES {
            self.world.settle_inputs()?;
            let now = self.current_position();
            if now.phase.is_none() {
                return Ok(());
            }
            if then.phase.is_some() && self.repeat_reply(then.last_model_line)? {
                continue;
            }
            if (now.phase, now.has_request) == (then.phase, then.has_request) {
                return Ok(());
            }
            if then.phase.is_none() {
                self.feed_live_pod(InputKind::Signal)?;
                continue;
            }
            let wants_rest = matches!(then.phase, Some(PodPhase::Idle) | Some(PodPhase::Paused) | None);
            let stays_paused = then.phase == Some(PodPhase::Paused);
            if now.phase == Some(PodPhase::Paused) && !stays_paused && self.resume_if_interrupted()? {
                continue;
            }
            if wants_rest && now.has_request {
                self.send_closing_reply()?;
            } else if !(wants_rest && self.end_held_call(None)?) {
                return Ok(());
            }
        }
        Err(StoryStop::Failed(format!("the pod does not settle in {MAX_PUSHES} actions after a kill")))
    }

    /// Repeats the newest reply if the crash has lost it.
    fn repeat_reply(&mut self, said: Option<usize>) -> Result<bool, StoryStop> {
        let Some(call) = self.world.requests.last_key_value().map(|(call, _)| *call) else {
            return Ok(false);
        };
        let Some((line, calls)) = said.and_then(|line| self.answered_requests.get_key_value(&line)) else {
            return Ok(false);
        };
        let line = *line;
        if calls.contains(&call) || self.is_line_answered(line) {
            return Ok(false);
        }
        let story = self.story;
        let LineAction::Model(pieces) = &story.lines[line].action else { return Ok(false) };
        self.answered_requests.entry(line).or_default().push(call);
        self.send_reply(call, pieces)?;
        Ok(true)
    }

    /// Answers a request that the story does not contain.
    fn send_closing_reply(&mut self) -> Result<(), StoryStop> {
        self.context_differs = true;
        let Some(call) = self.world.requests.last_key_value().map(|(call, _)| *call) else { return Ok(()) };
        self.send_reply(call, &[ReplyPiece::Text(CLOSING_TEXT.to_owned())])
    }

    /// Resumes an interrupted run like a user.
    fn resume_if_interrupted(&mut self) -> Result<bool, StoryStop> {
        if self.world.pod.is_none() {
            return Ok(false);
        }
        let interrupted = self
            .world
            .current_state()
            .resumable_run()
            .is_some_and(|last| last.result == EndResult::Completed(RunResult::Interrupted));
        if interrupted {
            // The model gets an order to continue, which the unkilled run does not contain.
            self.context_differs |= self.world.current_state().context.last().is_some_and(is_assistant_item);
            let reply =
                self.world.send_command(Actor::from_person("story"), PodCommand::Resume { detail: None })?;
            // The crash may have used up the budget.
            if matches!(self.world.replies.get(&reply), Some(Err(_))) {
                self.context_differs = true;
                return Ok(false);
            }
        }
        Ok(interrupted)
    }

    pub(crate) fn last_reply_text(&self) -> Option<String> {
        let reply = self.world.replies.get(&self.last_reply?)?;
        Some(describe::describe_reply(reply))
    }
}

fn is_assistant_item(item: &Item) -> bool {
    matches!(item, Item::Message { role: Role::Assistant, .. } | Item::Reasoning { .. })
}

fn to_run_mode(mode: StoryInputMode) -> RunMode {
    match mode {
        StoryInputMode::Reject => RunMode::Reject,
        StoryInputMode::Queue => RunMode::Queue,
        StoryInputMode::Steer => RunMode::Steer,
        StoryInputMode::Interrupt => RunMode::Interrupt,
    }
}

/// Splits a text in two, so that a block has more than one delta.
fn split_in_two(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let (a, b) = chars.split_at(chars.len() / 2);
    [a, b].iter().filter(|part| !part.is_empty()).map(|part| part.iter().collect()).collect()
}

fn parse_call_end(how: &str) -> Result<Option<CallEnd>, String> {
    if how == "done" {
        return Ok(None);
    }
    if let Some(text) = how.strip_prefix("done ") {
        return Ok(Some(CallEnd::done(text, None)));
    }
    if let Some(why) = how.strip_prefix("failed") {
        return Ok(Some(CallEnd::Failed { message: why.trim().to_owned() }));
    }
    if how == "timed out" {
        return Ok(Some(CallEnd::TimedOut { after_ms: 1_000, output: None }));
    }
    Err(format!("a call does not end as `{how}`"))
}
