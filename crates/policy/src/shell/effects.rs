//! The effects of commands: which of their arguments are commands too. Each command is listed before the ones
//! it runs.

use super::findings::ShellFindings;
use super::parse::{ParseResult, parse_error, parse_nested};
use super::{
    MAX_SHELL_DEPTH, ShellCommand, ShellWord, base_name, commands::builtin, commands::code, commands::git,
    commands::launch, commands::wrapper, words::env_vars,
};

/// A command that another command runs.
#[derive(Debug)]
pub(super) enum InnerCommand {
    /// Words that run as they are, inside the construct of the label.
    Words { words: Vec<ShellWord>, assignments: Vec<(String, ShellWord)>, label: String },
    /// A line for a shell.
    Line { text: ShellWord, label: String },
    /// The commands on standard input.
    Stdin { label: String },
}

/// The effect of a command.
#[derive(Debug, Default)]
pub(super) struct CommandEffect {
    pub(super) inner: Vec<InnerCommand>,
    pub(super) opaque_reason: Option<String>,
    pub(super) uncertain_reason: Option<String>,
}

impl CommandEffect {
    pub(super) fn uncertain(reason: impl Into<String>) -> CommandEffect {
        CommandEffect { uncertain_reason: Some(reason.into()), ..CommandEffect::default() }
    }

    pub(super) fn opaque(reason: impl Into<String>) -> CommandEffect {
        CommandEffect { opaque_reason: Some(reason.into()), ..CommandEffect::default() }
    }

    pub(super) fn shell_line(text: ShellWord, label: impl Into<String>) -> CommandEffect {
        CommandEffect {
            inner: vec![InnerCommand::Line { text, label: label.into() }],
            ..CommandEffect::default()
        }
    }

    pub(super) fn run_words(words: &[ShellWord], label: impl Into<String>) -> CommandEffect {
        if words.is_empty() {
            return CommandEffect::default();
        }
        let inner =
            InnerCommand::Words { words: words.to_vec(), assignments: Vec::new(), label: label.into() };
        CommandEffect { inner: vec![inner], ..CommandEffect::default() }
    }

    pub(super) fn with_uncertain(mut self, reason: impl Into<String>) -> CommandEffect {
        self.uncertain_reason.get_or_insert(reason.into());
        self
    }

    pub(super) fn with_opaque(mut self, reason: impl Into<String>) -> CommandEffect {
        self.opaque_reason.get_or_insert(reason.into());
        self
    }
}

/// Records a command and all commands that it runs. If it is a shell that reads commands from its standard
/// input, returns the constructs that those commands are inside of.
pub(super) fn record_command(
    findings: &mut ShellFindings,
    mut command: ShellCommand,
) -> ParseResult<Option<Vec<String>>> {
    let Some(first) = command.words.first() else { return Ok(None) };
    let Some(name) = first.as_known().filter(|name| !name.is_empty()).map(|name| base_name(name).to_owned())
    else {
        findings.mark_uncertain(format!("the name of the command is known only at run time: {first}"));
        command.opaque_reason = Some("its name is unknown".to_owned());
        return add_command(findings, command);
    };
    let effect = command_effect(&name, &command.words, findings);
    if !builtin::is_declaration(&name)
        && let Some((name, _)) =
            command.assignments.iter().find(|(variable, _)| !is_harmless_assignment(&name, variable))
    {
        let reason = format!("the variable `{name}=` can change its effect");
        command.opaque_reason = Some(reason);
    }
    let hides = |(variable, value): &&(String, ShellWord)| {
        env_vars::hides_commands(variable, value) || (variable == "ENV" && launch::is_shell(&name))
    };
    if let Some((variable, _)) = command.assignments.iter().find(hides) {
        findings.mark_uncertain(format!("`{variable}=` can make a shell run hidden commands"));
    }
    if command.opaque_reason.is_none() {
        command.opaque_reason = effect.opaque_reason;
    }
    if let Some(reason) = effect.uncertain_reason {
        findings.mark_uncertain(reason);
    }
    let inside = command.enclosing.clone();
    add_command(findings, command)?;
    let mut script = None;
    for inner in effect.inner {
        script = self::record_inner(findings, inner, &inside)?.or(script);
    }
    Ok(script)
}

