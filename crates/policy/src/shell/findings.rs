//! The findings of a parse: commands, redirections, assignments and their effects.
//!
//! Some findings apply to the whole line wherever they occur, because loops and functions change the order:
//! dangerous variables, redefined names, a changed directory, values that arithmetic would run.

use std::collections::BTreeSet;

use super::shape::VariableValues;
use super::{MAX_COMMANDS, ShellCommand, ShellLine, ShellRedirect, ShellWord, WordShape, words::env_vars};

/// The maximum number of directories of one line that are tracked.
const MAX_DIRECTORIES: usize = 16;
/// The maximum number of values of one variable that are tracked.
const MAX_VALUES: usize = 64;

#[derive(Debug, Default)]
pub(super) struct ShellFindings {
    pub(super) line: ShellLine,
    /// The positions of commands in the original line.
    pub(super) command_starts: Vec<usize>,
    /// Functions that the line defines.
    functions: BTreeSet<String>,
    /// Variables that are assigned a value which is not a number.
    text_variables: BTreeSet<String>,
    /// The values assigned to variables.
    values: VariableValues,
    /// A script that runs in this shell may assign any value to any variable.
    forgets_values: bool,
    /// Globs match hidden names, or ignore case.
    globs_hidden: bool,
    globs_any_case: bool,
    /// The standard input of the current command.
    pub(super) input: Option<WordShape>,
    /// Variables that arithmetic evaluates.
    evaluated: BTreeSet<String>,
    /// The first reason to doubt all commands: a dangerous variable that applies to all later commands.
    dangerous_reason: Option<String>,
    /// The line changes its directory.
    changes_directory: bool,
    /// The current nesting depth of shells.
    pub(super) depth: usize,
}

/// The number of commands and redirections at a position of the line.
#[derive(Debug, Clone, Copy)]
pub(super) struct FindingCounts {
    pub(super) commands: usize,
    pub(super) redirects: usize,
}

impl ShellFindings {
    /// Marks the line as uncertain. Keeps the first reason, because later ones are often consequences.
    pub(super) fn mark_uncertain(&mut self, reason: impl Into<String>) {
        if self.line.uncertain_reason.is_none() {
            self.line.uncertain_reason = Some(reason.into());
        }
    }

    /// Marks the line as malformed.
    pub(super) fn mark_malformed(&mut self, reason: impl Into<String>) {
        self.mark_uncertain(reason);
        self.line.is_malformed = true;
    }

    /// Adds a command; returns false if there are too many.
    pub(super) fn add_command(&mut self, command: ShellCommand) -> bool {
        if self.line.commands.len() >= MAX_COMMANDS {
            self.mark_uncertain(format!("the line runs more than {MAX_COMMANDS} commands"));
            return false;
        }
        self.line.commands.push(command);
        true
    }

    /// Returns the number of commands and redirections so far.
    pub(super) fn counts(&self) -> FindingCounts {
        FindingCounts { commands: self.line.commands.len(), redirects: self.line.redirects.len() }
    }

    pub(super) fn add_redirect(&mut self, target: ShellWord, writes: bool) {
        let network = match &target {
            ShellWord::Known(path) | ShellWord::Unknown { raw: path, .. } => {
                let path = path.trim_matches(['"', '\'']);
                path.starts_with("/dev/tcp/") || path.starts_with("/dev/udp/")
            }
        };
        if network {
            self.mark_uncertain(format!("the shell itself would open a network connection ({target})"));
        }
        if self.line.redirects.len() >= MAX_COMMANDS {
            self.mark_uncertain(format!("the line opens more than {MAX_COMMANDS} files"));
            return;
        }
        self.line.redirects.push(ShellRedirect { target, writes });
    }

    pub(super) fn add_function(&mut self, name: &str) {
        if name == "command_not_found_handle" {
            self.mark_uncertain("a function is called for every unknown command name");
        }
        self.functions.insert(name.to_owned());
    }

    /// Records a script that runs in this shell: variables may have any value, and names may have any
    /// meaning.
    pub(super) fn forget_values(&mut self) {
        self.forgets_values = true;
    }

