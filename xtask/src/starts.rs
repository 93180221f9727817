//! Programs that the product starts: each is found by the one lookup, or is this program itself.
//!
//! A bare name handed to `Command::new` is looked up in `PATH` as it is, relative parts and the workspace included.
//! Invariant: `no_program_is_started_by_its_bare_name` in tests/house.rs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What a file of the product may hand to `Command::new`: a program that the lookup gave, a fixed absolute path, or this
/// program's own file.
const REVIEWED: [(&str, &str); 11] = [
    ("crates/cli/src/store.rs", "program"),
    ("crates/cli/src/top/mod.rs", "std::env::current_exe()?"),
    ("crates/cli/src/tour/outside.rs", "binary"),
    ("crates/cli/src/tour/place.rs", "sh"),
    ("crates/client/src/launch.rs", "executable().map_err(failed(\"find the executable of\"))?"),
    ("crates/exec/src/fence/spare.rs", "helper.path()"),
    ("crates/exec/src/git.rs", "&self.program"),
    ("crates/host/src/instance.rs", "executable"),
    // Sets the umask of a program that its callers looked up.
    ("crates/programs/src/lib.rs", "program"),
    // A module of tests.
    ("crates/registry/src/cuts.rs", "std::env::current_exe().unwrap()"),
    ("crates/tui/src/editor.rs", "found"),
];

/// Files that may read `PATH`: the lookup, the environment of commands, what a sandbox shows of it, and the scope of a broad
/// root, which keeps its directories from being written.
const READERS: [&str; 5] = [
    "crates/programs/src/lib.rs",
    "crates/cli/src/create.rs",
    "crates/exec/src/fence/places.rs",
    "crates/exec/src/fence/helper.rs",
    // It hashes what a command may find there, and starts nothing.
    "crates/driver/src/scripts.rs",
];

/// How code reads or takes apart a `PATH`.
const SEARCHES: [&str; 3] = ["split_paths(", "var_os(\"PATH\")", "var(\"PATH\")"];

/// Every start of a program, and every search of `PATH`, that nobody has reviewed.
pub fn unreviewed(root: &Path, files: &[PathBuf]) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| is_product(file)) {
        let text = fs::read_to_string(root.join(file))?;
        let complaints = in_text(&file.to_string_lossy(), &text);
        found.extend(complaints.into_iter().map(|complaint| format!("{}:{complaint}", file.display())));
    }
    Ok(found)
}

fn is_product(file: &Path) -> bool {
    let in_src = file.components().nth(2).is_some_and(|part| part.as_os_str() == "src");
    in_src && file.starts_with("crates") && !file.starts_with("crates/testkit")
}

/// The complaints about one file, with their lines.
pub fn in_text(file: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        // From here to the end of a file are its tests.
        if line.trim() == "#[cfg(test)]" {
            break;
        }
        for (at, _) in line.match_indices("Command::new(") {
            let handed = argument(line.get(at + "Command::new(".len()..).unwrap_or_default());
            let fixed = handed.starts_with("\"/");
            // The argument parser has a type of this name, too.
            let parser = line.get(..at).unwrap_or_default().ends_with("clap::");
            if !fixed && !parser && !REVIEWED.contains(&(file, handed)) {
                found.push(format!(
                    "{number} starts `{handed}`, which the lookup in `programs` has not given"
                ));
            }
        }
        let searches = SEARCHES.iter().any(|search| line.contains(search));
        if searches && !READERS.contains(&file) {
            found.push(format!("{number} reads `PATH` beside the lookup in `programs`"));
        }
    }
    found
}

/// What stands before the parenthesis that closes the call.
fn argument(rest: &str) -> &str {
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
