//! Runs the user's external editor on a private temporary file.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use minke_programs::ProgramLookup;

/// Limit for the edited file.
const MAX_EDITED_BYTES: u64 = 3 * 1024 * 1024;

/// Edits a text. `editor` is a command line as in `$EDITOR`: a program and its options. Programs inside of
/// the workspaces are never run.
pub(crate) fn edit_text(editor: Option<&str>, text: &str, workspaces: &[PathBuf]) -> Result<String, String> {
    let line = editor.ok_or("set VISUAL or EDITOR to an editor")?;
    let mut words = line.split_whitespace();
    let program = words.next().ok_or("VISUAL and EDITOR are empty")?;
    let found = ProgramLookup::new(workspaces)
        .find_program(program)
        .map_err(|e| format!("could not start `{program}`: {e}"))?;
    let path = TempFile::new(text).map_err(|e| format!("could not create a temporary file: {e}"))?;
    let status = minke_programs::program_command(&found).args(words).arg(&path.0).status();
    let status = status.map_err(|e| format!("could not start `{program}`: {e}"))?;
    if !status.success() {
        return Err(format!("`{program}` exited with {status}; the text is unchanged"));
    }
    let bytes = fs::metadata(&path.0).map_err(|e| e.to_string())?.len();
    if bytes > MAX_EDITED_BYTES {
        return Err(format!("the edited text has {bytes} bytes; the limit is {MAX_EDITED_BYTES}"));
    }
    fs::read_to_string(&path.0).map_err(|e| format!("could not read the edited text: {e}"))
}

/// A file that is removed on drop.
struct TempFile(PathBuf);

impl TempFile {
    fn new(text: &str) -> std::io::Result<TempFile> {
        let dir = std::env::temp_dir();
        let named = |number: u32| dir.join(format!("minke-{}-{number}.md", std::process::id()));
        let mut last = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
        // Never reuse an existing file: it could be a link or belong to another user.
        for number in 0..100 {
            match create_file(&named(number), text) {
                Ok(()) => return Ok(TempFile(named(number))),
                Err(e) => last = e,
            }
        }
        Err(last)
    }
}

fn create_file(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // The editor may have removed it.
        drop(fs::remove_file(&self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_editor_gives_back_what_it_wrote() {
        let edit = |editor: Option<&str>, text: &str| edit_text(editor, text, &[]);
        assert_eq!(edit(Some("true"), "as it was").unwrap(), "as it was");
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("ed.sh");
        fs::write(&script, "printf ' and more' >> \"$1\"\n").unwrap();
        let line = format!("sh {}", script.display());
        assert_eq!(edit(Some(&line), "text").unwrap(), "text and more");
        assert!(edit(Some("false"), "text").unwrap_err().contains("is unchanged"));
        assert!(edit(Some("no-such-program-here"), "text").unwrap_err().contains("could not start"));
        assert!(edit(None, "text").unwrap_err().contains("EDITOR"));
    }

    #[test]
    fn an_editor_of_the_workspace_is_not_started() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let (editor, ran) = (dir.path().join("vi"), dir.path().join("ran"));
        fs::write(&editor, format!("#!/bin/sh\ntouch '{}'\n", ran.display())).unwrap();
        fs::set_permissions(&editor, fs::Permissions::from_mode(0o755)).unwrap();
        for line in [editor.display().to_string(), "./vi".to_owned(), "bin/vi -e".to_owned()] {
            let why = edit_text(Some(&line), "text", &[dir.path().to_owned()]).unwrap_err();
            assert!(why.contains("could not start"), "{line}: {why}");
        }
        assert!(!ran.exists());
    }
}
