//! The fence's helper as a binary of its own: for tests, whose own binaries cannot be executed again.
//!
//! `minke` is its own helper and does not need this one.

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args_os().next() {
        Some(name) if minke_exec::fence::is_helper(&name) => minke_exec::fence::helper_main(),
        _ => {
            eprintln!("minke-fence is started by a pod, not by hand");
            ExitCode::FAILURE
        }
    }
}
