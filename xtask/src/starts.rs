//! Program starts: each program comes from the central lookup, or is this program itself.
//!
//! `Command::new` looks up a bare name in `PATH`, including relative parts and the workspace.
//! Invariant: `no_program_is_started_by_its_bare_name` in tests/house.rs.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// The allowed arguments of `Command::new` in a product file: a program from the lookup, a fixed absolute
/// path, or this program's own file.
const REVIEWED_STARTS: [(&str, &str); 11] = [
    ("crates/cli/src/process/store.rs", "program"),
    ("crates/cli/src/commands/watch/top/mod.rs", "std::env::current_exe()?"),
    ("crates/cli/src/commands/diagnostics/tour/launcher.rs", "binary"),
    ("crates/cli/src/commands/diagnostics/tour/workspace.rs", "sh"),
    ("crates/launch/src/process.rs", "current_executable().map_err(failed(\"find the executable of\"))?"),
    ("crates/exec/src/sandbox/helper/spare.rs", "helper.path()"),
    ("crates/exec/src/git.rs", "&self.program"),
    ("crates/host/src/instance.rs", "executable"),
    // Sets the umask of a program that its callers looked up.
    ("crates/programs/src/lib.rs", "program"),
    // A module of tests.
    ("crates/registry/src/cuts.rs", "std::env::current_exe().unwrap()"),
    ("crates/tui/src/editor.rs", "found"),
];

/// Files that may read `PATH`: the lookup, the environment of commands, the sandbox, and the scope of a broad
/// root, which protects the directories in `PATH` from writes.
const PATH_READERS: [&str; 5] = [
    "crates/programs/src/lib.rs",
    "crates/launch/src/create.rs",
    "crates/exec/src/sandbox/system_paths.rs",
    "crates/exec/src/sandbox/helper.rs",
    // It hashes files that a command may find there, and starts nothing.
    "crates/driver/src/calls/script_check.rs",
];

/// Code that reads or splits `PATH`.
const PATH_SEARCHES: [&str; 3] = ["split_paths(", "var_os(\"PATH\")", "var(\"PATH\")"];

/// Every unreviewed start of a program or search of `PATH`.
pub fn unreviewed_starts(root: &Path, files: &[PathBuf]) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| is_product_file(file)) {
        let text = fs::read_to_string(root.join(file))?;
        let complaints = problems_in(&file.to_string_lossy(), &text);
        found.extend(complaints.into_iter().map(|complaint| format!("{}:{complaint}", file.display())));
    }
    Ok(found)
}

fn is_product_file(file: &Path) -> bool {
    let in_src = file.components().nth(2).is_some_and(|part| part.as_os_str() == "src");
    in_src && file.starts_with("crates") && !file.starts_with("crates/testkit")
}

/// The problems of one file, with line numbers.
pub fn problems_in(file: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        // The rest of the file is its tests.
        if line.trim() == "#[cfg(test)]" {
            break;
        }
        for (at, _) in line.match_indices("Command::new(") {
            let handed = first_argument(line.get(at + "Command::new(".len()..).unwrap_or_default());
            let fixed = handed.starts_with("\"/");
            let before = line.get(..at).unwrap_or_default();
            // The argument parser has a type of this name, and other types end with it.
            let other_type = before.ends_with("clap::") || before.ends_with(char::is_alphanumeric);
            if !fixed && !other_type && !REVIEWED_STARTS.contains(&(file, handed)) {
                found.push(format!(
                    "{number} starts `{handed}`, which does not come from the lookup in `programs`"
                ));
            }
        }
        let searches = PATH_SEARCHES.iter().any(|search| line.contains(search));
        if searches && !PATH_READERS.contains(&file) {
            found.push(format!("{number} reads `PATH` outside of the lookup in `programs`"));
        }
    }
    found
}

/// The text before the closing parenthesis of the call.
fn first_argument(rest: &str) -> &str {
    let mut open = 0_usize;
    for (at, letter) in rest.char_indices() {
        match letter {
            '(' => open += 1,
            ')' if open == 0 => return rest.get(..at).unwrap_or(rest),
            ')' => open -= 1,
            _ => {}
        }
    }
    rest
}
