//! Facts about commands, from `data/commands.txt`: how many words name a command, which flags may stand
//! between those words, which flags change the command, which spellings are synonyms, which programs are
//! interpreters.
//!
//! `command` and `propose` use this table.
//! Invariant: every line of the table is valid (`every_line_of_the_table_is_understood`).

use std::collections::HashMap;
use std::sync::LazyLock;

/// The compiled-in table.
const TABLE_TEXT: &str = include_str!("../../data/commands.txt");
/// The maximum number of words of a key.
const MAX_KEY_WORDS: usize = 3;

static TABLE: LazyLock<CommandTable> = LazyLock::new(|| {
    CommandTable::parse(TABLE_TEXT).expect("every_line_of_the_table_is_understood keeps the table readable")
});

#[derive(Debug, Default)]
struct CommandTable {
    keys: HashMap<String, CommandFacts>,
}

/// The facts about the commands that begin with a key.
#[derive(Debug, Default)]
struct CommandFacts {
    arity: Option<usize>,
    skip: Vec<String>,
    danger: Vec<String>,
    flags: Vec<String>,
    is_reviewed: bool,
    whole_flags: bool,
    launches: bool,
    synonyms: Vec<(String, String)>,
    text: bool,
    no_files: bool,
    pattern: bool,
    program: bool,
    runs: bool,
    wraps: bool,
    never_proposed: bool,
}

impl CommandTable {
    fn parse(text: &str) -> Result<CommandTable, String> {
        let mut table = CommandTable::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            table.parse_line(line).ok_or_else(|| format!("`{line}` is not a valid fact"))?;
        }
        Ok(table)
    }

    fn parse_line(&mut self, line: &str) -> Option<()> {
        let (key, fact) = line.split_once(" : ")?;
        let mut words = fact.split_whitespace();
        let kind = words.next()?;
        let values: Vec<String> = words.map(str::to_owned).collect();
        if key.split(' ').count() > MAX_KEY_WORDS {
            return None;
        }
        let facts = self.keys.entry(key.trim().to_owned()).or_default();
        match (kind, values.as_slice()) {
            ("arity", [number]) => facts.arity = Some(number.parse().ok()?),
            ("skip", [_, ..]) => facts.skip.extend(values),
            ("danger", [_, ..]) => facts.danger.extend(values),
            ("flags", [_, ..]) => facts.flags.extend(values),
            ("plain", []) => facts.is_reviewed = true,
            ("whole", []) => facts.whole_flags = true,
            ("launches", []) => facts.launches = true,
            ("same", [a, b]) => facts.synonyms.push((a.clone(), b.clone())),
            ("text", []) => facts.text = true,
            ("nofiles", []) => facts.no_files = true,
            ("pattern", []) => facts.pattern = true,
            ("program", []) => facts.program = true,
            ("runs", []) => facts.runs = true,
            ("wraps", []) => facts.wraps = true,
            ("grave", []) => facts.never_proposed = true,
            _ => return None,
        }
        Some(())
    }

    /// Returns the facts about a command, and about the program that it launches by name: `npx tsc`.
    fn facts_with_launched<'t>(&'t self, names: &[&str]) -> Vec<&'t CommandFacts> {
        let mut found: Vec<&CommandFacts> = self.facts_for(names).collect();
        let launcher = (1..names.len()).find(|length| {
            let key = names.get(..*length).unwrap_or_default().join(" ");
            self.keys.get(&key).is_some_and(|facts| facts.launches)
        });
        if let Some(length) = launcher {
            found.extend(self.facts_for(names.get(length..).unwrap_or_default()));
        }
        found
    }

    /// Returns the facts about a command, from its first word on.
    fn facts_for<'t>(&'t self, names: &[&str]) -> impl Iterator<Item = &'t CommandFacts> + use<'t> {
        let mut found: Vec<&CommandFacts> = Vec::new();
        let mut key = String::new();
        for name in names.iter().take(MAX_KEY_WORDS) {
            if !key.is_empty() {
                key.push(' ');
            }
            key.push_str(name);
            found.extend(self.keys.get(&key));
        }
        found.into_iter()
    }
}

/// Returns how many words name the command; one for an unknown command.
pub(super) fn name_arity(names: &[&str]) -> usize {
    TABLE.facts_for(names).filter_map(|facts| facts.arity).last().unwrap_or(1)
}

/// Returns whether the next word makes the name longer: after `python`, `-m` is a part of the name.
pub(super) fn extends_name(names: &[&str], next: &str) -> bool {
    let longer = format!("{} {next}", names.join(" "));
    TABLE.keys.get(&longer).is_some_and(|facts| facts.arity.is_some())
}

/// Returns how many words a harmless flag takes up between the words that name a command.
pub(super) fn skipped_words(names: &[&str], flag: &str) -> Option<usize> {
    TABLE.facts_for(names).flat_map(|facts| &facts.skip).find_map(|skip| {
        if skip == flag {
            return Some(1);
        }
        (skip.strip_suffix('=') == Some(flag)).then_some(2)
    })
}

