//! What comes from outside the pods by itself: time, the model, the hands.

use super::*;

impl Sim {
    pub(super) fn time_passes(&mut self, node: usize) -> Result<(), String> {
        self.now += 50 + self.chance.below(20_000) as u64;
        let now = self.now;
        let due = self.nodes[node].life.as_mut().and_then(|life| {
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
                self.nodes[node].ground.meet("a timer fired");
                self.feed(node, What::Timer(timer))
            }
            None => Ok(()),
        }
    }

    /// The model says the next piece of a reply, or fails.
    pub(super) fn model_speaks(&mut self, node: usize) -> Result<(), String> {
        let Some(call) =
            self.nodes[node].life.as_ref().and_then(|life| life.requests.keys().next_back().copied())
        else {
            return Ok(());
        };
        if !self.calm && self.chance.one_in(25) {
            return self.model_fails(node, call);
        }
        let speech = match self.speeches.remove(&(node, call)) {
            Some(speech) => speech,
            None => self.speech(),
        };
        let mut rest = speech.into_iter();
        let Some(event) = rest.next() else { return Ok(()) };
        if matches!(event, ModelEvent::Done { .. }) {
            if let Some(life) = &mut self.nodes[node].life {
                life.requests.remove(&call);
            }
        } else {
            self.speeches.insert((node, call), rest.collect());
        }
        self.note("model", node);
        self.feed(node, What::Model { call, event })
    }

    pub(super) fn model_fails(&mut self, node: usize, call: u64) -> Result<(), String> {
        self.speeches.remove(&(node, call));
        if let Some(life) = &mut self.nodes[node].life {
            life.requests.remove(&call);
        }
        let kind = *self
            .chance
            .pick(&[FailureKind::Cut, FailureKind::Transient, FailureKind::Permanent])
            .expect("there are ways to fail");
        self.nodes[node].ground.meet("the model failed");
        let failure =
            Failure { kind, message: "as it happens".to_owned(), status: None, retry_after_ms: None };
        self.feed(node, What::ModelFailed { call, failure })
    }

    pub(super) fn speech(&mut self) -> Vec<ModelEvent> {
        let mut events = Vec::new();
        let mut block = |index: u32, kind: BlockKind, text: String| {
            events.push(ModelEvent::BlockStart { index, kind });
            events.push(ModelEvent::Delta { index, text });
            events.push(ModelEvent::BlockStop { index, end: BlockEnd::default() });
        };
        block(0, BlockKind::Text, format!("words {}", self.chance.below(1_000)));
        let calls = if self.calm { 0 } else { self.chance.below(4) };
        for at in 0..calls {
            let (name, arguments) = methods::call(&mut self.chance);
            let id = format!("theirs_{at}");
            block(1 + u32::try_from(at).unwrap_or(0), BlockKind::ToolCall { id, name }, arguments);
        }
        events.push(ModelEvent::Usage(TokenUsage { input: 7, output: 3, ..TokenUsage::default() }));
        let stop = if calls > 0 { StopReason::ToolUse } else { StopReason::EndTurn };
        events.push(ModelEvent::Done { stop });
        events
    }

    /// A hand tells the pod what it found out, in any order.
    pub(super) fn hand_reports(&mut self, node: usize) -> Result<(), String> {
        let at = &mut self.nodes[node];
        let Some(life) = &mut at.life else { return Ok(()) };
        if !life.inbox.is_empty() {
            let pick = self.chance.below(life.inbox.len());
            let what = life.inbox.swap_remove(pick);
            return self.feed(node, what);
        }
        match at.ground.hands.release() {
            Some((call_id, ended)) => {
                at.ground.meet("a call ended");
                self.feed(node, What::CallEnded { call_id, ended })
            }
            None => Ok(()),
        }
    }
}
