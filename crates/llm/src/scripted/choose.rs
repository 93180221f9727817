//! Which turn answers a request.
//!
//! A function of the script, the prompt and the attempt: nothing is remembered between requests, so that a killed pod
//! goes on at the right turn. Every ended request (`llm_end`) has used one turn; one without its end has used none.
//! Invariant: the same prompt gets the same turn (`the_same_prompt_gets_the_same_turn`).

use minke_model::Prompt;
use minke_record::{Content, Item, Purpose, Role};

use super::script::{Script, Turn};

/// Which attempt of a request this is, from 0, and how many a request has before it ends. An error that lasts as long
/// ends the request; after a shorter one the same request gets what comes next in the script.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    pub(crate) number: u32,
    pub(crate) of: u32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Answer<'a> {
    Turn(&'a Turn),
    /// The turn's error, after its waits.
    Error(&'a Turn),
    /// The beginning of what was asked, so that a script need not count titles and compactions.
    Echo,
    NoTurnLeft,
}

/// `pod`: the name of the pod that asks, if there is one.
pub(crate) fn choose<'a>(
    script: &'a Script,
    pod: Option<&str>,
    prompt: &Prompt,
    attempt: Attempt,
) -> Answer<'a> {
    let mut hand = Hand::new(script, pod, &prompt.purpose);
    let turn = prompt.purpose == Purpose::Turn;
    // What titles and compactions were asked with is not in the prompt.
    let asked =
        if turn && hand.turns.iter().any(|turn| turn.when.is_some()) { asked(prompt) } else { Vec::new() };
    for request in 0..ended(prompt) {
        let text = usize::try_from(request).ok().and_then(|at| asked.get(at)).map(String::as_str);
        hand.take_ended(text, attempt.of);
    }
    match hand.answer(&news(prompt), attempt.number) {
        Answer::NoTurnLeft if !turn => Answer::Echo,
        answer => answer,
    }
}

/// How many requests of this purpose ended before this one: what the session says or, outside of one, the replies in
/// the prompt.
pub(crate) fn ended(prompt: &Prompt) -> u64 {
    prompt.ended.unwrap_or_else(|| match prompt.purpose {
        Purpose::Turn => asked(prompt).len() as u64,
        Purpose::Compaction | Purpose::Title | Purpose::Other(_) => 0,
    })
}

/// The turns of a script for a pod and a purpose, and which of them are used up.
struct Hand<'a> {
    turns: Vec<&'a Turn>,
    /// Start over at the end.
    again: bool,
    /// How often each turn was used.
    used: Vec<u32>,
    /// No turn before this one is both plain and unused.
    from: usize,
}

impl<'a> Hand<'a> {
    fn new(script: &'a Script, pod: Option<&str>, purpose: &Purpose) -> Hand<'a> {
        let turns: Vec<&Turn> = script.turns_of(pod).iter().filter(|turn| turn.purpose == *purpose).collect();
        Hand { used: vec![0; turns.len()], turns, again: script.again, from: 0 }
    }

    /// The first unused turn whose `when` is in the text, else the next unused one without a `when`.
    fn take(&mut self, text: Option<&str>) -> Option<&'a Turn> {
        let matching = text.and_then(|text| {
            let fits = |turn: &Turn| turn.when.as_ref().is_some_and(|when| text.contains(when.as_str()));
            (0..self.turns.len()).find(|&at| self.used[at] < self.turns[at].repeat && fits(self.turns[at]))
        });
        let at = matching.or_else(|| self.next_plain())?;
        self.used[at] += 1;
        Some(self.turns[at])
    }

    fn next_plain(&mut self) -> Option<usize> {
        let turns = &self.turns;
        let left = |used: &[u32], at: &usize| turns[*at].when.is_none() && used[*at] < turns[*at].repeat;
        let found = (self.from..turns.len()).find(|at| left(&self.used, at));
        let found = match found {
            None if self.again => {
                self.used.fill(0);
                (0..turns.len()).find(|at| left(&self.used, at))
            }
            found => found,
        };
        self.from = found.unwrap_or(turns.len());
        found
    }

    /// Uses up what one ended request has used: a turn and, if that turn only failed a few times, what came after it.
    fn take_ended(&mut self, text: Option<&str>, of: u32) {
        let mut attempts: u32 = 0;
        while let Some(turn) = self.take(text) {
            let Some(error) = turn.error.as_ref().filter(|_| turn.only_fails()) else { return };
            attempts = attempts.saturating_add(error.times);
            if !error.kind().retryable() || attempts >= of {
                return;
            }
        }
    }

    fn answer(&mut self, text: &str, attempt: u32) -> Answer<'a> {
        let mut attempt = attempt;
        while let Some(turn) = self.take(Some(text)) {
            match &turn.error {
                None => return Answer::Turn(turn),
                Some(error) if attempt < error.times => return Answer::Error(turn),
                Some(_) if !turn.only_fails() => return Answer::Turn(turn),
                Some(error) => attempt -= error.times,
            }
        }
        Answer::NoTurnLeft
    }
}

