//! `minke --help` lists every command in its group, in one imperative line, and each group is a folder of sources.

use std::path::Path;

use crate::support::world::CliWorld;

/// The headings of `minke --help`, with the folders of their commands.
const GROUPS: [(&str, &str); 7] = [
    ("Run", "run"),
    ("Watch and steer", "watch"),
    ("Approvals", "approvals"),
    ("Sessions", "sessions"),
    ("Automation", "automation"),
    ("Setup", "setup"),
    ("Diagnostics", "diagnostics"),
];

/// Maximum length of the description of a command or option.
const MAX_DESCRIPTION: usize = 70;

/// The verbs with which descriptions of commands begin.
const VERBS: &str = "Add Answer Archive Attach Cancel Check Clear Compare Create Delete Demonstrate Evaluate Export \
    Fork Import List Load Manage Move Name Pause Print Read Rebuild Remove Rename Repair Replay Restore Resume Retry \
    Review Run Save Search Send Serve Set Show Start Stop Store Undo Unarchive Verify Wait Watch Write";

/// A command as `minke --help` lists it.
struct ListedCommand {
    group: String,
    name: String,
    description: String,
}

fn listed_commands(help: &str) -> Vec<ListedCommand> {
    let mut commands = Vec::new();
    let mut group = String::new();
    for line in help.lines().take_while(|line| *line != "Options:") {
        if let Some((name, description)) = line.strip_prefix("  ").and_then(|line| line.split_once(' ')) {
            let description = description.trim_start().to_owned();
            commands.push(ListedCommand { group: group.clone(), name: name.to_owned(), description });
        } else if let Some(heading) = line.strip_suffix(':') {
            group = heading.to_owned();
        }
    }
    commands
}

/// The lines under `Commands:` of a command with subcommands.
fn subcommand_lines(help: &str) -> Vec<(String, String)> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = lines.take_while(|line| line.starts_with("  "));
    listed
        .filter_map(|line| line.trim_start().split_once(' '))
        .map(|(name, about)| (name.to_owned(), about.trim_start().to_owned()))
        .filter(|(name, _)| name != "help")
        .collect()
}

/// Fails if an argument or option has no description, on its line or on the next one.
#[track_caller]
fn assert_arguments_described(command: &str, help: &str) {
    let lines: Vec<&str> = help.lines().collect();
    for pair in lines.windows(2) {
        let named = pair[0].trim_start();
        let indent = pair[0].len() - named.len();
        let is_argument = named.starts_with(['-', '<', '[']) && (2..=6).contains(&indent);
        let is_bare = !named.contains("  ") && !pair[1].starts_with("          ");
        assert!(!(is_argument && is_bare), "{command}: `{named}` has no description:\n{help}");
    }
}

#[track_caller]
fn assert_imperative(command: &str, description: &str) {
    let verb = description.split([' ', ',']).next().unwrap_or_default();
    assert!(
        VERBS.split_whitespace().any(|known| known == verb),
        "{command}: `{description}` starts with no verb"
    );
    let length = description.chars().count();
    assert!(length <= MAX_DESCRIPTION, "{command}: {length} characters in `{description}`");
    assert!(!description.ends_with('.'), "{command}: `{description}` ends with a period");
}

#[test]
fn every_command_has_a_group_and_a_file() {
    let help = CliWorld::new().run_minke(&["--help"]).out;
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/commands");
    let commands = listed_commands(&help);
    let mut headings: Vec<&str> = commands.iter().map(|command| command.group.as_str()).collect();
    headings.dedup();
    assert_eq!(headings, GROUPS.map(|(heading, _)| heading), "{help}");
    for command in &commands {
        let (_, folder) = GROUPS.iter().find(|(heading, _)| *heading == command.group).unwrap();
        let module = sources.join(folder).join(command.name.replace('-', "_"));
        let exists = module.with_extension("rs").exists() || module.join("mod.rs").exists();
        assert!(exists, "`{}` of group {} has no file {}", command.name, command.group, module.display());
    }
}

#[test]
fn every_command_is_described_in_one_imperative_line() {
    let world = CliWorld::new();
    let mut commands = listed_commands(&world.run_minke(&["--help"]).out);
    assert!(commands.len() > 30, "only {} commands are listed", commands.len());
    for command in commands.drain(..) {
        assert_imperative(&command.name, &command.description);
        let help = world.run_minke(&[&command.name, "--help"]).out;
        assert!(help.starts_with(&command.description), "{}: another first line:\n{help}", command.name);
        for (name, description) in subcommand_lines(&help) {
            assert_imperative(&format!("{} {name}", command.name), &description);
            let help = world.run_minke(&[&command.name, &name, "--help"]).out;
            assert_arguments_described(&format!("{} {name}", command.name), &help);
        }
        for line in help.lines() {
            assert!(line.chars().count() <= 100, "{}: a line of `--help` is too long: {line}", command.name);
        }
        assert_arguments_described(&command.name, &help);
    }
}
