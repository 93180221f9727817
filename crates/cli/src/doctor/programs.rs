//! Programs that commands and people may want. They are looked for, not run.

use std::path::PathBuf;

use minke_programs::Lookup;
use serde_json::{Map, Value, json};

use super::{Finding, Looked};
use crate::around::Surroundings;

pub(super) fn look(around: &Surroundings) -> Looked {
    let bash = find("bash", around);
    let sh = Some(PathBuf::from("/bin/sh")).filter(|sh| Lookup::over(None, [&around.cwd]).find(sh).is_ok());
    let git = find("git", around);
    let rg = find("rg", around);
    let mut findings = vec![
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
    if let Some(unused) = minke_trust::look(&Surroundings::workspace(&around.cwd)).unused() {
        findings.push(Finding::note(
            "mcp",
            unused,
            "nothing to do: the tools of these servers are not offered",
        ));
    }
    let row = |path: &Option<PathBuf>| json!(path.as_ref().map(|path| path.display().to_string()));
    let rows = [("bash", &bash), ("sh", &sh), ("git", &git), ("rg", &rg)];
    let value: Map<String, Value> = rows.iter().map(|(name, path)| ((*name).to_owned(), row(path))).collect();
    Looked { findings, value: value.into() }
}

/// A program in the directories of `PATH`, as pods find it: never in a workspace.
fn find(name: &str, around: &Surroundings) -> Option<PathBuf> {
    let path = around.user.env.get(std::ffi::OsStr::new("PATH")).map(std::ffi::OsString::as_os_str);
    Lookup::over(path, [Surroundings::workspace(&around.cwd)]).find(name).ok()
}
