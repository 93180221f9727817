//! What comes back: frames, replies, news of the connection, answers of the program around.

use minke_protocol::{
    Completions, DequeueReply, Event, ForkReply, Frame, ReadReply, ReplyData, RewindReply, RewindTargets,
};
use minke_record::InputSegment;

use super::over::Over;
use super::talk::{Talk, Wire};
use super::{App, Do, Focus, Link, PAUSING, Pending, RESUMING, STARTING};
use crate::composer::Draft;
use crate::outside::{Answer, Look, Question, Trouble};

impl App {
    pub(super) fn frame(&mut self, frame: &Frame) {
        if let Event::Error(refusal) = &frame.event
            && matches!(frame.place, minke_protocol::Place::One { .. })
        {
            self.say(refusal.message.clone());
            return;
        }
        if let Some(talk) = &mut self.talk {
            talk.frame(frame, self.now);
            match talk.is_running() {
                true => self.unsay(RESUMING),
                false => self.unsay(PAUSING),
            }
        }
    }

    pub(super) fn link(&mut self, link: Link) {
        match link {
            Link::Joined { session, name, draft } => {
                self.joining = None;
                let again = self.talk.as_ref().is_some_and(|talk| talk.session == session);
                if again {
                    if let Some(talk) = &mut self.talk {
                        talk.wire = Wire::Joined;
                        (talk.reading, talk.full) = (false, false);
                    }
                    self.unsay(STARTING);
                    self.say_again();
                } else {
                    self.move_in(Talk::new(session, name), draft);
                }
            }
            Link::Held(holder) => self.held(holder),
            Link::Failed(trouble) => {
                self.joining = None;
                self.bring_along();
                if let Some(talk) = self.talk.as_mut().filter(|talk| talk.wire == Wire::Again) {
                    talk.wire = Wire::Dead;
                }
                self.give_back_unsaid();
                if let Some(input) = self.launching.take() {
                    self.composer.put_back(input);
                }
                self.complain(trouble.to_string());
            }
            Link::Lost => {
                let now = self.now;
                let Some(talk) = &mut self.talk else { return };
                let session = talk.session;
                if talk.lost(now) {
                    self.say(STARTING);
                    self.doing.push(Do::Attach { session, again: true });
                } else {
                    self.give_back_unsaid();
                }
            }
        }
    }

    /// Another session: its own draft, and nothing of the one before.
    fn move_in(&mut self, talk: Talk, draft: Option<Draft>) {
        self.close_line();
        self.talk = Some(talk);
        self.launching = None;
        self.over = None;
        self.popup = None;
        self.noting = None;
        self.focus = Focus::Composer;
        self.pending.clear();
        let draft = draft.unwrap_or_default();
        // What was typed while it was being started is not lost.
        if self.composer.is_empty() || !draft.text.is_empty() {
            self.composer.set(draft.clone());
        }
        self.kept = draft;
        self.bring_along();
    }

    /// What the pod before did not confirm. It knows each input by its `op_id`, so nothing is done twice.
    fn say_again(&mut self) {
        let said = self.pending.iter().filter_map(|(token, pending)| match pending {
            Pending::Said { input, mode, op_id } => {
                Some(Do::Say { token: *token, input: input.clone(), mode: *mode, op_id: op_id.clone() })
            }
            _ => None,
        });
        let said: Vec<Do> = said.collect();
        self.doing.extend(said);
        self.pending.retain(|_, pending| matches!(pending, Pending::Said { .. }));
    }

    /// Nobody is there to take it: it is the person's again.
    fn give_back_unsaid(&mut self) {
        let said = |pending: &Pending| matches!(pending, Pending::Said { .. });
        let tokens: Vec<u64> =
            self.pending.iter().filter(|(_, pending)| said(pending)).map(|(token, _)| *token).collect();
        for token in tokens {
            if let Some(Pending::Said { input, .. }) = self.pending.remove(&token) {
                self.composer.put_back(input);
            }
        }
    }

