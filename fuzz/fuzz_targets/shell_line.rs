//! Any text as a shell line: parsing stays within its limits, returns the same twice, displays no control characters, and
//! is uncertain about text that a user could not see. Nothing panics.

#![no_main]

use libfuzzer_sys::fuzz_target;
use minke_policy::shell::{MAX_COMMANDS, parse_shell_line};

fuzz_target!(|line: &str| {
    let parsed = parse_shell_line(line);
    assert_eq!(parsed, parse_shell_line(line));
    assert!(parsed.commands.len() <= MAX_COMMANDS && parsed.redirects.len() <= MAX_COMMANDS);
    for text in parsed.command_texts() {
        assert!(!text.chars().any(char::is_control), "{text:?}");
    }
    if parsed.uncertain_reason.is_none() {
        assert!(!line.contains(['\r', '\0', '\u{1b}', '\u{202e}', '\u{200b}']));
        for command in &parsed.commands {
            assert!(command.words.first().is_some_and(|word| word.as_known().is_some()));
        }
    }
});
