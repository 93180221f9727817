//! External events: time, the model, tools.

use super::*;

impl Simulation {
    pub(super) fn advance_time(&mut self, node: usize) -> Result<(), String> {
        self.now += 50 + self.random.below(20_000) as u64;
        let now = self.now;
        let due = self.nodes[node].process.as_mut().and_then(|life| {
            let timer = life
                .timers
                .iter()
                .filter(|(_, at)| **at <= now)
                .min_by_key(|(_, at)| **at)
                .map(|(t, _)| *t)?;
            life.timers.remove(&timer);
            Some(timer)
        });
        match due {
            Some(timer) => {
                self.nodes[node].record.count_branch("a timer fired");
                self.feed_input(node, InputKind::Timer(timer))
            }
            None => Ok(()),
        }
    }

    /// Sends the next event of the model's reply, or fails the request.
    pub(super) fn send_model_event(&mut self, node: usize) -> Result<(), String> {
        let Some(call) =
            self.nodes[node].process.as_ref().and_then(|life| life.requests.keys().next_back().copied())
        else {
            return Ok(());
        };
        if !self.is_settling && self.random.one_in(25) {
            return self.fail_model(node, call);
        }
        let speech = match self.model_replies.remove(&(node, call)) {
            Some(speech) => speech,
            None => self.random_reply(),
        };
        let mut rest = speech.into_iter();
        let Some(event) = rest.next() else { return Ok(()) };
        if matches!(event, ModelEvent::Done { .. }) {
            if let Some(life) = &mut self.nodes[node].process {
                life.requests.remove(&call);
            }
        } else {
            self.model_replies.insert((node, call), rest.collect());
        }
        self.record_event("model", node);
        self.feed_input(node, InputKind::Model { call, event })
    }

    pub(super) fn fail_model(&mut self, node: usize, call: u64) -> Result<(), String> {
        self.model_replies.remove(&(node, call));
        if let Some(life) = &mut self.nodes[node].process {
            life.requests.remove(&call);
        }
        let kind = *self
            .random
            .pick(&[ModelErrorKind::Interrupted, ModelErrorKind::Transient, ModelErrorKind::Permanent])
            .expect("there are ways to fail");
        self.nodes[node].record.count_branch("the model failed");
        let failure =
            ModelError { kind, message: "simulated failure".to_owned(), status: None, retry_after_ms: None };
        self.feed_input(node, InputKind::ModelFailed { call, failure })
    }

    pub(super) fn random_reply(&mut self) -> Vec<ModelEvent> {
        let mut events = Vec::new();
        let mut block = |index: u32, kind: BlockKind, text: String| {
            events.push(ModelEvent::BlockStart { index, kind });
            events.push(ModelEvent::Delta { index, text });
            events.push(ModelEvent::BlockStop { index, end: BlockEnd::default() });
        };
        block(0, BlockKind::Text, format!("words {}", self.random.below(1_000)));
        let calls = if self.is_settling { 0 } else { self.random.below(4) };
        for at in 0..calls {
            let (name, arguments) = methods::random_call(&mut self.random);
            let id = format!("theirs_{at}");
            block(1 + u32::try_from(at).unwrap_or(0), BlockKind::ToolCall { id, name }, arguments);
        }
        events.push(ModelEvent::Usage(TokenUsage { input: 7, output: 3, ..TokenUsage::default() }));
        let stop = if calls > 0 { StopReason::ToolUse } else { StopReason::EndTurn };
        events.push(ModelEvent::Done { stop });
        events
    }

    /// Delivers a pending result in random order.
    pub(super) fn deliver_tool_result(&mut self, node: usize) -> Result<(), String> {
        let at = &mut self.nodes[node];
        let Some(life) = &mut at.process else { return Ok(()) };
        if !life.inbox.is_empty() {
            let pick = self.random.below(life.inbox.len());
            let what = life.inbox.swap_remove(pick);
            return self.feed_input(node, what);
        }
        match at.record.tools.release_call() {
            Some((call_id, ended)) => {
                at.record.count_branch("a call ended");
                self.feed_input(node, InputKind::CallEnded { call_id, ended })
            }
            None => Ok(()),
        }
    }
}