    pub(super) fn reply(&mut self, token: u64, data: &ReplyData) {
        let Some(pending) = self.pending.remove(&token) else { return };
        if let ReplyData::Refused(refusal) = data {
            self.refused(pending, refusal);
            return;
        }
        match pending {
            Pending::Dequeue => self.came_back::<DequeueReply>(data, |reply| reply.segments),
            Pending::Rewind => {
                self.say("back there; what you said is in the composer");
                self.came_back::<RewindReply>(data, |reply| reply.input);
            }
            Pending::RewindTargets => {
                if let Some(targets) = self.read::<RewindTargets>(data) {
                    self.show_rewind(targets);
                }
            }
            Pending::Fork => {
                if let Some(reply) = self.read::<ForkReply>(data) {
                    self.join(reply.session);
                }
            }
            Pending::Older => self.page_came(data),
            Pending::Text(block) => self.text_came(block, data),
            Pending::Status => self.status_came(data),
            Pending::Completions { sigil, rest } => {
                if let Some(found) = self.read::<Completions>(data) {
                    self.completions(sigil, &rest, found);
                }
            }
            Pending::Gather(gathering) => {
                if let Some(page) = self.read::<ReadReply>(data) {
                    self.gathered(*gathering, &page);
                }
            }
            // It has come about before the answer came.
            Pending::Told(PAUSING) if !self.talk.as_ref().is_some_and(Talk::is_running) => {}
            Pending::Told(word) => self.say(word),
            Pending::Answer { ask, answer, there: true } => {
                if let Some(talk) = &mut self.talk {
                    talk.conversation.answered_there(ask, answer);
                }
            }
            Pending::Said { .. }
            | Pending::Answer { .. }
            | Pending::Pods
            | Pending::Threads { .. }
            | Pending::Models
            | Pending::FirstRun
            | Pending::Before
            | Pending::Asks
            | Pending::Look(_)
            | Pending::Local
            | Pending::Shown
            | Pending::Message { .. }
            | Pending::Answered { .. }
            | Pending::Changed => {}
        }
    }

    /// An input that is the person's again.
    fn came_back<T: for<'de> serde::Deserialize<'de>>(
        &mut self,
        data: &ReplyData,
        input: fn(T) -> Vec<InputSegment>,
    ) {
        if let Some(reply) = self.read::<T>(data) {
            self.composer.put_back(input(reply));
            self.focus = Focus::Composer;
        }
    }

    pub(super) fn told(&mut self, token: u64, result: Result<Answer, Trouble>) {
        let Some(pending) = self.pending.remove(&token) else { return };
        let answer = match result {
            Ok(answer) => answer,
            Err(trouble) => return self.came_to_nothing(pending, &trouble),
        };
        match (answer, pending) {
            (Answer::Pods(pods), _) => {
                let pods = self.homely_pods(pods);
                self.keep_chosen(|app| app.pods = pods);
                self.refresh_pods();
            }
            (Answer::Threads(mut threads), pending) => {
                threads.iter_mut().for_each(|thread| thread.cwd = self.homely(&thread.cwd));
                match pending {
                    Pending::Threads { words } => self.show_threads(threads, &words),
                    _ => self.keep_chosen(|app| app.threads = threads),
                }
            }
            (Answer::Completions(found), Pending::Completions { sigil, rest }) => {
                self.completions(sigil, &rest, found);
            }
            (Answer::Completions(_), _) => {}
            (Answer::Models(models), _) => self.show_models(models),
            (Answer::FirstRun(found), _) => self.found_first(found),
            (Answer::Asks { rows, unread }, _) => {
                self.show_asks(rows);
                self.show_unread(unread);
            }
            (Answer::Local(found), _) => self.show_local(found),
            (Answer::Look(look), _) => self.show_look(look),
            (Answer::Skills(skills), _) => self.show_skills(skills),
            (Answer::Text { title, lines }, _) => self.open_text(&title, lines),
            (Answer::Done(word), Pending::Answered { ask, answer }) => {
                self.say(word);
                self.is_answered(ask, answer);
            }
            (Answer::Forked(session), _) => self.join(session),
            (Answer::Before(items), _) => self.before_came(&items),
            (Answer::Done(word), pending) => {
                self.say(word);
                if matches!(pending, Pending::Changed) {
                    self.ask_list_again();
                }
            }
            (Answer::Reached { .. } | Answer::Held(_), _) => {}
        }
    }

    fn came_to_nothing(&mut self, pending: Pending, trouble: &Trouble) {
        match pending {
            // It is looked again in a moment, and told to whoever opens the questions.
            Pending::Asks if !matches!(self.over, Some(Over::Asks(_))) => return,
            Pending::Look(session) => {
                let (said, replied) = (String::new(), trouble.to_string());
                return self.show_look(Look { session, said, replied });
            }
            Pending::Message { session, name, input } => self.message_is_back(session, name, input),
            // It may have been answered elsewhere.
            Pending::Answered { .. } => self.ask_asks(true),
            _ => {}
        }
        self.complain(trouble.to_string());
    }

    /// The result of a method that was accepted.
    pub(super) fn read<T: for<'de> serde::Deserialize<'de>>(&mut self, data: &ReplyData) -> Option<T> {
        match data.result::<T>() {
            Ok(result) => result.ok(),
            Err(e) => {
                self.say(format!("the pod's reply cannot be read: {e} (it may be of another version)"));
                None
            }
        }
    }

    fn ask_list_again(&mut self) {
        let words = self.searched();
        self.ask(Question::Pods, Pending::Pods);
        let everywhere = !words.trim().is_empty();
        self.ask(Question::Threads { words: words.clone(), everywhere }, Pending::Threads { words });
    }
}
