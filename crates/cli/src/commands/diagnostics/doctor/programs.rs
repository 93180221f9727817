//! Programs that commands and users may need. They are looked up, not run.

use std::path::PathBuf;

use minke_launch::find_workspace;
use minke_programs::ProgramLookup;
use serde_json::{Map, Value, json};

use super::{Finding, Inspection};
use crate::context::CliContext;

pub(super) fn inspect_programs(context: &CliContext) -> Inspection {
    let bash = find_program("bash", context);
    let sh = Some(PathBuf::from("/bin/sh"))
        .filter(|sh| ProgramLookup::with_path(None, [&context.env.cwd]).find_program(sh).is_ok());
    let git = find_program("git", context);
    let rg = find_program("rg", context);
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
                "neither bash nor /bin/sh exists: no command can run",
                "install bash",
            ),
        },
        match &git {
            Some(path) => Finding::good("git", path.display().to_string()),
            None => Finding::note(
                "git",
                "not found",
                "install git if you work in repositories: models use it in commands",
            ),
        },
        match &rg {
            Some(path) => Finding::good("rg", path.display().to_string()),
            None => {
                Finding::note("rg", "not found", "nothing to do: the Grep tool has the same engine built in")
            }
        },
    ];
    if let Some(unused) =
        minke_config::trust::scan_workspace(&find_workspace(&context.env.cwd)).unused_notice()
    {
        findings.push(Finding::note(
            "mcp",
            unused,
            "nothing to do: the tools of these servers are not offered",
        ));
    }
    let row = |path: &Option<PathBuf>| json!(path.as_ref().map(|path| path.display().to_string()));
    let rows = [("bash", &bash), ("sh", &sh), ("git", &git), ("rg", &rg)];
    let value: Map<String, Value> = rows.iter().map(|(name, path)| ((*name).to_owned(), row(path))).collect();
    Inspection { findings, value: value.into() }
}

/// Finds a program in `PATH` as pods do: never in a workspace.
fn find_program(name: &str, context: &CliContext) -> Option<PathBuf> {
    let path = context.env.user_env.env.get(std::ffi::OsStr::new("PATH")).map(std::ffi::OsString::as_os_str);
    ProgramLookup::with_path(path, [find_workspace(&context.env.cwd)]).find_program(name).ok()
}
