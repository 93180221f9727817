//! The sandbox helper as a separate binary, for tests, whose own binaries cannot act as the helper.
//!
//! `minke` is its own helper and does not need this one.

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args_os().next() {
        Some(name) if minke_exec::sandbox::is_helper(&name) => minke_exec::sandbox::helper_main(),
        _ => {
            eprintln!("minke-sandbox is started by a pod, not by the user");
            ExitCode::FAILURE
        }
    }
}
