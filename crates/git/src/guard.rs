//! Guard: the repositories of a write scope, compared before and after each command.
//!
//! What would run code and was not there before the command is moved aside, and every new repository is named. While any
//! command runs, what was there before the first of them counts; a person's own changes in that time are taken for a
//! command's. What was there before is on disk as long as commands run, so that after `kill -9` the next life of the pod
//! compares (`a_killed_pod_compares_when_it_returns`).
//! Invariant: a command that was given up is compared, too, at the latest before the next one
//! (`a_command_that_was_given_up_is_compared`).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use minke_policy::{DeniedPaths, Level, level};
use minke_record::Scope;

use crate::config::Setting;
use crate::places::{follow, read_bytes};
use crate::quarantine::{keep_settings, set_aside};
use crate::repository::{ConfigFile, expand};
use crate::scan::{Area, Scanner, Survey};
use crate::settings::{Named, named};
use crate::targets::Finder;
use crate::verdict::{Mark, Risk, What, hooks, mark_of_setting, risks, shown};

/// How often what is found is moved aside before a command that puts it back is left to win.
const ROUNDS: usize = 3;
/// The most lines of one result.
const LINES: usize = 20;
/// The longest file of what was there before.
const BEFORE_BYTES: u64 = 64 * 1024 * 1024;

/// What came of a comparison, in words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notes {
    /// New repositories, and what was not looked at.
    pub named: Vec<String>,
    /// What was moved aside, and what could not be.
    pub moved: Vec<String>,
}

impl Notes {
    /// Everything for the result of a call: what was moved aside first, bounded.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.moved.iter().chain(&self.named).cloned().collect();
        let more = lines.len().saturating_sub(LINES);
        lines.truncate(LINES);
        if more > 0 {
            lines.push(format!("and {more} more of these"));
        }
        lines
    }

    fn add(&mut self, other: Notes) {
        self.named.extend(other.named);
        self.moved.extend(other.moved);
    }
}

/// What is told when no call is there to have it in its result.
pub type Tell = Arc<dyn Fn(Notes) + Send + Sync>;

/// What a command may write, and what is not looked at.
#[derive(Debug, Clone, Default)]
pub struct Ground {
    pub scope: Scope,
    pub denied: Option<Arc<DeniedPaths>>,
    /// Where a person lets commands write what is protected.
    pub lifted: Vec<PathBuf>,
}

impl Ground {
    fn area(&self) -> Area<'_> {
        Area { scope: &self.scope, denied: self.denied.as_ref() }
    }

    fn is_writable(&self, path: &Path) -> bool {
        path.to_str().is_some_and(|path| level(&self.scope, path) == Level::Write)
    }

    fn is_lifted(&self, path: &Path) -> bool {
        self.lifted.iter().any(|lifted| path.starts_with(lifted))
    }
}

/// What was there before.
#[derive(Debug, Clone, Default)]
struct Before {
    ground: Ground,
    entries: BTreeSet<PathBuf>,
    marks: BTreeSet<Mark>,
}

#[derive(Default)]
struct State {
    scanner: Scanner,
    running: usize,
    /// A command was given up and its end has not been seen.
    unseen: bool,
    before: Option<Before>,
}

struct Shared {
    state: Mutex<State>,
    file: Option<PathBuf>,
    tell: Mutex<Option<Tell>>,
}

/// Compares. Copies are the same guard.
#[derive(Clone)]
pub struct Guard(Arc<Shared>);

impl Default for Guard {
    fn default() -> Guard {
        Guard::new(None)
    }
}

impl Guard {
    /// `file` keeps what was there before, for as long as commands run.
    pub fn new(file: Option<PathBuf>) -> Guard {
        Guard(Arc::new(Shared { state: Mutex::default(), file, tell: Mutex::default() }))
    }

    /// Who is told from now on.
    pub fn tell(&self, tell: Tell) {
        *self.0.tell.lock().unwrap_or_else(PoisonError::into_inner) = Some(tell);
    }

    /// Repositories and denied paths as they are now.
    pub fn survey(&self, area: Area<'_>) -> Arc<Survey> {
        Arc::new(self.state().scanner.scan(area))
    }

    /// A command begins. Blocks for as long as a scan takes.
    pub fn begin(&self, ground: Ground) -> io::Result<Watch> {
        let mut state = self.state();
        let survey = Arc::new(state.scanner.scan(ground.area()));
        let mut notes = Notes::default();
        if state.running > 0 || state.unseen {
            let earlier = state.before.take().unwrap_or_default();
            let (after, found) = compare(&mut state.scanner, &earlier);
            notes.add(found);
            let finder = Finder::of_this_user();
            let mut now = look(&ground, &survey, &finder);
            if state.running > 0 {
                // What only this command can write was there before it.
                now.entries.extend(after.entries);
                now.marks.extend(after.marks);
            }
            state.before = Some(now);
        } else {
            state.before = Some(look(&ground, &survey, &Finder::of_this_user()));
        }
        state.unseen = false;
        if let (Some(file), Some(before)) = (&self.0.file, &state.before) {
            keep(file, before)?;
        }
        state.running += 1;
        drop(state);
        self.say(notes);
        Ok(Watch { guard: self.clone(), survey, is_over: false })
    }

