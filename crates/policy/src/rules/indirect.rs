//! Indirect commands: programs that start other commands from their arguments in ways that are not parsed.
//!
//! This module decides which commands may start another command, and whether that may be a command of an
//! `ask` or `deny` rule. `crate::shell` has the known wrappers and shells, `command` the words that name a
//! command. A match only asks, because the arguments are a hint and not a proof.

use crate::shell::{ShellCommand, ShellWord, base_name};

use super::command::{RuleMatch, match_restricting_rule, may_change_command};
use super::command_table;

/// Programs that can create a copy of a program under another name.
const COPY_PROGRAMS: &[&str] = &["cp", "ln", "mv", "install", "cat", "dd", "rsync", "link"];

/// Returns whether a command may start another command that its words name: the program is unknown, or one of
/// its words changes its effect.
pub(super) fn may_launch_command(command: &ShellCommand) -> bool {
    let Some(name) = command.program_name() else { return false };
    let operands =
        command.words.iter().skip(1).map_while(ShellWord::as_known).filter(|word| !word.starts_with('-'));
    let words: Vec<&str> = std::iter::once(name).chain(operands.take(2)).collect();
    if command_table::has_text_arguments(&words) || command.words.len() < 2 {
        return false;
    }
    if COPY_PROGRAMS.contains(&name)
        || command.opaque_reason.is_some()
        || !command_table::is_known_command(&words)
    {
        return true;
    }
    command.words.iter().skip(1).any(|word| may_change_command(&words, word))
}

/// Returns whether a command that may start others may start the command of a rule.
pub(super) fn may_launch_named(rule: &[String], command: &ShellCommand) -> RuleMatch {
    let Some(program) = rule.first().map(|first| base_name(first)) else { return RuleMatch::No };
    let copies = command.program_name().is_some_and(|name| COPY_PROGRAMS.contains(&name))
        && command.opaque_reason.is_none();
    let texts = command.words.iter().skip(1).map(|word| match word {
        ShellWord::Known(text) | ShellWord::Unknown { raw: text, .. } => text.as_str(),
    });
    if !texts.clone().any(|text| text.contains(program)) {
        return RuleMatch::No;
    }
    let tokens: Vec<&str> = texts.flat_map(split_tokens).collect();
    let fits = tokens.iter().enumerate().any(|(at, token)| {
        if base_name(token) != program {
            return false;
        }
        if copies {
            return token.contains("bin/")
                || tokens.get(at.wrapping_sub(1)).is_some_and(|word| *word == "which");
        }
        let words = tokens.get(at..).unwrap_or_default();
        let words = words.iter().map(|word| ShellWord::Known((*word).to_owned())).collect();
        rule.len() == 1
            || match_restricting_rule(rule, &ShellCommand { words, ..ShellCommand::default() })
                != RuleMatch::No
    });
    if fits { RuleMatch::Maybe } else { RuleMatch::No }
}

/// Splits a word at blanks, quotes and punctuation, and after the letter of a flag.
fn split_tokens(text: &str) -> impl Iterator<Item = &str> {
    let inside = |letter: char| letter.is_alphanumeric() || "_./+-".contains(letter);
    let each = text.split(move |letter: char| !inside(letter)).filter(|token| !token.is_empty());
    each.flat_map(|token| {
        let glued =
            token.strip_prefix('-').filter(|rest| !rest.starts_with('-')).and_then(|rest| rest.get(1..));
        [Some(token), glued.filter(|rest| rest.len() > 1)].into_iter().flatten()
    })
}
