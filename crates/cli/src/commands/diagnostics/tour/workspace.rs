//! The workspace of the tour: two small programs with one bug each, and their tests, for any POSIX shell.
//!
//! Elsewhere: the script of the model (`sandboxed.toml`, `unsandboxed.toml`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use minke_exec::git::GitProgram;
use minke_policy::SandboxBackend;
use minke_programs::ProgramLookup;
use minke_record::Blob;

use crate::error::{CliError, ExitKind};

/// The initial files of the workspace.
pub(super) const WORKSPACE_FILES: [(&str, &str); 7] = [
    ("README.md", include_str!("workspace/README.md")),
    ("test.sh", include_str!("workspace/test.sh")),
    ("length/convert.sh", include_str!("workspace/length/convert.sh")),
    ("length/test.sh", include_str!("workspace/length/test.sh")),
    ("weight/convert.sh", include_str!("workspace/weight/convert.sh")),
    ("weight/test.sh", include_str!("workspace/weight/test.sh")),
    ("weight/long-test.sh", include_str!("workspace/weight/long-test.sh")),
];
/// Files outside the writing pod's scope that the script tries to write.
pub(super) const FORBIDDEN_FILES: [&str; 2] = ["length/mine.txt", "weight/was-here"];
/// The file that the first pod writes in a directory after its loan has ended.
pub(super) const RETURNED_FILE: &str = "length/CHANGES";
/// The file in the other child's directory that one child tries to change.
pub(super) const TARGET_FILE: &str = "weight/test.sh";
/// A command that only ends when killed; its path is in the arguments of its processes.
pub(super) const LONG_TEST_FILE: &str = "weight/long-test.sh";

const SANDBOXED_SCRIPT: &str = include_str!("sandboxed.toml");
const UNSANDBOXED_SCRIPT: &str = include_str!("unsandboxed.toml");

/// Paths and settings of the tour.
#[derive(Debug, Clone)]
pub(super) struct TourWorkspace {
    pub(super) work_dir: PathBuf,
    pub(super) script: PathBuf,
    pub(super) backend: SandboxBackend,
    /// The workspace is a git repository.
    pub(super) git: bool,
}

impl TourWorkspace {
    /// Writes workspace and script below a directory.
    pub(super) fn create(dir: &Path, backend: SandboxBackend) -> Result<TourWorkspace, CliError> {
        let (work_dir, script) = (dir.join("work"), dir.join("script.toml"));
        let write = |path: &Path, text: &str| {
            let parent = path.parent().unwrap_or(dir);
            fs::create_dir_all(parent).and_then(|()| fs::write(path, text)).map_err(|e| {
                CliError::new(ExitKind::Storage, format!("could not write {}", path.display())).with_reason(e)
            })
        };
        for (name, text) in WORKSPACE_FILES {
            write(&work_dir.join(name), text)?;
        }
        write(&script, if backend.enforces_scope() { SANDBOXED_SCRIPT } else { UNSANDBOXED_SCRIPT })?;
        let git = init_repository(&work_dir);
        Ok(TourWorkspace { work_dir, script, backend, git })
    }

    pub(super) fn file_path(&self, name: &str) -> PathBuf {
        self.work_dir.join(name)
    }

    /// Shortens paths of the workspace for the output.
    pub(super) fn shorten_paths(&self, path: &str) -> String {
        let work = format!("{}/", self.work_dir.display());
        path.replace(&work, "").replace(work.trim_end_matches('/'), ".")
    }

    /// Returns the SHA-256 of a file, or `None` if it does not exist.
    pub(super) fn file_hash(&self, name: &str) -> Result<Option<String>, CliError> {
        let path = self.file_path(name);
        match fs::read(&path) {
            Ok(content) => Ok(Some(sha256(content))),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => {
                Err(CliError::new(ExitKind::Storage, format!("could not read {}", path.display()))
                    .with_reason(e))
            }
        }
    }

    /// Runs all tests of the workspace.
    pub(super) fn run_tests(&self) -> Result<(Option<i32>, String), CliError> {
        let cannot = |e: &dyn std::fmt::Display| {
            CliError::new(ExitKind::Failed, "could not run the tests of the workspace").with_reason(e)
        };
        let sh = ProgramLookup::new([&self.work_dir])
            .search_first(&["/bin"])
            .find_program("sh")
            .map_err(|e| cannot(&e))?;
        let done = Command::new(sh)
            .arg("test.sh")
            .current_dir(&self.work_dir)
            .stdin(Stdio::null())
            .output()
            .map_err(|e| cannot(&e))?;
        Ok((done.status.code(), String::from_utf8_lossy(&done.stdout).into_owned()))
    }
}

pub(super) fn sha256(content: Vec<u8>) -> String {
    Blob::new(content).name.blob
}

/// Creates a git repository in the workspace, if git is available.
fn init_repository(work: &Path) -> bool {
    let Ok(found) = GitProgram::find_outside([work]) else { return false };
    let git = |words: &[&str]| {
        let done = found
            .command_in(work)
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

/// Returns the different lines with `-` and `+`: everything between the first and the last difference.
pub(super) fn diff_lines(before: &str, after: &str) -> Vec<String> {
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
        assert_eq!(diff_lines("a\nb\nc\n", "a\nx\ny\nc\n"), ["-b", "+x", "+y"]);
        assert_eq!(diff_lines("", "new\n"), ["+new"]);
        assert_eq!(diff_lines("same\n", "same\n"), Vec::<String>::new());
        assert_eq!(diff_lines("a\na\n", "a\n"), ["-a"]);
    }

    #[test]
    fn the_tests_of_the_workspace_fail_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = TourWorkspace::create(dir.path(), SandboxBackend::Namespaces).unwrap();
        let (code, output) = workspace.run_tests().unwrap();
        assert_eq!(code, Some(1), "{output}");
        assert!(output.contains("not 300") && output.contains("not 4500"), "{output}");
    }
}
