//! Messages on stderr, which may be a file on a full disk or a pipe without a reader.
//!
//! Invariant: a failed write never ends the process, unlike `eprintln!`
//! (`a_home_that_is_wholly_full_ends_the_run_as_documented`).

use std::fmt::Arguments;
use std::io::Write;

/// Writes one line. Ignores errors, since they could not be reported.
pub(crate) fn write_line(line: Arguments<'_>) {
    drop(writeln!(std::io::stderr().lock(), "{line}"));
}

/// Like `eprintln!`, but ignores write errors.
macro_rules! report {
    ($($words:tt)*) => { $crate::stderr::write_line(format_args!($($words)*)) };
}
pub(crate) use report;
