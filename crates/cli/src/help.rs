//! `minke --help`: the commands in their groups.

use std::fmt::Write;

use clap::Command;

/// Column at which the description of a command begins.
const DESCRIPTION_COLUMN: usize = 12;

/// Returns the command with a help text that lists its subcommands in groups. The n-th subcommand belongs to the
/// n-th group; neighbours with the same group share a heading.
pub(crate) fn group_commands(command: Command, group_of_command: &[&str]) -> Command {
    let styles = command.get_styles().clone();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let mut groups = String::new();
    let mut current = "";
    for (subcommand, group) in command.get_subcommands().zip(group_of_command) {
        if subcommand.is_hide_set() {
            continue;
        }
        if *group != current {
            current = group;
            write!(groups, "\n{header}{group}:{header:#}\n").expect("a String accepts every text");
        }
        let name = subcommand.get_name();
        let gap = DESCRIPTION_COLUMN.saturating_sub(name.len() + 2).max(1);
        let about = subcommand.get_about().map(ToString::to_string).unwrap_or_default();
        writeln!(groups, "  {literal}{name}{literal:#}{:gap$}{about}", "")
            .expect("a String accepts every text");
    }
    let template = format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n{groups}\n{header}Options:{header:#}\n{{options}}\n\n\
         `minke COMMAND --help` describes a command; without a command, `minke` opens the terminal UI.\n"
    );
    command.help_template(template)
}