/// What each reply in the prompt answered: the user and tool texts before it, behind the reply before. A reply is an
/// unbroken row of what the assistant said.
fn asked(prompt: &Prompt) -> Vec<String> {
    let mut texts = Vec::new();
    let mut new: Vec<String> = Vec::new();
    let mut in_reply = false;
    for item in &prompt.items {
        if is_reply(item) {
            if !in_reply {
                texts.push(std::mem::take(&mut new).join("\n"));
            }
            in_reply = true;
        } else {
            in_reply = false;
            new.push(text_of(item));
        }
    }
    texts
}

/// What is new since the last reply: a note may stand behind what a call gave.
fn news(prompt: &Prompt) -> String {
    let mut new: Vec<String> =
        prompt.items.iter().rev().take_while(|item| !is_reply(item)).map(|item| text_of(item)).collect();
    new.reverse();
    new.join("\n")
}

fn is_reply(item: &Item) -> bool {
    match item {
        Item::Message { role, .. } => *role == Role::Assistant,
        Item::Reasoning { .. } | Item::ToolCall { .. } => true,
        Item::ToolResult { .. } | Item::Unknown => false,
    }
}

/// The last user or tool text.
pub(crate) fn last_text(prompt: &Prompt) -> String {
    prompt.items.iter().rev().find(|item| !is_reply(item)).map(|item| text_of(item)).unwrap_or_default()
}

/// The text of an item as the script sees it; of a tool result its content or, without one, its summary.
pub(crate) fn text_of(item: &Item) -> String {
    match item {
        Item::Message { content, .. } => {
            let texts = content.iter().filter_map(|part| match part {
                Content::Text { text } | Content::Refusal { text } => Some(text.show()),
                Content::Image { .. } | Content::Unknown => None,
            });
            texts.collect::<Vec<_>>().join("\n")
        }
        Item::Reasoning { text, .. } => text.show().into_owned(),
        Item::ToolCall { arguments, .. } => arguments.show().into_owned(),
        Item::ToolResult { summary, content, .. } => {
            content.as_ref().map_or_else(|| summary.clone(), |text| text.show().into_owned())
        }
        Item::Unknown => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use minke_record::Route;

    use super::*;

    const SCRIPT: &str = "
        [[turn]]
        error = { status = 529, message = 'busy', times = 2 }
        [[turn]]
        text = 'a'
        [[turn]]
        error = { status = 500, message = 'again' }
        text = 'b'
        [[turn]]
        error = { status = 400, message = 'no' }
        [[turn]]
        text = 'c'";

    /// The number of the turn that an attempt gets, with `!` if it is the turn's error.
    fn asked_for(ended: u64, attempt: Attempt) -> String {
        let script = Script::parse("talk.toml", SCRIPT).unwrap();
        let route = Route { provider: "scripted".into(), model: "x".into(), scheme: "scripted".into() };
        let items = vec![Arc::new(Item::user("hi"))];
        let prompt = Prompt { ended: Some(ended), ..Prompt::new(route, items) };
        match choose(&script, None, &prompt, attempt) {
            Answer::Turn(turn) => turn.number.to_string(),
            Answer::Error(turn) => format!("{}!", turn.number),
            Answer::Echo => "echo".to_owned(),
            Answer::NoTurnLeft => "none".to_owned(),
        }
    }

    #[test]
    fn a_request_that_is_tried_again_goes_on_in_the_script() {
        let cases =
            [(0, 0, "1!"), (0, 1, "1!"), (0, 2, "2"), (1, 0, "3!"), (1, 1, "3"), (2, 0, "4!"), (3, 0, "5")];
        for (ended, number, wanted) in cases {
            assert_eq!(asked_for(ended, Attempt { number, of: 6 }), wanted, "{number} of request {ended}");
        }
        assert_eq!(asked_for(4, Attempt { number: 0, of: 6 }), "none");
    }

    #[test]
    fn a_request_that_is_tried_once_uses_one_turn() {
        for (ended, wanted) in [(0, "1!"), (1, "2"), (2, "3!"), (3, "4!"), (4, "5"), (5, "none")] {
            assert_eq!(asked_for(ended, Attempt { number: 0, of: 1 }), wanted, "request {ended}");
        }
    }

    #[test]
    fn a_note_behind_what_was_asked_does_not_hide_it() {
        let script = "[[turn]]\nrepeat = 2\ntext = 'plain'\n[[turn]]\nwhen = 'once more'\ntext = 'again'";
        let script = Script::parse("talk.toml", script).unwrap();
        let route = Route { provider: "scripted".into(), model: "x".into(), scheme: "scripted".into() };
        let chosen = |texts: &[&str]| {
            let items = texts.iter().map(|text| match text.strip_prefix("said: ") {
                Some(said) => Arc::new(Item::assistant(said)),
                None => Arc::new(Item::user(*text)),
            });
            let prompt = Prompt::new(route.clone(), items.collect());
            match choose(&script, None, &prompt, Attempt { number: 0, of: 1 }) {
                Answer::Turn(turn) => turn.number,
                _ => 0,
            }
        };
        assert_eq!(chosen(&["once more, please", "a note"]), 2);
        assert_eq!(chosen(&["go", "said: plain", "a note"]), 1);
        assert_eq!(
            chosen(&["once more", "said: again", "a note"]),
            1,
            "what was answered is not asked again"
        );
        assert_eq!(chosen(&["go", "said: plain", "once more", "a note"]), 2);
    }
}
