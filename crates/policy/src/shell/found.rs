//! What a reading has found so far: commands, redirections, what was assigned and where it matters.
//!
//! Some findings count for the whole line whatever their place, because loops and functions turn the order round:
//! poisoned environments, shadowed names, a changed directory, values that arithmetic would run.

use std::collections::BTreeSet;

use super::{COMMANDS, Command, Line, Redirect, Word, environment};

#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) line: Line,
    /// Where commands begin in the line as it was given.
    pub(super) starts: Vec<usize>,
    /// Functions that the line defines.
    functions: BTreeSet<String>,
    /// Variables that are given anything but a number.
    texts: BTreeSet<String>,
    /// Variables that arithmetic evaluates.
    evaluated: BTreeSet<String>,
    /// A variable that holds for all later commands and changes what they do.
    poison: Option<String>,
    /// The line changes its directory.
    moves: bool,
    /// How deep shells stand in each other.
    pub(super) depth: usize,
}

impl Found {
    /// The first reason counts: later ones are often only its echo.
    pub(super) fn unsure(&mut self, reason: impl Into<String>) {
        if self.line.unsure.is_none() {
            self.line.unsure = Some(reason.into());
        }
    }

    /// The line cannot be read as it stands.
    pub(super) fn broken(&mut self, reason: impl Into<String>) {
        self.unsure(reason);
        self.line.broken = true;
    }

    /// Notes a command; false if there are too many.
    pub(super) fn command(&mut self, command: Command) -> bool {
        if self.line.commands.len() >= COMMANDS {
            self.unsure(format!("the line runs more than {COMMANDS} commands"));
            return false;
        }
        self.line.commands.push(command);
        true
    }

    pub(super) fn redirect(&mut self, target: Word, writes: bool) {
        let network = match &target {
            Word::Known(path) | Word::Unknown(path) => {
                let path = path.trim_matches(['"', '\'']);
                path.starts_with("/dev/tcp/") || path.starts_with("/dev/udp/")
            }
        };
        if network {
            self.unsure(format!("the shell itself would open a network connection ({target})"));
        }
        if self.line.redirects.len() >= COMMANDS {
            self.unsure(format!("the line opens more than {COMMANDS} files"));
            return;
        }
        self.line.redirects.push(Redirect { target, writes });
    }

    pub(super) fn function(&mut self, name: &str) {
        self.functions.insert(name.to_owned());
    }

    pub(super) fn moves(&mut self) {
        self.moves = true;
    }

    /// A variable gets a value that stays for what follows.
    pub(super) fn assigned(&mut self, name: &str, value: &Word, exported: bool) {
        if !value.known().is_some_and(is_number) {
            self.texts.insert(name.to_owned());
        }
        let poison = if exported { !environment::harmless_name(name) } else { environment::poisons(name) };
        if poison {
            self.poison(format!("`{name}` is set, which can change what commands do"));
        }
    }

    pub(super) fn poison(&mut self, reason: String) {
        self.poison.get_or_insert(reason);
    }

    /// A variable whose value arithmetic would evaluate.
    pub(super) fn evaluated(&mut self, name: &str) {
        self.evaluated.insert(name.to_owned());
    }

    /// Everything that counts for the whole line, put into its place.
    pub(super) fn finish(mut self) -> Line {
        if let Some(name) = self.evaluated.intersection(&self.texts).next() {
            let reason = format!(
                "arithmetic evaluates `{name}`, which is not known to be a number; a value such as `a[$(…)]` would run"
            );
            self.unsure(reason);
        }
        for command in &mut self.line.commands {
            let name = command.words.first().and_then(Word::known);
            if let Some(name) = name.filter(|name| self.functions.contains(*name)) {
                let reason = format!("`{name}` is a function that the line defines");
                command.opaque.get_or_insert(reason);
            }
            if let Some(poison) = &self.poison {
                command.opaque.get_or_insert_with(|| poison.clone());
            }
        }
        if self.moves {
            for redirect in &mut self.line.redirects {
                if let Word::Known(path) = &redirect.target
                    && !path.starts_with('/')
                {
                    redirect.target = Word::Unknown(path.clone());
                }
            }
        }
        self.line
    }
}

/// A plain decimal number, which arithmetic can only read as itself.
pub(super) fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}
