//! What a command does with its words: which of them are commands again. Each command is listed, then what it runs.

use super::found::Found;
use super::parse::{Read, read_nested, stop};
use super::{Command, DEPTH, Word, base_name, builtin, code, environment, git, launch, wrapper};

/// Something that a command runs.
#[derive(Debug)]
pub(super) enum Inner {
    /// Words, run as they are, inside of what the label says.
    Words { words: Vec<Word>, assignments: Vec<(String, Word)>, label: String },
    /// A line for a shell.
    Line { text: Word, label: String },
    /// Whatever comes on standard input.
    Script { label: String },
}

/// What is known of a command beside its words.
#[derive(Debug, Default)]
pub(super) struct What {
    pub(super) inner: Vec<Inner>,
    pub(super) opaque: Option<String>,
    pub(super) unsure: Option<String>,
}

impl What {
    pub(super) fn unsure(reason: impl Into<String>) -> What {
        What { unsure: Some(reason.into()), ..What::default() }
    }

    pub(super) fn opaque(reason: impl Into<String>) -> What {
        What { opaque: Some(reason.into()), ..What::default() }
    }

    pub(super) fn line(text: Word, label: impl Into<String>) -> What {
        What { inner: vec![Inner::Line { text, label: label.into() }], ..What::default() }
    }

    pub(super) fn words(words: &[Word], label: impl Into<String>) -> What {
        if words.is_empty() {
            return What::default();
        }
        let inner = Inner::Words { words: words.to_vec(), assignments: Vec::new(), label: label.into() };
        What { inner: vec![inner], ..What::default() }
    }

    pub(super) fn and_unsure(mut self, reason: impl Into<String>) -> What {
        self.unsure.get_or_insert(reason.into());
        self
    }

    pub(super) fn and_opaque(mut self, reason: impl Into<String>) -> What {
        self.opaque.get_or_insert(reason.into());
        self
    }
}

/// Notes a command and all that it runs. If it is a shell that reads its commands from standard input, says what those
/// would stand inside of.
pub(super) fn command(found: &mut Found, mut command: Command) -> Read<Option<Vec<String>>> {
    let Some(first) = command.words.first() else { return Ok(None) };
    let Some(name) = first.known().filter(|name| !name.is_empty()).map(|name| base_name(name).to_owned())
    else {
        found.unsure(format!("which command runs is not known before the line runs: {first}"));
        command.opaque = Some("its name is not known".to_owned());
        return noted(found, command);
    };
    let what = what(&name, &command.words, found);
    if !builtin::declares(&name)
        && let Some((name, _)) = command.assignments.iter().find(|(variable, _)| !harmless(&name, variable))
    {
        let reason = format!("`{name}=` before it can change what it does");
        command.opaque = Some(reason);
    }
    let hides = |(variable, value): &&(String, Word)| {
        environment::hides(variable, value) || (variable == "ENV" && launch::is_shell(&name))
    };
    if let Some((variable, _)) = command.assignments.iter().find(hides) {
        found.unsure(format!("`{variable}=` can make a shell run what the line does not say"));
    }
    if command.opaque.is_none() {
        command.opaque = what.opaque;
    }
    if let Some(reason) = what.unsure {
        found.unsure(reason);
    }
    let inside = command.inside.clone();
    noted(found, command)?;
    let mut script = None;
    for inner in what.inner {
        script = self::inner(found, inner, &inside)?.or(script);
    }
    Ok(script)
}

/// Whether a variable handed to a command changes nothing of what it does. `IFS= read` is how lines are read.
fn harmless(name: &str, variable: &str) -> bool {
    environment::harmless_name(variable)
        || (variable == "IFS" && matches!(name, "read" | "mapfile" | "readarray"))
}

/// What only bash reads as bash does.
const ONLY_BASH: &[&str] = &[
    "$'", "$\"", "[[", "((", "<(", ">(", "&>", ">&", "|&", "<<<", "function", "select", "coproc", "time",
    "{", "$[",
];

/// A line for a shell that may not be bash: what only bash knows means something else to others.
pub(super) fn elsewhere(found: &mut Found, label: &str, text: &str) {
    if matches!(label, "eval" | "trap" | "mapfile -C" | "bash -c" | "rbash -c" | "bash" | "rbash") {
        return;
    }
    // Descriptors are copied alike by all.
    let text = text.replace(">&1", "").replace(">&2", "");
    if let Some(odd) = ONLY_BASH.iter().find(|odd| text.contains(**odd)) {
        found.unsure(format!("the shell of `{label}` may read `{odd}` differently from bash"));
    }
}

fn noted(found: &mut Found, command: Command) -> Read<Option<Vec<String>>> {
    if found.command(command) { Ok(None) } else { stop("too many commands") }
}

fn what(name: &str, words: &[Word], found: &mut Found) -> What {
    if name == "git" {
        return git::what(words);
    }
    builtin::what(name, words, found)
        .or_else(|| launch::what(name, words, found.input.as_ref()))
        .or_else(|| wrapper::what(name, words))
        .or_else(|| code::what(name, words))
        .unwrap_or_default()
}

fn inner(found: &mut Found, inner: Inner, inside: &[String]) -> Read<Option<Vec<String>>> {
    let within = |label: String| -> Vec<String> { inside.iter().cloned().chain([label]).collect() };
    match inner {
        Inner::Script { label } => Ok(Some(within(label))),
        Inner::Line { text: Word::Known(text), label } => {
            elsewhere(found, &label, &text);
            read_nested(&text, found, within(label));
            Ok(None)
        }
        Inner::Line { text: Word::Unknown { raw, .. }, label } => {
            found.unsure(format!("`{label}` runs a line that is not known before it runs: {raw}"));
            // What can be seen of it is for rules that deny.
            read_nested(raw.trim_matches('"'), found, within(label));
            Ok(None)
        }
        Inner::Words { words, assignments, label } => {
            if found.depth >= DEPTH {
                return stop(format!("commands stand in each other more than {DEPTH} deep"));
            }
            found.depth += 1;
            let script = command(found, Command { words, assignments, inside: within(label), opaque: None });
            found.depth -= 1;
            script
        }
    }
}

/// What a command prints, where that is plain: it may be read by a shell behind the pipe.
pub(super) fn prints(command: &Command) -> Option<String> {
    let mut words = Vec::new();
    for word in &command.words {
        words.push(word.known()?);
    }
    let (name, arguments) = words.split_first()?;
    match *name {
        "echo" => Some(
            arguments.iter().filter(|word| !word.starts_with('-')).copied().collect::<Vec<_>>().join(" "),
        ),
        "printf" => Some(arguments.join("\n").replace("\\n", "\n")),
        _ => None,
    }
}

/// Words joined by spaces, if all are known.
pub(super) fn joined(words: &[Word]) -> Word {
    let known: Option<Vec<&str>> = words.iter().map(Word::known).collect();
    match known {
        Some(known) => Word::Known(known.join(" ")),
        None => {
            let raw: Vec<String> = words.iter().map(Word::to_string).collect();
            Word::unknown(raw.join(" "))
        }
    }
}
