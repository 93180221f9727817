//! The person's own editor, with a file of its own that nobody else can read.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use minke_programs::Lookup;

/// What of the file is taken back.
const EDITED_BYTES: u64 = 3 * 1024 * 1024;

/// Edits a text. `editor` is a line as `$EDITOR` has it: a program and perhaps its options. The program is never one of
/// these workspaces.
pub(crate) fn edit(editor: Option<&str>, text: &str, workspaces: &[PathBuf]) -> Result<String, String> {
    let line = editor.ok_or("set VISUAL or EDITOR to the name of one")?;
    let mut words = line.split_whitespace();
    let program = words.next().ok_or("VISUAL and EDITOR are empty")?;
    let found =
        Lookup::new(workspaces).find(program).map_err(|e| format!("`{program}` cannot be started: {e}"))?;
    let path = Beside::new(text).map_err(|e| format!("no file can be made for it: {e}"))?;
    let status = minke_programs::command(&found).args(words).arg(&path.0).status();
    let status = status.map_err(|e| format!("`{program}` cannot be started: {e}"))?;
    if !status.success() {
        return Err(format!("`{program}` ended with {status}; the text is as it was"));
    }
    let bytes = fs::metadata(&path.0).map_err(|e| e.to_string())?.len();
    if bytes > EDITED_BYTES {
        return Err(format!("{bytes} bytes are too many; at most {EDITED_BYTES} are taken"));
    }
    fs::read_to_string(&path.0).map_err(|e| format!("what was written cannot be read: {e}"))
}

/// A file that goes with its owner.
struct Beside(PathBuf);

impl Beside {
    fn new(text: &str) -> std::io::Result<Beside> {
        let dir = std::env::temp_dir();
        let named = |number: u32| dir.join(format!("minke-{}-{number}.md", std::process::id()));
        let mut last = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
        // Never one that is there: it could be somebody else's, or a link.
        for number in 0..100 {
            match make(&named(number), text) {
                Ok(()) => return Ok(Beside(named(number))),
                Err(e) => last = e,
            }
        }
        Err(last)
    }
}

fn make(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

impl Drop for Beside {
    fn drop(&mut self) {
        // The editor may have removed it itself.
        drop(fs::remove_file(&self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_editor_gives_back_what_it_wrote() {
        let edit = |editor: Option<&str>, text: &str| edit(editor, text, &[]);
        assert_eq!(edit(Some("true"), "as it was").unwrap(), "as it was");
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("ed.sh");
        fs::write(&script, "printf ' and more' >> \"$1\"\n").unwrap();
        let line = format!("sh {}", script.display());
        assert_eq!(edit(Some(&line), "text").unwrap(), "text and more");
        assert!(edit(Some("false"), "text").unwrap_err().contains("as it was"));
        assert!(edit(Some("no-such-program-here"), "text").unwrap_err().contains("cannot be started"));
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
            let why = edit(Some(&line), "text", &[dir.path().to_owned()]).unwrap_err();
            assert!(why.contains("cannot be started"), "{line}: {why}");
        }
        assert!(!ran.exists());
    }
}