    /// Records an option that makes globs match more names.
    pub(super) fn apply_glob_option(&mut self, option: &str) {
        self.globs_hidden |= option == "dotglob";
        self.globs_any_case |= option == "nocaseglob";
    }

    pub(super) fn enter_directory(&mut self, arguments: &[ShellWord]) {
        self.changes_directory = true;
        let target = arguments.iter().filter_map(ShellWord::as_known).find(|word| !word.starts_with('-'));
        let Some(target) = target else { return };
        let directories = &mut self.line.directories;
        if directories.len() >= MAX_DIRECTORIES {
            return;
        }
        let below =
            directories.last().filter(|_| !target.starts_with('/')).map(|last| format!("{last}/{target}"));
        directories.push(target.to_owned());
        directories.extend(below);
    }

    /// Records the assignment of a variable that applies to later commands.
    pub(super) fn assign_variable(&mut self, name: &str, value: &ShellWord, exported: bool) {
        let given = self.values.entry(name.to_owned()).or_default();
        if given.len() >= MAX_VALUES {
            *given = vec![WordShape::any_text()];
        }
        given.push(match value {
            ShellWord::Known(text) => WordShape::from_text(text),
            ShellWord::Unknown { shape, .. } => shape.clone(),
        });
        if env_vars::hides_commands(name, value) {
            self.mark_uncertain(format!("`{name}` can make a shell run hidden commands"));
        }
        if !value.as_known().is_some_and(is_number) {
            self.text_variables.insert(name.to_owned());
        }
        let dangerous = if exported {
            !env_vars::is_harmless_variable(name)
        } else {
            env_vars::is_dangerous_variable(name)
        };
        if dangerous {
            self.mark_dangerous(format!("`{name}` is set, which can change the effect of commands"));
        }
    }

    pub(super) fn mark_dangerous(&mut self, reason: String) {
        self.dangerous_reason.get_or_insert(reason);
    }

    /// Records a variable whose value arithmetic would evaluate.
    pub(super) fn add_evaluated(&mut self, name: &str) {
        self.evaluated.insert(name.to_owned());
    }

    /// Applies the findings for the whole line and returns it.
    pub(super) fn finish(mut self) -> ShellLine {
        if let Some(name) = self.evaluated.intersection(&self.text_variables).next() {
            let reason = format!(
                "arithmetic evaluates `{name}`, whose value may not be a number; a value such as `a[$(…)]` would run"
            );
            self.mark_uncertain(reason);
        }
        for command in &mut self.line.commands {
            let name = command.words.first().and_then(ShellWord::as_known);
            if let Some(name) = name.filter(|name| self.functions.contains(*name)) {
                let reason = format!("`{name}` is a function that the line defines");
                command.opaque_reason.get_or_insert(reason);
            }
            if let Some(dangerous) = &self.dangerous_reason {
                command.opaque_reason.get_or_insert_with(|| dangerous.clone());
            }
        }
        self.resolve_variables();
        if self.changes_directory {
            for redirect in &mut self.line.redirects {
                if let ShellWord::Known(path) = &redirect.target
                    && !path.starts_with('/')
                {
                    redirect.target =
                        ShellWord::Unknown { raw: path.clone(), shape: WordShape::from_text(path) };
                }
            }
        }
        self.line
    }
}

impl ShellFindings {
    /// Replaces variables in the shapes of words by their values.
    fn resolve_variables(&mut self) {
        let mut values = std::mem::take(&mut self.values);
        let splits = values.remove("IFS").is_some();
        let hidden = self.globs_hidden || values.contains_key("GLOBIGNORE");
        if splits || self.forgets_values {
            values.values_mut().for_each(|given| *given = vec![WordShape::any_text()]);
        }
        let words = self.line.commands.iter_mut().flat_map(|command| &mut command.words);
        let targets = self.line.redirects.iter_mut().map(|redirect| &mut redirect.target);
        for word in words.chain(targets) {
            if let ShellWord::Unknown { shape, .. } = word {
                shape.resolve(&values);
                if hidden || self.globs_any_case {
                    shape.widen_globs(hidden, self.globs_any_case);
                }
            }
        }
    }
}

/// Returns whether a text is a plain decimal number, which arithmetic cannot interpret in another way.
pub(super) fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}
