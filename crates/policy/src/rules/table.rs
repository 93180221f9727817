//! What is known of commands, from `data/commands.txt`: how many words name one, which flags mean nothing between those
//! words, which make another command of it, which spellings are the same, what is an interpreter.
//!
//! Here: the table and its questions. Elsewhere: who asks them (`command`, `propose`).
//! Invariant: every line of the table says something that is understood (`every_line_of_the_table_is_understood`).

use std::collections::HashMap;
use std::sync::LazyLock;

/// As compiled in.
const TEXT: &str = include_str!("../../data/commands.txt");
/// How many words a key of the table has at most.
const KEY_WORDS: usize = 3;

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    Table::read(TEXT).expect("every_line_of_the_table_is_understood keeps the table readable")
});

#[derive(Debug, Default)]
struct Table {
    keys: HashMap<String, Known>,
}

/// What is known of the commands that begin with a key.
#[derive(Debug, Default)]
struct Known {
    arity: Option<usize>,
    skip: Vec<String>,
    danger: Vec<String>,
    flags: Vec<String>,
    plain: bool,
    whole: bool,
    launches: bool,
    same: Vec<(String, String)>,
    text: bool,
    nofiles: bool,
    pattern: bool,
    program: bool,
    runs: bool,
    wraps: bool,
    grave: bool,
}

impl Table {
    fn read(text: &str) -> Result<Table, String> {
        let mut table = Table::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            table.take(line).ok_or_else(|| format!("`{line}` says nothing that is understood"))?;
        }
        Ok(table)
    }

    fn take(&mut self, line: &str) -> Option<()> {
        let (key, fact) = line.split_once(" : ")?;
        let mut words = fact.split_whitespace();
        let kind = words.next()?;
        let values: Vec<String> = words.map(str::to_owned).collect();
        if key.split(' ').count() > KEY_WORDS {
            return None;
        }
        let known = self.keys.entry(key.trim().to_owned()).or_default();
        match (kind, values.as_slice()) {
            ("arity", [number]) => known.arity = Some(number.parse().ok()?),
            ("skip", [_, ..]) => known.skip.extend(values),
            ("danger", [_, ..]) => known.danger.extend(values),
            ("flags", [_, ..]) => known.flags.extend(values),
            ("plain", []) => known.plain = true,
            ("whole", []) => known.whole = true,
            ("launches", []) => known.launches = true,
            ("same", [a, b]) => known.same.push((a.clone(), b.clone())),
            ("text", []) => known.text = true,
            ("nofiles", []) => known.nofiles = true,
            ("pattern", []) => known.pattern = true,
            ("program", []) => known.program = true,
            ("runs", []) => known.runs = true,
            ("wraps", []) => known.wraps = true,
            ("grave", []) => known.grave = true,
            _ => return None,
        }
        Some(())
    }

    /// The same, and what is known of the program that the words name for another to start: `npx tsc`.
    fn with_launched<'t>(&'t self, names: &[&str]) -> Vec<&'t Known> {
        let mut found: Vec<&Known> = self.of(names).collect();
        let launcher = (1..names.len()).find(|length| {
            let key = names.get(..*length).unwrap_or_default().join(" ");
            self.keys.get(&key).is_some_and(|known| known.launches)
        });
        if let Some(length) = launcher {
            found.extend(self.of(names.get(length..).unwrap_or_default()));
        }
        found
    }

    /// What is known of a command, from its first word on.
    fn of<'t>(&'t self, names: &[&str]) -> impl Iterator<Item = &'t Known> + use<'t> {
        let mut found: Vec<&Known> = Vec::new();
        let mut key = String::new();
        for name in names.iter().take(KEY_WORDS) {
            if !key.is_empty() {
                key.push(' ');
            }
            key.push_str(name);
            found.extend(self.keys.get(&key));
        }
        found.into_iter()
    }
}

/// How many words name what is run; one for a command that is not known.
pub(super) fn arity(names: &[&str]) -> usize {
    TABLE.of(names).filter_map(|known| known.arity).last().unwrap_or(1)
}

/// Whether these words name something longer: after `python`, `-m` is no flag but half of a name.
pub(super) fn is_key(names: &[&str], next: &str) -> bool {
    let longer = format!("{} {next}", names.join(" "));
    TABLE.keys.get(&longer).is_some_and(|known| known.arity.is_some())
}

