//! What this process says on stderr, which may be a file on a full disk or a pipe that nobody reads.
//!
//! Invariant: a line that cannot be written never ends the process, as `eprintln!` would
//! (`a_home_that_is_wholly_full_ends_the_run_as_documented`).

use std::fmt::Arguments;
use std::io::Write;

/// Writes one line. One that cannot be written is lost: stderr is where that would be said.
pub(crate) fn write_line(line: Arguments<'_>) {
    drop(writeln!(std::io::stderr().lock(), "{line}"));
}

/// The same as `eprintln!`, but for what happens when the line cannot be written.
macro_rules! report {
    ($($words:tt)*) => { $crate::stderr::write_line(format_args!($($words)*)) };
}
pub(crate) use report;
