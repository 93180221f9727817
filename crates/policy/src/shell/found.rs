//! What a reading has found so far: commands, redirections, what was assigned and where it matters.
//!
//! Some findings count for the whole line whatever their place, because loops and functions turn the order round:
//! poisoned environments, shadowed names, a changed directory, values that arithmetic would run.

use std::collections::BTreeSet;

use super::shape::Values;
use super::{COMMANDS, Command, Line, Redirect, Shape, Word, environment};

/// The most directories of one line that are followed.
const DIRECTORIES: usize = 16;
/// The most values of one variable that are followed.
const VALUES: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) line: Line,
    /// Where commands begin in the line as it was given.
    pub(super) starts: Vec<usize>,
    /// Functions that the line defines.
    functions: BTreeSet<String>,
    /// Variables that are given anything but a number.
    texts: BTreeSet<String>,
    /// What variables are given.
    values: Values,
    /// A script in this very shell may give variables any value.
    forgets: bool,
    /// Globs find hidden names, or names in other letters.
    hidden: bool,
    letters: bool,
    /// What the command that is being read gets on its standard input.
    pub(super) input: Option<Shape>,
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

    /// How many commands and redirections were found so far.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.line.commands.len(), self.line.redirects.len())
    }

    pub(super) fn redirect(&mut self, target: Word, writes: bool) {
        let network = match &target {
            Word::Known(path) | Word::Unknown { raw: path, .. } => {
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
        if name == "command_not_found_handle" {
            self.unsure("a function is called for every name that is no command");
        }
        self.functions.insert(name.to_owned());
    }

    /// A script runs in this very shell: variables may hold anything, and names may mean anything.
    pub(super) fn forgets(&mut self) {
        self.forgets = true;
    }

    /// An option by which globs find more.
    pub(super) fn globs_find_more(&mut self, option: &str) {
        self.hidden |= option == "dotglob";
        self.letters |= option == "nocaseglob";
    }

    pub(super) fn moves(&mut self, arguments: &[Word]) {
        self.moves = true;
        let target = arguments.iter().filter_map(Word::known).find(|word| !word.starts_with('-'));
        let Some(target) = target else { return };
        let directories = &mut self.line.directories;
        if directories.len() >= DIRECTORIES {
            return;
        }
        let below =
            directories.last().filter(|_| !target.starts_with('/')).map(|last| format!("{last}/{target}"));
        directories.push(target.to_owned());
        directories.extend(below);
    }

    /// A variable gets a value that stays for what follows.
    pub(super) fn assigned(&mut self, name: &str, value: &Word, exported: bool) {
        let given = self.values.entry(name.to_owned()).or_default();
        if given.len() >= VALUES {
            *given = vec![Shape::anything()];
        }
        given.push(match value {
            Word::Known(text) => Shape::text(text),
            Word::Unknown { shape, .. } => shape.clone(),
        });
        if environment::hides(name, value) {
            self.unsure(format!("`{name}` can make a shell run what the line does not say"));
        }
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
        self.settle();
        if self.moves {
            for redirect in &mut self.line.redirects {
                if let Word::Known(path) = &redirect.target
                    && !path.starts_with('/')
                {
                    redirect.target = Word::Unknown { raw: path.clone(), shape: Shape::text(path) };
                }
            }
        }
        self.line
    }
}

impl Found {
    /// Puts what variables hold into the shapes of words.
    fn settle(&mut self) {
        let mut values = std::mem::take(&mut self.values);
        let splits = values.remove("IFS").is_some();
        let hidden = self.hidden || values.contains_key("GLOBIGNORE");
        if splits || self.forgets {
            values.values_mut().for_each(|given| *given = vec![Shape::anything()]);
        }
        let words = self.line.commands.iter_mut().flat_map(|command| &mut command.words);
        let targets = self.line.redirects.iter_mut().map(|redirect| &mut redirect.target);
        for word in words.chain(targets) {
            if let Word::Unknown { shape, .. } = word {
                shape.settle(&values);
                if hidden || self.letters {
                    shape.widen(hidden, self.letters);
                }
            }
        }
    }
}

/// A plain decimal number, which arithmetic can only read as itself.
pub(super) fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}
