//! The fence's helper, for this crate's own tests: a test's binary cannot be executed again as one.
//!
//! `minke` is its own helper and does not need this one.

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args_os().next() {
        Some(name) if minke_exec::fence::is_helper(&name) => minke_exec::fence::helper_main(),
        _ => {
            eprintln!("hooks-fence is started by a test, not by hand");
            ExitCode::FAILURE
        }
    }
}