/// Returns the flags that a rule for the bare command does not allow.
pub(super) fn dangerous_flags<'a>(names: &[&str]) -> impl Iterator<Item = &'a str> + use<'a> {
    TABLE.facts_with_launched(names).into_iter().flat_map(|facts| &facts.danger).map(String::as_str)
}

/// The known flags of a command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FlagKnowledge {
    /// No flags are known.
    Unknown,
    /// All flags are harmless except the dangerous ones.
    Reviewed,
    /// Only these flags are harmless. A flag that ends with `*` is a prefix.
    Listed(Vec<&'static str>),
}

pub(super) fn flag_knowledge(names: &[&str]) -> FlagKnowledge {
    let facts = TABLE.facts_with_launched(names);
    let listed: Vec<&str> = facts.iter().flat_map(|known| &known.flags).map(String::as_str).collect();
    if !listed.is_empty() {
        return FlagKnowledge::Listed(listed);
    }
    let reviewed =
        |known: &&CommandFacts| known.is_reviewed || known.text || known.pattern || !known.danger.is_empty();
    if facts.iter().any(reviewed) { FlagKnowledge::Reviewed } else { FlagKnowledge::Unknown }
}

/// Returns whether two flags or words after these names are synonyms.
pub(super) fn is_synonym(names: &[&str], a: &str, b: &str) -> bool {
    a == b
        || TABLE
            .facts_for(names)
            .flat_map(|facts| &facts.synonyms)
            .any(|(short, long)| (short == a && long == b) || (short == b && long == a))
}

/// Returns the long synonyms of a single-letter flag.
pub(super) fn long_flags<'a>(names: &[&str], flag: char) -> impl Iterator<Item = &'a str> + use<'a> {
    let short = format!("-{flag}");
    TABLE
        .facts_for(names)
        .flat_map(|facts| &facts.synonyms)
        .filter(move |(a, _)| *a == short)
        .map(|(_, long)| long.as_str())
}

/// Returns whether the arguments are text: not paths, and no flag has an effect.
pub(super) fn has_text_arguments(names: &[&str]) -> bool {
    TABLE.facts_for(names).any(|facts| facts.text)
}

/// Returns whether flags are whole words, so that letters after one dash are never several flags.
pub(super) fn has_whole_flags(names: &[&str]) -> bool {
    TABLE.facts_with_launched(names).iter().any(|facts| facts.whole_flags)
}

/// Returns whether the use of its arguments is known, so that none of them is a command except after known
/// flags.
pub(super) fn is_known_command(names: &[&str]) -> bool {
    let known = TABLE.facts_with_launched(names);
    known.iter().any(|facts| {
        facts.no_files || facts.wraps || facts.launches || facts.program || !facts.skip.is_empty()
    }) || flag_knowledge(names) != FlagKnowledge::Unknown
}

/// Returns whether the arguments name no files whose content the command would show or copy.
pub(super) fn takes_no_files(names: &[&str]) -> bool {
    TABLE.facts_for(names).any(|facts| facts.no_files || facts.text)
}

/// Returns whether the first operand is a pattern.
pub(super) fn takes_pattern(names: &[&str]) -> bool {
    TABLE.facts_for(names).any(|known| known.pattern)
}

/// Returns whether the first operand is a program text.
pub(super) fn takes_program(names: &[&str]) -> bool {
    TABLE.facts_for(names).any(|facts| facts.program)
}

/// Returns whether it is an interpreter, a shell or a launcher with its own way to name the command.
pub(super) fn is_launcher(name: &str) -> bool {
    TABLE.facts_for(&[name]).any(|known| known.runs)
}

/// Returns whether it runs the command in its arguments, which is judged separately.
pub(super) fn is_wrapper(name: &str) -> bool {
    TABLE.facts_for(&[name]).any(|facts| facts.wraps)
}

/// Returns whether no rule is ever proposed for it.
pub(super) fn is_never_proposed(names: &[&str]) -> bool {
    TABLE.facts_for(names).any(|known| known.never_proposed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_understood() {
        let table = CommandTable::parse(TABLE_TEXT).unwrap();
        assert!(table.keys.values().filter(|facts| facts.arity.is_some()).count() >= 200);
        for wrong in
            ["git arity 2", "git : arity", "git : arity two", "git : sort", "git : skip", "a b c d : arity 2"]
        {
            assert!(CommandTable::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_longest_key_says_how_many_words_name_a_command() {
        for (words, wanted) in [
            (vec!["git", "status"], 2),
            (vec!["npm", "run"], 3),
            (vec!["npm", "test"], 2),
            (vec!["docker", "compose", "up"], 3),
            (vec!["python", "-m"], 3),
            (vec!["python", "x.py"], 1),
            (vec!["frobnicate", "x"], 1),
        ] {
            assert_eq!(name_arity(&words), wanted, "{words:?}");
        }
        assert!(extends_name(&["python"], "-m") && !extends_name(&["python"], "-c"));
    }
}
