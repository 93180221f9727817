//! Selects the turn that answers a request.
//!
//! A pure function of the script, the prompt and the attempt: no state survives between requests, so a
//! restarted pod continues at the right turn. Every ended request (`llm_end`) has used one turn; an
//! interrupted one has used none. Invariant: the same prompt gets the same turn
//! (`the_same_prompt_gets_the_same_turn`).

use minke_model::Prompt;
use minke_record::{Content, Item, Purpose, Role};

use super::script::{Script, ScriptTurn};

/// The attempt of a request, from 0, and the number of attempts after which it ends. An error that lasts for
/// all of them ends the request; after a shorter one the request gets the next turn of the script.
#[derive(Debug, Clone, Copy)]
pub struct RequestAttempt {
    pub number: u32,
    pub total: u32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ScriptAnswer<'a> {
    Turn(&'a ScriptTurn),
    /// The turn's error, after its delays.
    Error(&'a ScriptTurn),
    /// The beginning of the input, so that a script need not contain turns for titles and compactions.
    Echo,
    OutOfTurns,
}

/// `pod` is the name of the requesting pod.
pub(crate) fn select_answer<'a>(
    script: &'a Script,
    pod: Option<&str>,
    prompt: &Prompt,
    attempt: RequestAttempt,
) -> ScriptAnswer<'a> {
    let mut cursor = TurnCursor::new(script, pod, &prompt.purpose);
    let turn = prompt.purpose == Purpose::Turn;
    // The input of titles and compactions is not in the prompt.
    let replied = if turn && cursor.turns.iter().any(|turn| turn.when.is_some()) {
        replied_texts(prompt)
    } else {
        Vec::new()
    };
    for request in 0..count_ended(prompt) {
        let text = usize::try_from(request).ok().and_then(|at| replied.get(at)).map(String::as_str);
        cursor.skip_ended_request(text, attempt.total);
    }
    match cursor.answer_attempt(&new_text(prompt), attempt.number) {
        ScriptAnswer::OutOfTurns if !turn => ScriptAnswer::Echo,
        answer => answer,
    }
}

/// Returns how many requests of this purpose ended before this one: from the session or, outside of one, from
/// the replies in the prompt.
pub(crate) fn count_ended(prompt: &Prompt) -> u64 {
    prompt.ended_requests.unwrap_or_else(|| match prompt.purpose {
        Purpose::Turn => replied_texts(prompt).len() as u64,
        Purpose::Compaction | Purpose::Title | Purpose::Other(_) => 0,
    })
}

/// The turns of a script for a pod and a purpose, with their use counts.
struct TurnCursor<'a> {
    turns: Vec<&'a ScriptTurn>,
    /// Repeat the turns at the end.
    repeats: bool,
    /// How often each turn was used.
    use_counts: Vec<u32>,
    /// All turns before this index have a `when` or are used up.
    first_plain: usize,
}

impl<'a> TurnCursor<'a> {
    fn new(script: &'a Script, pod: Option<&str>, purpose: &Purpose) -> TurnCursor<'a> {
        let turns: Vec<&ScriptTurn> =
            script.pod_turns(pod).iter().filter(|turn| turn.purpose == *purpose).collect();
        TurnCursor { use_counts: vec![0; turns.len()], turns, repeats: script.repeats, first_plain: 0 }
    }

    /// Takes the first unused turn whose `when` is in the text, else the next unused one without a `when`.
    fn take_turn(&mut self, text: Option<&str>) -> Option<&'a ScriptTurn> {
        let matching = text.and_then(|text| {
            let fits =
                |turn: &ScriptTurn| turn.when.as_ref().is_some_and(|when| text.contains(when.as_str()));
            (0..self.turns.len())
                .find(|&at| self.use_counts[at] < self.turns[at].repeat && fits(self.turns[at]))
        });
        let at = matching.or_else(|| self.next_plain_turn())?;
        self.use_counts[at] += 1;
        Some(self.turns[at])
    }

    fn next_plain_turn(&mut self) -> Option<usize> {
        let turns = &self.turns;
        let left = |used: &[u32], at: &usize| turns[*at].when.is_none() && used[*at] < turns[*at].repeat;
        let found = (self.first_plain..turns.len()).find(|at| left(&self.use_counts, at));
        let found = match found {
            None if self.repeats => {
                self.use_counts.fill(0);
                (0..turns.len()).find(|at| left(&self.use_counts, at))
            }
            found => found,
        };
        self.first_plain = found.unwrap_or(turns.len());
        found
    }

    /// Takes what one ended request has used: a turn and, if that turn failed only a few times, the next one.
    fn skip_ended_request(&mut self, text: Option<&str>, of: u32) {
        let mut attempts: u32 = 0;
        while let Some(turn) = self.take_turn(text) {
            let Some(error) = turn.error.as_ref().filter(|_| turn.is_only_error()) else { return };
            attempts = attempts.saturating_add(error.times);
            if !error.model_error_kind().is_retryable() || attempts >= of {
                return;
            }
        }
    }

    fn answer_attempt(&mut self, text: &str, attempt: u32) -> ScriptAnswer<'a> {
        let mut attempt = attempt;
        while let Some(turn) = self.take_turn(Some(text)) {
            match &turn.error {
                None => return ScriptAnswer::Turn(turn),
                Some(error) if attempt < error.times => return ScriptAnswer::Error(turn),
                Some(_) if !turn.is_only_error() => return ScriptAnswer::Turn(turn),
                Some(error) => attempt -= error.times,
            }
        }
        ScriptAnswer::OutOfTurns
    }
}

