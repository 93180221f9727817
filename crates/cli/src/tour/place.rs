//! The workspace of the tour: two small programs with one mistake each, and their tests, for any POSIX shell.
//!
//! Elsewhere: what the scripted model does with them (`fenced.toml`, `unfenced.toml`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use minke_exec::git::Git;
use minke_policy::Tier;
use minke_programs::Lookup;
use minke_record::Blob;

use crate::failure::{Exit, Failure};

/// The files of the workspace as they are at first.
pub(super) const FILES: [(&str, &str); 7] = [
    ("README.md", include_str!("workspace/README.md")),
    ("test.sh", include_str!("workspace/test.sh")),
    ("length/convert.sh", include_str!("workspace/length/convert.sh")),
    ("length/test.sh", include_str!("workspace/length/test.sh")),
    ("weight/convert.sh", include_str!("workspace/weight/convert.sh")),
    ("weight/test.sh", include_str!("workspace/weight/test.sh")),
    ("weight/long-test.sh", include_str!("workspace/weight/long-test.sh")),
];
/// Files that a pod is told to write where it may not; one that is there is a file that somebody wrote.
pub(super) const FORBIDDEN: [&str; 2] = ["length/mine.txt", "weight/was-here"];
/// What the first pod writes where a loan was, after it is back.
pub(super) const AFTERWARDS: &str = "length/CHANGES";
/// The file that one pod tries to change in the other's directory.
pub(super) const TARGET: &str = "weight/test.sh";
/// A command that ends only by force; its path is in its processes' arguments.
pub(super) const LONG_TEST: &str = "weight/long-test.sh";

const FENCED: &str = include_str!("fenced.toml");
const UNFENCED: &str = include_str!("unfenced.toml");

/// Where the tour takes place.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) work: PathBuf,
    pub(super) script: PathBuf,
    pub(super) tier: Tier,
    /// The workspace is a git repository.
    pub(super) git: bool,
}

impl Place {
    /// Writes workspace and script below a directory.
    pub(super) fn lay(dir: &Path, tier: Tier) -> Result<Place, Failure> {
        let (work, script) = (dir.join("work"), dir.join("script.toml"));
        let write = |path: &Path, text: &str| {
            let parent = path.parent().unwrap_or(dir);
            fs::create_dir_all(parent)
                .and_then(|()| fs::write(path, text))
                .map_err(|e| Failure::new(Exit::Storage, format!("cannot write {}", path.display())).why(e))
        };
        for (name, text) in FILES {
            write(&work.join(name), text)?;
        }
        write(&script, if tier.holds() { FENCED } else { UNFENCED })?;
        let git = repository(&work);
        Ok(Place { work, script, tier, git })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.work.join(name)
    }

    /// A path as people see it in the tour.
    pub(super) fn short(&self, path: &str) -> String {
        let work = format!("{}/", self.work.display());
        path.replace(&work, "").replace(work.trim_end_matches('/'), ".")
    }

    /// SHA-256 of a file as it is now; `None` if it is not there.
    pub(super) fn hash(&self, name: &str) -> Result<Option<String>, Failure> {
        let path = self.path(name);
        match fs::read(&path) {
            Ok(content) => Ok(Some(sha256(content))),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Failure::new(Exit::Storage, format!("cannot read {}", path.display())).why(e)),
        }
    }

    /// Runs all tests of the workspace, as the person who takes the tour could.
    pub(super) fn test(&self) -> Result<(Option<i32>, String), Failure> {
        let cannot = |e: &dyn std::fmt::Display| {
            Failure::new(Exit::Failed, "cannot run the tests of the workspace").why(e)
        };
        let sh = Lookup::new([&self.work]).first_in(&["/bin"]).find("sh").map_err(|e| cannot(&e))?;
        let done = Command::new(sh)
            .arg("test.sh")
            .current_dir(&self.work)
            .stdin(Stdio::null())
            .output()
            .map_err(|e| cannot(&e))?;
        Ok((done.status.code(), String::from_utf8_lossy(&done.stdout).into_owned()))
    }
}

pub(super) fn sha256(content: Vec<u8>) -> String {
    Blob::new(content).name.blob
}

/// Makes the workspace a git repository, where git is there and works.
fn repository(work: &Path) -> bool {
    let Ok(found) = Git::find([work]) else { return false };
    let git = |words: &[&str]| {
        let done = found
            .command(work)
            .args(["-c", "user.name=Tour", "-c", "user.email=tour@localhost"])
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        done.is_ok_and(|status| status.success())
    };
    git(&["init", "-q", "--template="]) && git(&["add", "."]) && git(&["commit", "-q", "-m", "as it was"])
}

/// The lines that differ, with `-` and `+` before them: everything between the first and the last difference.
pub(super) fn diff(before: &str, after: &str) -> Vec<String> {
    let (before, after): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let same = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
    let rest = before.len().min(after.len()) - same;
    let tail = before.iter().rev().zip(after.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let middle = |lines: &[&str], sign: char| -> Vec<String> {
        lines.iter().take(lines.len() - tail).skip(same).map(|line| format!("{sign}{line}")).collect()
    };
    [middle(&before, '-'), middle(&after, '+')].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_has_what_went_and_what_came() {
        assert_eq!(diff("a\nb\nc\n", "a\nx\ny\nc\n"), ["-b", "+x", "+y"]);
        assert_eq!(diff("", "new\n"), ["+new"]);
        assert_eq!(diff("same\n", "same\n"), Vec::<String>::new());
        assert_eq!(diff("a\na\n", "a\n"), ["-a"]);
    }

    #[test]
    fn the_tests_of_the_workspace_fail_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::lay(dir.path(), Tier::A).unwrap();
        let (code, said) = place.test().unwrap();
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("not 300") && said.contains("not 4500"), "{said}");
    }
}
