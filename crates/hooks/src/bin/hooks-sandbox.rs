//! The sandbox helper for the tests of this crate: a test binary cannot serve as its own helper.
//!
//! `minke` is its own helper and does not need this one.

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args_os().next() {
        Some(name) if minke_exec::sandbox::is_helper(&name) => minke_exec::sandbox::helper_main(),
        _ => {
            eprintln!("hooks-sandbox is only for tests");
            ExitCode::FAILURE
        }
    }
}
