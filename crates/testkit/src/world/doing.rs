//! What leaves the world's pod: entries shown, replies given, effects carried out, each when its time has come.

use super::*;

impl World {
    pub(super) fn flush(&mut self) -> Result<(), Stop> {
        while let Some(first) = self.held.front() {
            if first.need.is_some_and(|need| self.synced.is_none_or(|synced| synced < need)) {
                return Ok(());
            }
            let Some(held) = self.held.pop_front() else { return Ok(()) };
            self.deliver(held)?;
        }
        Ok(())
    }

    pub(super) fn deliver(&mut self, held: Held) -> Result<(), Stop> {
        match held.out {
            Out::Entry { position, barrier } => {
                let safe = barrier && self.synced.is_some_and(|synced| synced >= position.seq);
                self.check.showed(position, safe).map_err(Stop::Wrong)
            }
            Out::Live(live) => {
                match live {
                    LiveWhat::TextDelta { text } => self.seen_text.push_str(&text),
                    LiveWhat::Alert { message, .. } => self.alerts.push(message),
                    _ => {}
                }
                Ok(())
            }
            Out::Reply(reply) => self.reply(reply, held.upto),
            Out::Effect(effect) => self.perform(effect, held.upto),
        }
    }

    pub(super) fn reply(&mut self, reply: Reply, upto: Option<u64>) -> Result<(), Stop> {
        self.point("before a reply")?;
        let run = match &reply.result {
            Ok(Given::Run(run)) => Some(*run),
            _ => None,
        };
        self.check.acknowledged(upto, self.synced, run).map_err(Stop::Wrong)?;
        self.say(|| format!("    reply: {}", crate::show::reply(&reply.result)));
        if let Some(to) = reply.to
            && self.replies.insert(to, reply.result).is_some()
        {
            return Err(Stop::Wrong("an order was answered twice".to_owned()));
        }
        self.point("after a reply")
    }

    pub(super) fn perform(&mut self, effect: Effect, upto: Option<u64>) -> Result<(), Stop> {
        self.point("before an effect")?;
        self.check.starts(&effect, upto, self.synced).map_err(Stop::Wrong)?;
        self.say(|| format!("    do: {}", crate::show::effect(&effect)));
        match effect {
            Effect::AskModel { call, prompt } => {
                self.requests.insert(call, prompt);
            }
            Effect::StopModel { call } => {
                self.forget(|waits| matches!(waits, Effect::AskModel { call: asked, .. } if *asked == call));
                self.requests.remove(&call);
            }
            Effect::Prepare { call_id, tool, arguments } => {
                let prepared = self.hands.prepare(&tool, &self.text(&arguments));
                self.inbox.push_back(What::Prepared { call_id, prepared: Box::new(prepared) });
            }
            Effect::RunCall { call_id, tool, arguments, .. } => {
                let arguments = self.text(&arguments);
                if let Some(ended) = self.hands.start(&call_id, &tool, &arguments) {
                    self.inbox.push_back(What::CallEnded { call_id, ended });
                }
            }
            Effect::StopCall { call_id } => {
                self.forget(|waits| matches!(waits, Effect::RunCall { call_id: id, .. } if *id == call_id));
                self.hands.stop(&call_id);
                self.inbox.retain(|what| !is_about(what, &call_id));
            }
            Effect::CheckFile { call_id, preview } => {
                self.file_checks += 1;
                let found = self.hands.check_file(&preview);
                self.inbox.push_back(What::FileChecked { call_id, found });
            }
            Effect::Capture { run, when } => {
                self.inbox.push_back(What::Captured { run, when, captured: Ok(Vec::new()) });
            }
            Effect::AskHooks { point, question } => {
                match crate::scripted::said(&self.hooks, &point, &question) {
                    Some(said) => self.inbox.push_back(What::HooksSaid { point, said: Box::new(said) }),
                    None => self.hanging.push((point, *question)),
                }
            }
            Effect::Tree(order) => self.inbox.extend(self.kin.order(order)),
            Effect::AddRule { rule } => {
                if !self.added.contains(&rule) {
                    self.added.push(rule);
                }
            }
            Effect::SetTimer { timer, at } => {
                self.timers.insert(timer, at);
            }
            Effect::ClearTimer { timer } => {
                self.timers.remove(&timer);
            }
            Effect::Exit => self.leave_in_good_order(),
        }
        self.point("after an effect")
    }

    /// What waits for a sync and is stopped before never happens.
    pub(super) fn forget(&mut self, stopped: impl Fn(&Effect) -> bool) {
        self.held.retain(|held| !matches!(&held.out, Out::Effect(effect) if stopped(effect)));
    }

    pub(super) fn text(&self, text: &Text) -> String {
        match text {
            Text::Here(text) => text.clone(),
            Text::Blob(name) => {
                String::from_utf8_lossy(self.log.blob(&name.blob).unwrap_or_default()).into_owned()
            }
        }
    }

    pub(super) fn leave_in_good_order(&mut self) {
        self.log.sync();
        self.lose_process();
        self.gone = true;
    }

    pub(super) fn lose_process(&mut self) {
        self.pod = None;
        self.inbox.clear();
        self.requests.clear();
        self.said.clear();
        self.timers.clear();
        self.held.clear();
        self.hanging.clear();
        self.hands.die();
    }
}
