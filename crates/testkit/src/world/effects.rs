//! The outputs of the world's pod: shown entries, replies and effects.

use super::*;

impl StoryWorld {
    pub(super) fn flush_outputs(&mut self) -> Result<(), StoryStop> {
        while let Some(first) = self.held_outputs.front() {
            if first.need.is_some_and(|need| self.synced.is_none_or(|synced| synced < need)) {
                return Ok(());
            }
            let Some(held) = self.held_outputs.pop_front() else { return Ok(()) };
            self.deliver_output(held)?;
        }
        Ok(())
    }

    pub(super) fn deliver_output(&mut self, held: HeldOutput) -> Result<(), StoryStop> {
        match held.out {
            WorldOutput::Entry { position, barrier } => {
                let safe = barrier && self.synced.is_some_and(|synced| synced >= position.seq);
                self.checker.add_shown(position, safe).map_err(StoryStop::Failed)
            }
            WorldOutput::Live(live) => {
                match live {
                    LiveEventKind::TextDelta { text } => self.seen_text.push_str(&text),
                    LiveEventKind::Alert { message, .. } => self.alerts.push(message),
                    _ => {}
                }
                Ok(())
            }
            WorldOutput::Reply(reply) => self.deliver_reply(reply, held.upto),
            WorldOutput::Effect(effect) => self.perform_effect(effect, held.upto),
        }
    }

    pub(super) fn deliver_reply(&mut self, reply: CommandReply, upto: Option<u64>) -> Result<(), StoryStop> {
        self.pass_point("before a reply")?;
        let run = match &reply.result {
            Ok(ReplyBody::Run(run)) => Some(*run),
            _ => None,
        };
        self.checker.check_acknowledged(upto, self.synced, run).map_err(StoryStop::Failed)?;
        self.add_transcript(|| format!("    reply: {}", crate::describe::describe_reply(&reply.result)));
        if let Some(to) = reply.to
            && self.replies.insert(to, reply.result).is_some()
        {
            return Err(StoryStop::Failed("an order was answered twice".to_owned()));
        }
        self.pass_point("after a reply")
    }

    pub(super) fn perform_effect(&mut self, effect: Effect, upto: Option<u64>) -> Result<(), StoryStop> {
        self.pass_point("before an effect")?;
        self.checker.check_effect(&effect, upto, self.synced).map_err(StoryStop::Failed)?;
        self.add_transcript(|| format!("    do: {}", crate::describe::describe_effect(&effect)));
        match effect {
            Effect::AskModel { call, prompt } => {
                self.requests.insert(call, prompt);
            }
            Effect::StopModel { call } => {
                self.drop_pending(
                    |waits| matches!(waits, Effect::AskModel { call: asked, .. } if *asked == call),
                );
                self.requests.remove(&call);
            }
            Effect::Prepare { call_id, tool, arguments } => {
                let prepared = self.tools.prepare_call(&tool, &self.resolve_text(&arguments));
                self.inbox.push_back(InputKind::Prepared { call_id, prepared: Box::new(prepared) });
            }
            Effect::RunCall { call_id, tool, arguments, .. } => {
                let arguments = self.resolve_text(&arguments);
                if let Some(ended) = self.tools.start_call(&call_id, &tool, &arguments) {
                    self.inbox.push_back(InputKind::CallEnded { call_id, ended });
                }
            }
            Effect::StopCall { call_id } => {
                self.drop_pending(
                    |waits| matches!(waits, Effect::RunCall { call_id: id, .. } if *id == call_id),
                );
                self.tools.stop_call(&call_id);
                self.inbox.retain(|what| !concerns_call(what, &call_id));
            }
            Effect::CheckFile { call_id, preview } => {
                self.file_checks += 1;
                let result = self.tools.check_file(&preview);
                self.inbox.push_back(InputKind::FileChecked { call_id, result });
            }
            Effect::Capture { run, when } => {
                self.inbox.push_back(InputKind::Captured { run, when, captured: Ok(Vec::new()) });
            }
            Effect::AskHooks { point, question } => {
                match crate::scripted::hooks::hook_verdict(&self.hooks, &point, &question) {
                    Some(said) => {
                        self.inbox.push_back(InputKind::HookReply { point, verdict: Box::new(said) })
                    }
                    None => self.hanging_hooks.push((point, *question)),
                }
            }
            Effect::Child(order) => self.inbox.extend(self.pods.run_command(order)),
            Effect::AddRule { rule } => {
                if !self.added_rules.contains(&rule) {
                    self.added_rules.push(rule);
                }
            }
            Effect::SetTimer { timer, at } => {
                self.timers.insert(timer, at);
            }
            Effect::ClearTimer { timer } => {
                self.timers.remove(&timer);
            }
            Effect::Exit => self.exit_cleanly(),
        }
        self.pass_point("after an effect")
    }

    /// Drops a pending effect that was stopped before its sync.
    pub(super) fn drop_pending(&mut self, stopped: impl Fn(&Effect) -> bool) {
        self.held_outputs.retain(|held| !matches!(&held.out, WorldOutput::Effect(effect) if stopped(effect)));
    }

    pub(super) fn resolve_text(&self, text: &Text) -> String {
        match text {
            Text::Inline(text) => text.clone(),
            Text::Blob(name) => {
                String::from_utf8_lossy(self.log.blob(&name.blob).unwrap_or_default()).into_owned()
            }
        }
    }

    pub(super) fn exit_cleanly(&mut self) {
        self.log.sync_bytes();
        self.drop_process();
        self.has_exited = true;
    }

    pub(super) fn drop_process(&mut self) {
        self.pod = None;
        self.inbox.clear();
        self.requests.clear();
        self.model_replies.clear();
        self.timers.clear();
        self.held_outputs.clear();
        self.hanging_hooks.clear();
        self.tools.drop_calls();
    }
}
