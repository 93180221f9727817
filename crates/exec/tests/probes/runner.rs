//! A test runner in little: lists and runs the functions of `main.rs` as the standard one would, so that `cargo test` and
//! `cargo nextest` take this binary for an ordinary one.

use std::io::{self, Write};
use std::panic;
use std::process::ExitCode;

pub(crate) type Test = (&'static str, fn());

/// Functions marked as tests, and the list of them.
macro_rules! tests {
    ($(#[test] fn $name:ident() $body:block)*) => {
        $(fn $name() $body)*
        const TESTS: &[$crate::runner::Test] = &[$((stringify!($name), $name)),*];
    };
}
pub(crate) use tests;

pub(crate) fn main(args: &[String], tests: &[Test]) -> ExitCode {
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    let mut words = args.iter().filter(|arg| !arg.starts_with("--") && *arg != "terse");
    // No test is marked as ignored.
    let wanted: &[Test] = if has("--ignored") { &[] } else { tests };
    if has("--list") {
        let names: String = wanted.iter().map(|(name, _)| format!("{name}: test\n")).collect();
        return code(io::stdout().write_all(names.as_bytes()).is_ok());
    }
    let filter = words.next().map_or("", String::as_str);
    let chosen = |name: &str| if has("--exact") { name == filter } else { name.contains(filter) };
    let mut passed = true;
    for (name, test) in wanted.iter().filter(|(name, _)| chosen(name)) {
        let ok = panic::catch_unwind(test).is_ok();
        eprintln!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
        passed &= ok;
    }
    code(passed)
}

fn code(passed: bool) -> ExitCode {
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
