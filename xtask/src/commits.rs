//! Subjects of commits: `area: imperative summary`, at most 72 characters.
//!
//! Invariant: a subject of another form is named (`a_commit_subject_of_another_form_is_named`).

use std::path::Path;
use std::process::Command;

/// The last commit before the rule.
const BEFORE_THE_RULE: &str = "21b959bf6be0dfb7f49b3fd18c6a2cb93862d58b";
const LONGEST: usize = 72;

/// Returns why a subject is refused.
pub fn problem(subject: &str) -> Option<&'static str> {
    if subject.chars().count() > LONGEST {
        return Some("it is longer than 72 characters");
    }
    let Some((areas, summary)) = subject.split_once(": ") else {
        return Some("it does not begin with `area: `");
    };
    let is_area = |area: &str| {
        !area.is_empty()
            && area.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_/.".contains(c))
    };
    if !areas.split(", ").all(is_area) {
        return Some("its area is not a crate, `docs`, `xtask` or `test`");
    }
    (summary.trim().is_empty() || summary.ends_with('.'))
        .then_some("its summary is empty or ends with a full stop")
}

/// Runs git in `root` and returns its output, or `None` where there is no repository or no such commit.
pub fn git(root: &Path, args: &[&str]) -> Option<String> {
    let output = Command::new("git").current_dir(root).args(args).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns a complaint for each commit since the rule whose subject has another form; merges are left out.
/// `Err` says why the commits could not be read, for example in a shallow clone.
pub fn complaints(root: &Path) -> Result<Vec<String>, String> {
    let range = format!("{BEFORE_THE_RULE}..HEAD");
    let log = git(root, &["log", "--no-merges", "--format=%h %s", &range])
        .ok_or("this is no git checkout with the whole history")?;
    let complaint = |line: &str| {
        let (hash, subject) = line.split_once(' ').unwrap_or((line, ""));
        problem(subject).map(|why| format!("{hash} \"{subject}\": {why}"))
    };
    Ok(log.lines().filter_map(complaint).collect())
}