/// Returns the input of each reply in the prompt: the user and tool texts between it and the previous reply.
/// A reply is a contiguous group of assistant items.
fn replied_texts(prompt: &Prompt) -> Vec<String> {
    let mut texts = Vec::new();
    let mut new: Vec<String> = Vec::new();
    let mut in_reply = false;
    for item in &prompt.items {
        if is_reply_item(item) {
            if !in_reply {
                texts.push(std::mem::take(&mut new).join("\n"));
            }
            in_reply = true;
        } else {
            in_reply = false;
            new.push(item_text(item));
        }
    }
    texts
}

/// Returns the texts since the last reply. A notice may follow the result of a call.
fn new_text(prompt: &Prompt) -> String {
    let mut new: Vec<String> = prompt
        .items
        .iter()
        .rev()
        .take_while(|item| !is_reply_item(item))
        .map(|item| item_text(item))
        .collect();
    new.reverse();
    new.join("\n")
}

fn is_reply_item(item: &Item) -> bool {
    match item {
        Item::Message { role, .. } => *role == Role::Assistant,
        Item::Reasoning { .. } | Item::ToolCall { .. } => true,
        Item::ToolResult { .. } | Item::Unknown => false,
    }
}

/// Returns the last user or tool text.
pub(crate) fn last_input_text(prompt: &Prompt) -> String {
    prompt
        .items
        .iter()
        .rev()
        .find(|item| !is_reply_item(item))
        .map(|item| item_text(item))
        .unwrap_or_default()
}

/// Returns the text of an item for the script. For a tool result this is its content, or its summary.
pub fn item_text(item: &Item) -> String {
    match item {
        Item::Message { content, .. } => {
            let texts = content.iter().filter_map(|part| match part {
                Content::Text { text } | Content::Refusal { text } => Some(text.display_text()),
                Content::Image { .. } | Content::Unknown => None,
            });
            texts.collect::<Vec<_>>().join("\n")
        }
        Item::Reasoning { text, .. } => text.display_text().into_owned(),
        Item::ToolCall { arguments, .. } => arguments.display_text().into_owned(),
        Item::ToolResult { summary, content, .. } => {
            content.as_ref().map_or_else(|| summary.clone(), |text| text.display_text().into_owned())
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

    /// Returns the number of the turn for an attempt, with `!` if it is the turn's error.
    fn turn_label(ended: u64, attempt: RequestAttempt) -> String {
        let script = Script::parse_script("talk.toml", SCRIPT).unwrap();
        let route = Route { provider: "scripted".into(), model: "x".into(), scheme: "scripted".into() };
        let items = vec![Arc::new(Item::user_message("hi"))];
        let prompt = Prompt { ended_requests: Some(ended), ..Prompt::new(route, items) };
        match select_answer(&script, None, &prompt, attempt) {
            ScriptAnswer::Turn(turn) => turn.number.to_string(),
            ScriptAnswer::Error(turn) => format!("{}!", turn.number),
            ScriptAnswer::Echo => "echo".to_owned(),
            ScriptAnswer::OutOfTurns => "none".to_owned(),
        }
    }

    #[test]
    fn a_request_that_is_tried_again_goes_on_in_the_script() {
        let cases =
            [(0, 0, "1!"), (0, 1, "1!"), (0, 2, "2"), (1, 0, "3!"), (1, 1, "3"), (2, 0, "4!"), (3, 0, "5")];
        for (ended, number, wanted) in cases {
            assert_eq!(
                turn_label(ended, RequestAttempt { number, total: 6 }),
                wanted,
                "{number} of request {ended}"
            );
        }
        assert_eq!(turn_label(4, RequestAttempt { number: 0, total: 6 }), "none");
    }

    #[test]
    fn a_request_that_is_tried_once_uses_one_turn() {
        for (ended, wanted) in [(0, "1!"), (1, "2"), (2, "3!"), (3, "4!"), (4, "5"), (5, "none")] {
            assert_eq!(turn_label(ended, RequestAttempt { number: 0, total: 1 }), wanted, "request {ended}");
        }
    }

    #[test]
    fn a_note_behind_what_was_asked_does_not_hide_it() {
        let script = "[[turn]]\nrepeat = 2\ntext = 'plain'\n[[turn]]\nwhen = 'once more'\ntext = 'again'";
        let script = Script::parse_script("talk.toml", script).unwrap();
        let route = Route { provider: "scripted".into(), model: "x".into(), scheme: "scripted".into() };
        let chosen = |texts: &[&str]| {
            let items = texts.iter().map(|text| match text.strip_prefix("said: ") {
                Some(said) => Arc::new(Item::assistant_message(said)),
                None => Arc::new(Item::user_message(*text)),
            });
            let prompt = Prompt::new(route.clone(), items.collect());
            match select_answer(&script, None, &prompt, RequestAttempt { number: 0, total: 1 }) {
                ScriptAnswer::Turn(turn) => turn.number,
                _ => 0,
            }
        };
        assert_eq!(chosen(&["once more, please", "a note"]), 2);
        assert_eq!(chosen(&["go", "said: plain", "a note"]), 1);
        assert_eq!(chosen(&["once more", "said: again", "a note"]), 1, "answered input is not matched again");
        assert_eq!(chosen(&["go", "said: plain", "once more", "a note"]), 2);
    }
}