    /// Compares with what was there before the commands of a life that was killed.
    pub fn recover(&self, ground: Ground) -> Notes {
        let Some(file) = &self.0.file else { return Notes::default() };
        let before = match read_bytes(file, BEFORE_BYTES) {
            Ok(None) => return Notes::default(),
            Ok(Some(bytes)) => decode(&bytes, ground),
            Err(e) => {
                let line = format!(
                    "commands were cut off, and the git repositories that they changed could not be compared: {e}"
                );
                return Notes { moved: vec![line], ..Notes::default() };
            }
        };
        let (_, notes) = compare(&mut self.state().scanner, &before);
        // One that stays is compared once more, which finds nothing new.
        drop(std::fs::remove_file(file));
        notes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self, is_seen: bool) -> Notes {
        let mut state = self.state();
        let notes = match state.before.take() {
            Some(before) => {
                let (after, notes) = compare(&mut state.scanner, &before);
                // One that was given up may not be dead yet, so what was there before it still counts.
                state.before = Some(if is_seen { after } else { before });
                notes
            }
            None => Notes::default(),
        };
        state.running = state.running.saturating_sub(1);
        state.unseen |= !is_seen;
        if state.running == 0 && !state.unseen {
            state.before = None;
            if let Some(file) = &self.0.file {
                // One that stays is compared at the next start, which finds nothing new.
                drop(std::fs::remove_file(file));
            }
        }
        notes
    }

    fn say(&self, notes: Notes) {
        if notes == Notes::default() {
            return;
        }
        let tell = self.0.tell.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(tell) = tell {
            tell(notes);
        }
    }
}

/// One command that runs.
pub struct Watch {
    guard: Guard,
    /// What was there when it began.
    pub survey: Arc<Survey>,
    is_over: bool,
}

impl Watch {
    /// The command has ended and nothing of it is left. Blocks for as long as a scan takes.
    pub fn end(mut self) -> Notes {
        self.is_over = true;
        let notes = self.guard.finish(true);
        // What was moved aside is told to people as well, not only to the model that ran the command.
        self.guard.say(Notes { moved: notes.moved.clone(), ..Notes::default() });
        notes
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        // The one who gave it up does not wait, and where no thread is to be had the next command compares.
        let guard = self.guard.clone();
        let compared = std::thread::Builder::new().name("git-guard".to_owned()).spawn(move || {
            let notes = guard.finish(false);
            guard.say(notes);
        });
        if compared.is_err() {
            let mut state = self.guard.state();
            state.running = state.running.saturating_sub(1);
            state.unseen = true;
        }
    }
}

/// What is there now.
fn look(ground: &Ground, survey: &Survey, finder: &Finder) -> Before {
    let writable = |path: &Path| ground.is_writable(path);
    let mut before = Before { ground: ground.clone(), ..Before::default() };
    for entry in &survey.repositories {
        before.entries.insert(entry.path.clone());
        before.marks.extend(risks(entry, finder, &writable).into_iter().map(|risk| risk.mark));
    }
    // Git puts the hooks of a person's template into each new repository.
    for setting in finder.user_files().iter().flat_map(ConfigFile::settings) {
        if let Some(Named::Template(path)) = named(setting)
            && let Some(template) = expand(&path, Path::new("/"), finder.home())
            && !ground.is_writable(&follow(&template).real)
        {
            before.marks.extend(hooks(&template.join("hooks"), false).into_iter().map(|risk| risk.mark));
        }
    }
    before
}

/// What is there now, with everything new that would run code moved aside, and what was done.
fn compare(scanner: &mut Scanner, before: &Before) -> (Before, Notes) {
    let ground = &before.ground;
    let finder = Finder::of_this_user();
    let writable = |path: &Path| ground.is_writable(path);
    let mut notes = Notes::default();
    let mut survey = scanner.scan(ground.area());
    for entry in survey.repositories.iter().filter(|entry| !before.entries.contains(&entry.path)) {
        // What git keeps for submodules is part of the repository.
        let is_inner = entry.path.ancestors().skip(1).any(|above| above.ends_with(".git"));
        if !is_inner {
            notes.named.push(format!("new git repository: {}", shown(&entry.path.to_string_lossy())));
        }
    }
    for round in 0..=ROUNDS {
        let mut found: BTreeMap<PathBuf, Vec<Risk>> = BTreeMap::new();
        for entry in &survey.repositories {
            for risk in risks(entry, &finder, &writable) {
                if !before.marks.contains(&risk.mark) && !ground.is_lifted(&risk.place) {
                    found.entry(risk.place.clone()).or_default().push(risk);
                }
            }
        }
        if found.is_empty() {
            break;
        }
        for (place, risks) in &found {
            if round == ROUNDS {
                notes.moved.push(format!(
                    "{} {} and was put back each time that it was moved aside; do not use git there before you have \
                     looked at it",
                    shown(&place.to_string_lossy()),
                    why(risks)
                ));
                continue;
            }
            notes.moved.push(moved(place, risks, before));
        }
        survey = scanner.scan(ground.area());
    }
    notes.named.extend(survey.limits.iter().cloned());
    (look(ground, &survey, &finder), notes)
}

