//! Programs that commands and people may want. They are looked for, not run.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::{Finding, Looked};
use crate::around::Surroundings;

pub(super) fn look(around: &Surroundings) -> Looked {
    let bash = find("bash", around);
    let sh = Some(PathBuf::from("/bin/sh")).filter(|path| executable(path));
    let git = find("git", around);
    let rg = find("rg", around);
    let findings = vec![
        match (&bash, &sh) {
            (Some(path), _) => Finding::good("bash", path.display().to_string()),
            (None, Some(sh)) => Finding::note(
                "bash",
                format!("not found: commands run with {}", sh.display()),
                "install bash: models write commands for it",
            ),
            (None, None) => Finding::problem(
                "bash",
                "neither bash nor /bin/sh is there: no command can run",
                "install bash",
            ),
        },
        match &git {
            Some(path) => Finding::good("git", path.display().to_string()),
            None => Finding::note(
                "git",
                "not found",
                "install git if your work is in repositories: models use it in commands",
            ),
        },
        match &rg {
            Some(path) => Finding::good("rg", path.display().to_string()),
            None => {
                Finding::note("rg", "not found", "nothing to do: the tool Grep has the same engine built in")
            }
        },
    ];
    let row = |path: &Option<PathBuf>| json!(path.as_ref().map(|path| path.display().to_string()));
    let rows = [("bash", &bash), ("sh", &sh), ("git", &git), ("rg", &rg)];
    let value: Map<String, Value> = rows.iter().map(|(name, path)| ((*name).to_owned(), row(path))).collect();
    Looked { findings, value: value.into() }
}

/// A program in the directories of `PATH`. Relative ones are left out: they mean another place for every command.
fn find(name: &str, around: &Surroundings) -> Option<PathBuf> {
    let path = around.user.env.get(std::ffi::OsStr::new("PATH"))?;
    std::env::split_paths(path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(name))
        .find(|path| executable(path))
}

fn executable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
