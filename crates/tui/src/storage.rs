//! Stores drafts, the input history and settings between starts, in files with mode 0600.
//!
//! A missing or damaged file counts as empty.
//! Invariant: files are replaced atomically (`a_draft_survives_the_end_of_the_process`).

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use minke_record::SessionId;
use serde::{Deserialize, Serialize};

use crate::composer::{ComposerDraft, MAX_INPUTS};

/// Limit for reading a file; drafts contain pastes.
const MAX_READ_BYTES: u64 = 16 * 1024 * 1024;
/// Limit for stored drafts; the oldest are removed.
const MAX_DRAFTS: usize = 200;

/// The user's settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TuiSettings {
    /// Name of a theme. Absent: the colours of the terminal.
    pub theme: Option<String>,
    /// The wheel scrolls, and selecting text needs Shift.
    pub mouse: bool,
    /// Plain lines for a screen reader.
    pub plain: bool,
    /// Vi keys in the composer.
    pub vi: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct StateStore {
    dir: PathBuf,
}

impl StateStore {
    pub(crate) fn new(dir: PathBuf) -> StateStore {
        StateStore { dir }
    }

    pub(crate) fn load_draft(&self, of: Option<SessionId>) -> Option<ComposerDraft> {
        serde_json::from_str(&read_file(&self.draft_path(of))?).ok()
    }

    /// Saves a draft, or removes the file of an empty one.
    pub(crate) fn save_draft(&self, of: Option<SessionId>, draft: &ComposerDraft) -> io::Result<()> {
        let path = self.draft_path(of);
        if draft.text.trim().is_empty() {
            return match fs::remove_file(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
                _ => Ok(()),
            };
        }
        let is_new = !path.exists();
        self.write_file(&path, &serde_json::to_vec(draft)?)?;
        if is_new {
            self.remove_old_drafts(&path);
        }
        Ok(())
    }

    fn draft_path(&self, of: Option<SessionId>) -> PathBuf {
        let name = of.map_or_else(|| "new".to_owned(), |session| session.to_string());
        self.dir.join("drafts").join(format!("{name}.json"))
    }

    /// Removes the least recently changed drafts.
    fn remove_old_drafts(&self, newest: &Path) {
        let Ok(entries) = fs::read_dir(self.dir.join("drafts")) else { return };
        let mut drafts: Vec<(std::time::SystemTime, PathBuf)> = entries
            .flatten()
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .filter(|(_, path)| path != newest)
            .collect();
        drafts.sort();
        let many = (drafts.len() + 1).saturating_sub(MAX_DRAFTS);
        for (_, path) in drafts.into_iter().take(many) {
            // The next call tries again.
            drop(fs::remove_file(path));
        }
    }

    /// Returns earlier inputs, oldest first.
    pub(crate) fn load_history(&self) -> Vec<String> {
        let text = read_file(&self.history_path()).unwrap_or_default();
        let lines: Vec<String> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let skip = lines.len().saturating_sub(MAX_INPUTS);
        lines.into_iter().skip(skip).collect()
    }

    /// Appends an input in one write, because several terminals may append.
    pub(crate) fn append_history(&self, input: &str) -> io::Result<()> {
        let path = self.history_path();
        let many = read_file(&path).map_or(0, |text| text.lines().count());
        if many >= 2 * MAX_INPUTS {
            let kept: Vec<String> =
                self.load_history().iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
            self.write_file(&path, (kept.join("\n") + "\n").as_bytes())?;
        }
        self.create_parent_dir(&path)?;
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
        file.write_all((serde_json::to_string(input)? + "\n").as_bytes())
    }

    fn history_path(&self) -> PathBuf {
        self.dir.join("history.jsonl")
    }

    pub(crate) fn load_settings(&self) -> TuiSettings {
        let text = read_file(&self.dir.join("settings.json")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    pub(crate) fn save_settings(&self, settings: &TuiSettings) -> io::Result<()> {
        self.write_file(&self.dir.join("settings.json"), &serde_json::to_vec_pretty(settings)?)
    }

    fn create_parent_dir(&self, path: &Path) -> io::Result<()> {
        let dir = path.parent().unwrap_or(&self.dir);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
    }

    /// Writes a temporary file and renames it.
    fn write_file(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.create_parent_dir(path)?;
        let mut temp_path = path.as_os_str().to_owned();
        temp_path.push(format!(".{}", std::process::id()));
        let beside = PathBuf::from(temp_path);
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(bytes)?;
        fs::rename(&beside, path).inspect_err(|_| drop(fs::remove_file(&beside)))
    }
}

fn read_file(path: &Path) -> Option<String> {
    let mut text = String::new();
    fs::File::open(path).ok()?.take(MAX_READ_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn sample_draft(text: &str) -> ComposerDraft {
        ComposerDraft { text: text.to_owned(), chips: Vec::new() }
    }

    #[test]
    fn a_draft_survives_the_end_of_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let store = StateStore::new(dir.path().join("tui"));
        let session: SessionId = "00000000-0000-7000-8000-000000000001".parse().unwrap();
        assert_eq!(store.load_draft(None), None);
        store.save_draft(None, &sample_draft("here")).unwrap();
        store.save_draft(Some(session), &sample_draft("there")).unwrap();
        let again = StateStore::new(dir.path().join("tui"));
        assert_eq!(
            (again.load_draft(None), again.load_draft(Some(session))),
            (Some(sample_draft("here")), Some(sample_draft("there")))
        );
        let mode = fs::metadata(store.draft_path(None)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        store.save_draft(None, &sample_draft(" ")).unwrap();
        store.save_draft(None, &sample_draft("")).unwrap();
        assert_eq!(store.load_draft(None), None);
        // Damage is not an obstacle.
        fs::write(store.draft_path(Some(session)), "{\"text\":").unwrap();
        assert_eq!(store.load_draft(Some(session)), None);
    }

    #[test]
    fn earlier_inputs_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let keep = StateStore::new(dir.path().to_owned());
        for number in 0..(3 * MAX_INPUTS) {
            keep.append_history(&format!("input\n{number}")).unwrap();
        }
        let past = keep.load_history();
        assert_eq!(past.len(), MAX_INPUTS);
        assert_eq!(past.last(), Some(&format!("input\n{}", 3 * MAX_INPUTS - 1)));
        let lines = read_file(&keep.history_path()).unwrap().lines().count();
        assert!(lines <= 2 * MAX_INPUTS, "{lines}");
    }

    #[test]
    fn old_drafts_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let store = StateStore::new(dir.path().to_owned());
        for number in 0..(MAX_DRAFTS + 10) {
            let session = format!("00000000-0000-7000-8000-{number:012}").parse().unwrap();
            store.save_draft(Some(session), &sample_draft("x")).unwrap();
        }
        assert_eq!(fs::read_dir(dir.path().join("drafts")).unwrap().count(), MAX_DRAFTS);
    }

    #[test]
    fn settings_are_kept_and_unknown_ones_are_no_obstacle() {
        let dir = tempfile::tempdir().unwrap();
        let store = StateStore::new(dir.path().to_owned());
        let settings = TuiSettings { theme: Some("light".into()), mouse: true, plain: false, vi: true };
        store.save_settings(&settings).unwrap();
        assert_eq!(store.load_settings(), settings);
        fs::write(dir.path().join("settings.json"), "{\"mouse\":true,\"later\":1}").unwrap();
        assert!(store.load_settings().mouse);
    }
}
