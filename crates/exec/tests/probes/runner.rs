//! A minimal test runner: lists and runs the functions of `main.rs` like the standard one, for `cargo test` and
//! `cargo nextest`.

use std::io::{self, Write};
use std::panic;
use std::process::ExitCode;

pub(crate) type TestEntry = (&'static str, fn());

/// Defines test functions and their list.
macro_rules! tests {
    ($(#[test] fn $name:ident() $body:block)*) => {
        $(fn $name() $body)*
        const TESTS: &[$crate::runner::TestEntry] = &[$((stringify!($name), $name)),*];
    };
}
pub(crate) use tests;

pub(crate) fn main(args: &[String], tests: &[TestEntry]) -> ExitCode {
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    let mut words = args.iter().filter(|arg| !arg.starts_with("--") && *arg != "terse");
    // No test is marked as ignored.
    let wanted: &[TestEntry] = if has("--ignored") { &[] } else { tests };
    if has("--list") {
        let names: String = wanted.iter().map(|(name, _)| format!("{name}: test\n")).collect();
        return exit_code(io::stdout().write_all(names.as_bytes()).is_ok());
    }
    let filter = words.next().map_or("", String::as_str);
    let chosen = |name: &str| if has("--exact") { name == filter } else { name.contains(filter) };
    let mut passed = true;
    for (name, test) in wanted.iter().filter(|(name, _)| chosen(name)) {
        let ok = panic::catch_unwind(test).is_ok();
        eprintln!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
        passed &= ok;
    }
    exit_code(passed)
}

fn exit_code(passed: bool) -> ExitCode {
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
