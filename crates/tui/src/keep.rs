//! What the terminal keeps between two starts: drafts, earlier inputs, settings. Files of the person, mode 0600.
//!
//! None of it is truth: a file that is missing or damaged is as one that was never written.
//! Invariant: a file is whole or the one before (`a_draft_survives_the_end_of_the_process`).

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use minke_record::SessionId;
use serde::{Deserialize, Serialize};

use crate::composer::{Draft, PAST};

/// What of a file is read at most: drafts hold pastes.
const READ_MOST: u64 = 16 * 1024 * 1024;
/// Drafts of more sessions than this: the oldest go.
const DRAFTS: usize = 200;

/// What a person has chosen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// The name of a theme; absent = the terminal's own colours.
    pub theme: Option<String>,
    /// The wheel scrolls, and the terminal's own selection needs Shift.
    pub mouse: bool,
    /// Plain lines for a screen reader.
    pub plain: bool,
    /// Keys of the composer as in vi.
    pub vi: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Keep {
    dir: PathBuf,
}

impl Keep {
    pub(crate) fn new(dir: PathBuf) -> Keep {
        Keep { dir }
    }

    pub(crate) fn draft(&self, of: Option<SessionId>) -> Option<Draft> {
        serde_json::from_str(&read(&self.draft_path(of))?).ok()
    }

    /// An empty draft leaves no file.
    pub(crate) fn save_draft(&self, of: Option<SessionId>, draft: &Draft) -> io::Result<()> {
        let path = self.draft_path(of);
        if draft.text.trim().is_empty() {
            return match fs::remove_file(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
                _ => Ok(()),
            };
        }
        let is_new = !path.exists();
        self.write(&path, &serde_json::to_vec(draft)?)?;
        if is_new {
            self.sweep(&path);
        }
        Ok(())
    }

    fn draft_path(&self, of: Option<SessionId>) -> PathBuf {
        let name = of.map_or_else(|| "new".to_owned(), |session| session.to_string());
        self.dir.join("drafts").join(format!("{name}.json"))
    }

    /// Forgets the drafts that nobody has touched for longest.
    fn sweep(&self, newest: &Path) {
        let Ok(entries) = fs::read_dir(self.dir.join("drafts")) else { return };
        let mut drafts: Vec<(std::time::SystemTime, PathBuf)> = entries
            .flatten()
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .filter(|(_, path)| path != newest)
            .collect();
        drafts.sort();
        let many = (drafts.len() + 1).saturating_sub(DRAFTS);
        for (_, path) in drafts.into_iter().take(many) {
            // One that cannot be removed is tried again with the next.
            drop(fs::remove_file(path));
        }
    }

    /// Earlier inputs, oldest first.
    pub(crate) fn past(&self) -> Vec<String> {
        let text = read(&self.past_path()).unwrap_or_default();
        let lines: Vec<String> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let skip = lines.len().saturating_sub(PAST);
        lines.into_iter().skip(skip).collect()
    }

    /// Adds one. Several terminals may: each line is written at once, at the end.
    pub(crate) fn add_past(&self, input: &str) -> io::Result<()> {
        let path = self.past_path();
        let many = read(&path).map_or(0, |text| text.lines().count());
        if many >= 2 * PAST {
            let kept: Vec<String> =
                self.past().iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
            self.write(&path, (kept.join("\n") + "\n").as_bytes())?;
        }
        self.make_dir(&path)?;
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
        file.write_all((serde_json::to_string(input)? + "\n").as_bytes())
    }

    fn past_path(&self) -> PathBuf {
        self.dir.join("history.jsonl")
    }

    pub(crate) fn settings(&self) -> Settings {
        let text = read(&self.dir.join("settings.json")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    pub(crate) fn save_settings(&self, settings: &Settings) -> io::Result<()> {
        self.write(&self.dir.join("settings.json"), &serde_json::to_vec_pretty(settings)?)
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        let dir = path.parent().unwrap_or(&self.dir);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
    }

    /// Beside it first, then in its place.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.make_dir(path)?;
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}", std::process::id()));
        let beside = PathBuf::from(beside);
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(bytes)?;
        fs::rename(&beside, path).inspect_err(|_| drop(fs::remove_file(&beside)))
    }
}

fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    fs::File::open(path).ok()?.take(READ_MOST).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn draft(text: &str) -> Draft {
        Draft { text: text.to_owned(), chips: Vec::new() }
    }

    #[test]
    fn a_draft_survives_the_end_of_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let keep = Keep::new(dir.path().join("tui"));
        let session: SessionId = "00000000-0000-7000-8000-000000000001".parse().unwrap();
        assert_eq!(keep.draft(None), None);
        keep.save_draft(None, &draft("here")).unwrap();
        keep.save_draft(Some(session), &draft("there")).unwrap();
        let again = Keep::new(dir.path().join("tui"));
        assert_eq!(
            (again.draft(None), again.draft(Some(session))),
            (Some(draft("here")), Some(draft("there")))
        );
        let mode = fs::metadata(keep.draft_path(None)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        keep.save_draft(None, &draft(" ")).unwrap();
        keep.save_draft(None, &draft("")).unwrap();
        assert_eq!(keep.draft(None), None);
        // Damage is not an obstacle.
        fs::write(keep.draft_path(Some(session)), "{\"text\":").unwrap();
        assert_eq!(keep.draft(Some(session)), None);
    }

    #[test]
    fn earlier_inputs_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let keep = Keep::new(dir.path().to_owned());
        for number in 0..(3 * PAST) {
            keep.add_past(&format!("input\n{number}")).unwrap();
        }
        let past = keep.past();
        assert_eq!(past.len(), PAST);
        assert_eq!(past.last(), Some(&format!("input\n{}", 3 * PAST - 1)));
        let lines = read(&keep.past_path()).unwrap().lines().count();
        assert!(lines <= 2 * PAST, "{lines}");
    }

    #[test]
    fn old_drafts_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let keep = Keep::new(dir.path().to_owned());
        for number in 0..(DRAFTS + 10) {
            let session = format!("00000000-0000-7000-8000-{number:012}").parse().unwrap();
            keep.save_draft(Some(session), &draft("x")).unwrap();
        }
        assert_eq!(fs::read_dir(dir.path().join("drafts")).unwrap().count(), DRAFTS);
    }

    #[test]
    fn settings_are_kept_and_unknown_ones_are_no_obstacle() {
        let dir = tempfile::tempdir().unwrap();
        let keep = Keep::new(dir.path().to_owned());
        let settings = Settings { theme: Some("light".into()), mouse: true, plain: false, vi: true };
        keep.save_settings(&settings).unwrap();
        assert_eq!(keep.settings(), settings);
        fs::write(dir.path().join("settings.json"), "{\"mouse\":true,\"later\":1}").unwrap();
        assert!(keep.settings().mouse);
    }
}