/// How many words a flag takes away that changes nothing where it stands, between the words that name a command.
pub(super) fn skipped(names: &[&str], flag: &str) -> Option<usize> {
    TABLE.of(names).flat_map(|known| &known.skip).find_map(|skip| {
        if skip == flag {
            return Some(1);
        }
        (skip.strip_suffix('=') == Some(flag)).then_some(2)
    })
}

/// The flags that a rule for the bare words does not vouch for.
pub(super) fn dangers<'a>(names: &[&str]) -> impl Iterator<Item = &'a str> + use<'a> {
    TABLE.with_launched(names).into_iter().flat_map(|known| &known.danger).map(String::as_str)
}

/// What is known of the flags of a command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flags {
    /// Nothing.
    Unknown,
    /// All but the dangerous ones mean what a rule for the command expects.
    Reviewed,
    /// Only these do. One that ends with `*` stands for all that begin so.
    Listed(Vec<&'static str>),
}

pub(super) fn flags(names: &[&str]) -> Flags {
    let known = TABLE.with_launched(names);
    let listed: Vec<&str> = known.iter().flat_map(|known| &known.flags).map(String::as_str).collect();
    if !listed.is_empty() {
        return Flags::Listed(listed);
    }
    let reviewed = |known: &&Known| known.plain || known.text || known.pattern || !known.danger.is_empty();
    if known.iter().any(reviewed) { Flags::Reviewed } else { Flags::Unknown }
}

/// Another spelling of a flag or word that stands behind these names.
pub(super) fn is_same(names: &[&str], a: &str, b: &str) -> bool {
    a == b
        || TABLE
            .of(names)
            .flat_map(|known| &known.same)
            .any(|(short, long)| (short == a && long == b) || (short == b && long == a))
}

/// The long spellings of a flag of one letter.
pub(super) fn long_spellings<'a>(names: &[&str], flag: char) -> impl Iterator<Item = &'a str> + use<'a> {
    let short = format!("-{flag}");
    TABLE
        .of(names)
        .flat_map(|known| &known.same)
        .filter(move |(a, _)| *a == short)
        .map(|(_, long)| long.as_str())
}

/// Whether its words are text: no paths, and no flag that does anything.
pub(super) fn is_text(names: &[&str]) -> bool {
    TABLE.of(names).any(|known| known.text)
}

/// Whether its flags are whole words, so that letters behind one dash are never several flags.
pub(super) fn has_whole_flags(names: &[&str]) -> bool {
    TABLE.with_launched(names).iter().any(|known| known.whole)
}

/// Whether it is known what its words are, so that none of them is a command but behind the flags that make it one.
pub(super) fn is_known(names: &[&str]) -> bool {
    let known = TABLE.with_launched(names);
    known.iter().any(|known| {
        known.nofiles || known.wraps || known.launches || known.program || !known.skip.is_empty()
    }) || flags(names) != Flags::Unknown
}

/// Whether its words name no files whose content it would show or take along.
pub(super) fn takes_no_files(names: &[&str]) -> bool {
    TABLE.of(names).any(|known| known.nofiles || known.text)
}

/// Whether its first word that is no flag is a pattern.
pub(super) fn has_pattern(names: &[&str]) -> bool {
    TABLE.of(names).any(|known| known.pattern)
}

/// Whether its first word that is no flag is a program.
pub(super) fn has_program(names: &[&str]) -> bool {
    TABLE.of(names).any(|known| known.program)
}

/// Whether it is an interpreter, a shell or a launcher that is told what to run in a way of its own.
pub(super) fn runs(name: &str) -> bool {
    TABLE.of(&[name]).any(|known| known.runs)
}

/// Whether it runs the command that its words name, which is judged beside it.
pub(super) fn wraps(name: &str) -> bool {
    TABLE.of(&[name]).any(|known| known.wraps)
}

/// Whether no rule is proposed for it.
pub(super) fn is_grave(names: &[&str]) -> bool {
    TABLE.of(names).any(|known| known.grave)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_understood() {
        let table = Table::read(TEXT).unwrap();
        assert!(table.keys.values().filter(|known| known.arity.is_some()).count() >= 200);
        for wrong in
            ["git arity 2", "git : arity", "git : arity two", "git : sort", "git : skip", "a b c d : arity 2"]
        {
            assert!(Table::read(wrong).is_err(), "{wrong}");
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
            assert_eq!(arity(&words), wanted, "{words:?}");
        }
        assert!(is_key(&["python"], "-m") && !is_key(&["python"], "-c"));
    }
}