fn why(risks: &[Risk]) -> String {
    let mut reasons: Vec<String> = risks.iter().map(Risk::why).collect();
    reasons.dedup();
    reasons.truncate(4);
    reasons.join("; ")
}

/// Moves one file aside and says so.
fn moved(place: &Path, risks: &[Risk], before: &Before) -> String {
    let named = shown(&place.to_string_lossy());
    let settings = risks.iter().any(|risk| matches!(risk.what, What::Setting(_)));
    // Read before it is moved; what cannot be read keeps nothing.
    let kept = if settings { kept_settings(place, before) } else { Vec::new() };
    let aside = match set_aside(place) {
        Ok(aside) => aside,
        Err(e) => {
            return format!(
                "{named} {} and could not be moved aside: {e}; do not use git there before you have looked at it",
                why(risks)
            );
        }
    };
    let name = aside.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut line = format!("moved {named} to {}, because it {}", shown(&name), why(risks));
    if settings {
        line.push_str(match keep_settings(place, &kept) {
            Ok(()) => "; its other settings stay",
            Err(_) => "; its other settings could not be kept",
        });
    }
    line
}

/// The settings of a file that may stay: safe ones, and those that were there before.
fn kept_settings(place: &Path, before: &Before) -> Vec<Setting> {
    let text = crate::places::read_text(place).ok().flatten().unwrap_or_default();
    let git_dir = place.parent().unwrap_or(Path::new("/"));
    let writable = |path: &Path| before.ground.is_writable(path);
    let may_stay = |setting: &Setting| {
        crate::verdict::is_safe(setting, git_dir, &writable)
            || before.marks.contains(&mark_of_setting(place, setting))
    };
    crate::config::parse(&text).unwrap_or_default().into_iter().filter(may_stay).collect()
}

/// Writes what was there before, readable by its owner only.
fn keep(file: &Path, before: &Before) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    if let Some(parent) = file.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let mut bytes = Vec::new();
    for entry in &before.entries {
        bytes.push(b'E');
        bytes.extend_from_slice(entry.as_os_str().as_bytes());
        bytes.push(0);
    }
    for mark in &before.marks {
        bytes.push(b'M');
        bytes.extend_from_slice(mark.as_bytes());
        bytes.push(0);
    }
    // Its end shows that it is whole.
    bytes.push(b'.');
    let mut fresh = file.as_os_str().to_owned();
    fresh.push(".new");
    let mut options = std::fs::File::options();
    let mut out = options.create(true).truncate(true).write(true).mode(0o600).open(&fresh)?;
    io::Write::write_all(&mut out, &bytes)?;
    std::fs::rename(&fresh, file)
}

fn decode(bytes: &[u8], ground: Ground) -> Before {
    let mut before = Before { ground, ..Before::default() };
    for part in bytes.split(|byte| *byte == 0) {
        match part.split_first() {
            Some((b'E', path)) => {
                before.entries.insert(PathBuf::from(std::ffi::OsStr::from_bytes(path)));
            }
            Some((b'M', mark)) => {
                before.marks.insert(String::from_utf8_lossy(mark).into_owned());
            }
            _ => {}
        }
    }
    before
}

/// Whether writing a file would make a directory a repository, or change what one runs, though none of its names is
/// `.git`: for file tools, which work without a scan.
pub fn is_of_a_bare_repository(path: &Path) -> bool {
    let makes = |dir: &Path, name: &str| {
        let parts = ["HEAD", "objects", "refs"];
        let there = |part: &str| part == name || dir.join(part).symlink_metadata().is_ok();
        let is_known = parts.iter().all(|part| dir.join(part).symlink_metadata().is_ok());
        let is_made = !is_known && parts.contains(&name) && parts.iter().all(|part| there(part));
        let steers = is_known && ["config", "config.worktree", "commondir", "hooks"].contains(&name);
        is_made || steers
    };
    path.ancestors().any(|part| match (part.parent(), part.file_name().and_then(|name| name.to_str())) {
        (Some(dir), Some(name)) => makes(dir, name),
        _ => false,
    })
}
