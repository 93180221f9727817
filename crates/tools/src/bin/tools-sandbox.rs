//! The sandbox helper for the tests of this crate, because a test binary cannot act as the helper.
//!
//! `minke` is its own helper and does not use this binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args_os().next() {
        Some(name) if minke_exec::sandbox::is_helper(&name) => minke_exec::sandbox::helper_main(),
        _ => {
            eprintln!("tools-sandbox is started by tests only");
            ExitCode::FAILURE
        }
    }
}