/// Returns whether an exported variable does not change the effect of a command. `IFS= read` is the usual way
/// to read lines.
fn is_harmless_assignment(name: &str, variable: &str) -> bool {
    env_vars::is_harmless_variable(variable)
        || (variable == "IFS" && matches!(name, "read" | "mapfile" | "readarray"))
}

/// Syntax that only bash supports.
const BASH_ONLY_SYNTAX: &[&str] = &[
    "$'", "$\"", "[[", "((", "<(", ">(", "&>", ">&", "|&", "<<<", "function", "select", "coproc", "time",
    "{", "$[",
];

/// Checks a line for a shell that may not be bash: syntax of bash has another meaning in others.
pub(super) fn check_other_shell(findings: &mut ShellFindings, label: &str, text: &str) {
    if matches!(label, "eval" | "trap" | "mapfile -C" | "bash -c" | "rbash -c" | "bash" | "rbash") {
        return;
    }
    // All shells duplicate descriptors in the same way.
    let text = text.replace(">&1", "").replace(">&2", "");
    if let Some(odd) = BASH_ONLY_SYNTAX.iter().find(|odd| text.contains(**odd)) {
        findings.mark_uncertain(format!("the shell of `{label}` may parse `{odd}` differently from bash"));
    }
}

fn add_command(found: &mut ShellFindings, command: ShellCommand) -> ParseResult<Option<Vec<String>>> {
    if found.add_command(command) { Ok(None) } else { parse_error("too many commands") }
}

fn command_effect(name: &str, words: &[ShellWord], findings: &mut ShellFindings) -> CommandEffect {
    if name == "git" {
        return git::git_effect(words);
    }
    builtin::builtin_effect(name, words, findings)
        .or_else(|| launch::launch_effect(name, words, findings.input.as_ref()))
        .or_else(|| wrapper::wrapper_effect(name, words))
        .or_else(|| code::code_effect(name, words))
        .unwrap_or_default()
}

fn record_inner(
    found: &mut ShellFindings,
    inner: InnerCommand,
    inside: &[String],
) -> ParseResult<Option<Vec<String>>> {
    let within = |label: String| -> Vec<String> { inside.iter().cloned().chain([label]).collect() };
    match inner {
        InnerCommand::Stdin { label } => Ok(Some(within(label))),
        InnerCommand::Line { text: ShellWord::Known(text), label } => {
            check_other_shell(found, &label, &text);
            parse_nested(&text, found, within(label));
            Ok(None)
        }
        InnerCommand::Line { text: ShellWord::Unknown { raw, .. }, label } => {
            found.mark_uncertain(format!("`{label}` runs a line that is known only at run time: {raw}"));
            // Parse the visible text for rules that deny.
            parse_nested(raw.trim_matches('"'), found, within(label));
            Ok(None)
        }
        InnerCommand::Words { words, assignments, label } => {
            if found.depth >= MAX_SHELL_DEPTH {
                return parse_error(format!("commands are nested more than {MAX_SHELL_DEPTH} deep"));
            }
            found.depth += 1;
            let script = record_command(
                found,
                ShellCommand { words, assignments, enclosing: within(label), opaque_reason: None },
            );
            found.depth -= 1;
            script
        }
    }
}

/// Returns the output of a command, if it is plain text: a shell after the pipe may read it.
pub(super) fn plain_output(command: &ShellCommand) -> Option<String> {
    let mut words = Vec::new();
    for word in &command.words {
        words.push(word.as_known()?);
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

/// Joins words with spaces, if all are known.
pub(super) fn join_words(words: &[ShellWord]) -> ShellWord {
    let known: Option<Vec<&str>> = words.iter().map(ShellWord::as_known).collect();
    match known {
        Some(known) => ShellWord::Known(known.join(" ")),
        None => {
            let raw: Vec<String> = words.iter().map(ShellWord::to_string).collect();
            ShellWord::any_value(raw.join(" "))
        }
    }
}
