//! Which turn answers a request.
//!
//! A function of the script, the prompt and the attempt: nothing is remembered between requests, so that a killed pod
//! goes on at the right turn. Every ended request (`llm_end`) has used one turn; one without its end has used none.
//! Invariant: the same prompt gets the same turn (`the_same_prompt_gets_the_same_turn`).

use minke_model::Prompt;
use minke_record::{Content, Item, Purpose, Role};

use super::script::{Script, Turn};

/// How often a request is made before it is given up (`07-providers`): an error that lasts longer ends the request,
/// a shorter one is followed by what comes next in the script.
const ATTEMPTS: u32 = 6;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Answer<'a> {
    Turn(&'a Turn),
    /// The turn's error, after its waits.
    Error(&'a Turn),
    /// The beginning of what was asked, so that a script need not count titles and compactions.
    Echo,
    NoTurnLeft,
}

pub(crate) fn choose<'a>(script: &'a Script, prompt: &Prompt, attempt: u32) -> Answer<'a> {
    match prompt.purpose {
        Purpose::Turn => {}
        Purpose::Compaction | Purpose::Title | Purpose::Other(_) => return Answer::Echo,
    }
    let mut hand = Hand::new(script);
    let asked = if script.turns.iter().any(|turn| turn.when.is_some()) { asked(prompt) } else { Vec::new() };
    for request in 0..ended(prompt) {
        let text = usize::try_from(request).ok().and_then(|at| asked.get(at)).map(String::as_str);
        hand.take_ended(text);
    }
    hand.answer(&last_text(prompt), attempt)
}

/// How many requests ended before this one: what the session says or, outside of one, the replies in the prompt.
pub(crate) fn ended(prompt: &Prompt) -> u64 {
    prompt.ended.unwrap_or_else(|| asked(prompt).len() as u64)
}

/// The turns of a script, and which of them are used up.
struct Hand<'a> {
    script: &'a Script,
    /// How often each turn was used.
    used: Vec<u32>,
    /// No turn before this one is both plain and unused.
    from: usize,
}

impl<'a> Hand<'a> {
    fn new(script: &'a Script) -> Hand<'a> {
        Hand { script, used: vec![0; script.turns.len()], from: 0 }
    }

    /// The first unused turn whose `when` is in the text, else the next unused one without a `when`.
    fn take(&mut self, text: Option<&str>) -> Option<&'a Turn> {
        let turns = &self.script.turns;
        let matching = text.and_then(|text| {
            let fits = |turn: &Turn| turn.when.as_ref().is_some_and(|when| text.contains(when.as_str()));
            (0..turns.len()).find(|&at| self.used[at] < turns[at].repeat && fits(&turns[at]))
        });
        let at = matching.or_else(|| self.next_plain())?;
        self.used[at] += 1;
        Some(&turns[at])
    }

    fn next_plain(&mut self) -> Option<usize> {
        let turns = &self.script.turns;
        let left = |used: &[u32], at: &usize| turns[*at].when.is_none() && used[*at] < turns[*at].repeat;
        let found = (self.from..turns.len()).find(|at| left(&self.used, at));
        let found = match found {
            None if self.script.again => {
                self.used.fill(0);
                (0..turns.len()).find(|at| left(&self.used, at))
            }
            found => found,
        };
        self.from = found.unwrap_or(turns.len());
        found
    }

    /// Uses up what one ended request has used: a turn and, if that turn only failed a few times, what came after it.
    fn take_ended(&mut self, text: Option<&str>) {
        let mut attempts = 0;
        while let Some(turn) = self.take(text) {
            let Some(error) = turn.error.as_ref().filter(|_| turn.only_fails()) else { return };
            attempts += error.times;
            if !error.kind().retryable() || attempts >= ATTEMPTS {
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

/// What each reply in the prompt answered: the last user or tool text before it. A reply is an unbroken row of what
/// the assistant said.
fn asked(prompt: &Prompt) -> Vec<String> {
    let mut texts = Vec::new();
    let mut last: Option<&Item> = None;
    let mut in_reply = false;
    for item in &prompt.items {
        if is_reply(item) {
            if !in_reply {
                texts.push(last.map(text_of).unwrap_or_default());
            }
            in_reply = true;
        } else {
            in_reply = false;
            last = Some(item);
        }
    }
    texts
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
