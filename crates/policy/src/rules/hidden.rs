//! Commands behind other commands: programs that start what their words say, in ways that are not read here.
//!
//! Here: which commands may start another one, and whether that may be one that a rule asks about or denies. Elsewhere:
//! what is known of wrappers and shells (`crate::shell`), the words that name a command (`command`).
//! Only rules that ask or deny are met in this way, and they ask: the words are a hint and no proof.

use crate::shell::{Command, Word, base_name};

use super::command::{Fit, is_danger_word, names};
use super::table;

/// Programs that make another name for a file.
const COPIES: &[&str] = &["cp", "ln", "mv", "install", "cat", "dd", "rsync", "link"];

/// Whether a command may start another one that its words name: nothing is known of it, or one of its words makes
/// another command of it.
pub(super) fn may_launch(command: &Command) -> bool {
    let Some(name) = command.name() else { return false };
    let operands = command.words.iter().skip(1).map_while(Word::known).filter(|word| !word.starts_with('-'));
    let words: Vec<&str> = std::iter::once(name).chain(operands.take(2)).collect();
    if table::is_text(&words) || command.words.len() < 2 {
        return false;
    }
    if COPIES.contains(&name) || command.opaque.is_some() || !table::is_known(&words) {
        return true;
    }
    command.words.iter().skip(1).any(|word| is_danger_word(&words, word))
}

/// Whether a command that may start others may start one that a rule names.
pub(super) fn may_run(rule: &[String], command: &Command) -> Fit {
    let Some(program) = rule.first().map(|first| base_name(first)) else { return Fit::No };
    let copies = command.name().is_some_and(|name| COPIES.contains(&name)) && command.opaque.is_none();
    let texts = command.words.iter().skip(1).map(|word| match word {
        Word::Known(text) | Word::Unknown { raw: text, .. } => text.as_str(),
    });
    if !texts.clone().any(|text| text.contains(program)) {
        return Fit::No;
    }
    let tokens: Vec<&str> = texts.flat_map(tokens).collect();
    let fits = tokens.iter().enumerate().any(|(at, token)| {
        if base_name(token) != program {
            return false;
        }
        if copies {
            return token.contains("bin/")
                || tokens.get(at.wrapping_sub(1)).is_some_and(|word| *word == "which");
        }
        let words = tokens.get(at..).unwrap_or_default();
        let words = words.iter().map(|word| Word::Known((*word).to_owned())).collect();
        rule.len() == 1 || names(rule, &Command { words, ..Command::default() }) != Fit::No
    });
    if fits { Fit::Maybe } else { Fit::No }
}

/// The words in a word: between blanks, quotes and signs, and behind the letter of a flag.
fn tokens(text: &str) -> impl Iterator<Item = &str> {
    let inside = |letter: char| letter.is_alphanumeric() || "_./+-".contains(letter);
    let each = text.split(move |letter: char| !inside(letter)).filter(|token| !token.is_empty());
    each.flat_map(|token| {
        let glued =
            token.strip_prefix('-').filter(|rest| !rest.starts_with('-')).and_then(|rest| rest.get(1..));
        [Some(token), glued.filter(|rest| rest.len() > 1)].into_iter().flatten()
    })
}
