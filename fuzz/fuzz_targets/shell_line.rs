//! Any text as a shell line: reading ends within its bounds, gives the same twice, shows nothing that does not show, and
//! is unsure of what a person could not read. Nothing panics.

#![no_main]

use libfuzzer_sys::fuzz_target;
use minke_policy::shell::{self, COMMANDS};

fuzz_target!(|line: &str| {
    let read = shell::read(line);
    assert_eq!(read, shell::read(line));
    assert!(read.commands.len() <= COMMANDS && read.redirects.len() <= COMMANDS);
    for shown in read.shown() {
        assert!(!shown.chars().any(char::is_control), "{shown:?}");
    }
    if read.unsure.is_none() {
        assert!(!line.contains(['\r', '\0', '\u{1b}', '\u{202e}', '\u{200b}']));
        for command in &read.commands {
            assert!(command.words.first().is_some_and(|word| word.known().is_some()));
        }
    }
});
