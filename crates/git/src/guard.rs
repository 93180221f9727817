//! Compares the repositories of a write scope before and after each command.
//!
//! New files and settings that would run code are quarantined, and every new repository is reported. The baseline is
//! the state before the first of several concurrent commands; changes by the user in that time count as changes by a
//! command. The baseline is stored on disk while commands run, so that the pod compares after a `kill -9` as well
//! (`a_killed_pod_compares_when_it_returns`).
//! Invariant: the repositories are also compared after a cancelled command, at the latest before the next one
//! (`a_command_that_was_given_up_is_compared`).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use minke_policy::{AccessLevel, DeniedPaths, access_level};
use minke_record::Scope;

use crate::config::GitSetting;
use crate::quarantine::{quarantine_path, write_settings};
use crate::repository::{GitConfigFile, expand_path};
use crate::risks::{
    RepositoryRisk, RiskKind, RiskMark, hook_risks, printable_text, repository_risks, setting_mark,
};
use crate::safe_paths::{follow_links, read_bytes};
use crate::scan::{RepositoryScanner, RepositorySurvey, SurveyArea};
use crate::settings::{SettingTarget, setting_target};
use crate::targets::TargetFinder;

/// How often a file is quarantined again if a command keeps restoring it.
const MAX_ROUNDS: usize = 3;
/// The most lines of one result.
const MAX_LINES: usize = 20;
/// The size limit of a stored baseline.
const MAX_BASELINE_BYTES: u64 = 64 * 1024 * 1024;

/// The result of a comparison, as text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepositoryNotes {
    /// New repositories, and limits that were reached.
    pub notices: Vec<String>,
    /// Quarantined files, and those that could not be quarantined.
    pub quarantined: Vec<String>,
}

impl RepositoryNotes {
    /// Returns the lines for the result of a call, quarantined files first, limited in number.
    pub fn to_lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.quarantined.iter().chain(&self.notices).cloned().collect();
        let more = lines.len().saturating_sub(MAX_LINES);
        lines.truncate(MAX_LINES);
        if more > 0 {
            lines.push(format!("and {more} more"));
        }
        lines
    }

    fn append(&mut self, other: RepositoryNotes) {
        self.notices.extend(other.notices);
        self.quarantined.extend(other.quarantined);
    }
}

/// Called with notes that have no call result to appear in.
pub type NotesCallback = Arc<dyn Fn(RepositoryNotes) + Send + Sync>;

/// The paths that a command may write, and denied paths, which are not scanned.
#[derive(Debug, Clone, Default)]
pub struct GuardScope {
    pub scope: Scope,
    pub denied: Option<Arc<DeniedPaths>>,
    /// Protected paths that the user made writable.
    pub lifted: Vec<PathBuf>,
}

impl GuardScope {
    fn area(&self) -> SurveyArea<'_> {
        SurveyArea { scope: &self.scope, denied: self.denied.as_ref() }
    }

    fn is_writable(&self, path: &Path) -> bool {
        path.to_str().is_some_and(|path| access_level(&self.scope, path) == AccessLevel::Write)
    }

    fn is_lifted(&self, path: &Path) -> bool {
        self.lifted.iter().any(|lifted| path.starts_with(lifted))
    }
}

/// The state of the repositories before a command.
#[derive(Debug, Clone, Default)]
struct GuardBaseline {
    guard_scope: GuardScope,
    entries: BTreeSet<PathBuf>,
    marks: BTreeSet<RiskMark>,
}

#[derive(Default)]
struct GuardState {
    scanner: RepositoryScanner,
    running: usize,
    /// Whether a cancelled command may still be running.
    has_unseen_end: bool,
    baseline: Option<GuardBaseline>,
}

struct SharedGuard {
    state: Mutex<GuardState>,
    baseline_file: Option<PathBuf>,
    callback: Mutex<Option<NotesCallback>>,
}

/// Compares repositories. Clones share their state.
#[derive(Clone)]
pub struct RepositoryGuard(Arc<SharedGuard>);

impl Default for RepositoryGuard {
    fn default() -> RepositoryGuard {
        RepositoryGuard::new(None)
    }
}

impl RepositoryGuard {
    /// `file` stores the baseline while commands run.
    pub fn new(baseline_file: Option<PathBuf>) -> RepositoryGuard {
        RepositoryGuard(Arc::new(SharedGuard {
            state: Mutex::default(),
            baseline_file,
            callback: Mutex::default(),
        }))
    }

    /// Sets the callback for later notes.
    pub fn set_callback(&self, tell: NotesCallback) {
        *self.0.callback.lock().unwrap_or_else(PoisonError::into_inner) = Some(tell);
    }

    /// Returns the current repositories and denied paths.
    pub fn survey_area(&self, area: SurveyArea<'_>) -> Arc<RepositorySurvey> {
        Arc::new(self.lock_state().scanner.scan_area(area))
    }

    /// Records the start of a command. Blocks during a scan.
    pub fn begin_command(&self, guard_scope: GuardScope) -> io::Result<CommandWatch> {
        let mut state = self.lock_state();
        let survey = Arc::new(state.scanner.scan_area(guard_scope.area()));
        let mut notes = RepositoryNotes::default();
        if state.running > 0 || state.has_unseen_end {
            let earlier = state.baseline.take().unwrap_or_default();
            let (after, found) = compare_baseline(&mut state.scanner, &earlier);
            notes.append(found);
            let finder = TargetFinder::for_current_user();
            let mut now = take_baseline(&guard_scope, &survey, &finder);
            if state.running > 0 {
                // Files that only this command can write existed before it.
                now.entries.extend(after.entries);
                now.marks.extend(after.marks);
            }
            state.baseline = Some(now);
        } else {
            state.baseline = Some(take_baseline(&guard_scope, &survey, &TargetFinder::for_current_user()));
        }
        state.has_unseen_end = false;
        if let (Some(file), Some(baseline)) = (&self.0.baseline_file, &state.baseline) {
            write_baseline(file, baseline)?;
        }
        state.running += 1;
        drop(state);
        self.report_notes(notes);
        Ok(CommandWatch { guard: self.clone(), survey, is_finished: false })
    }

    /// Compares with the stored baseline of a killed process.
    pub fn recover_baseline(&self, guard_scope: GuardScope) -> RepositoryNotes {
        let Some(file) = &self.0.baseline_file else { return RepositoryNotes::default() };
        let baseline = match read_bytes(file, MAX_BASELINE_BYTES) {
            Ok(None) => return RepositoryNotes::default(),
            Ok(Some(bytes)) => decode_baseline(&bytes, guard_scope),
            Err(e) => {
                let line = format!(
                    "commands were interrupted, and the git repositories that they changed could not be compared: {e}"
                );
                return RepositoryNotes { quarantined: vec![line], ..RepositoryNotes::default() };
            }
        };
        let (_, notes) = compare_baseline(&mut self.lock_state().scanner, &baseline);
        // If the file cannot be removed, it is compared once more, without a difference.
        drop(std::fs::remove_file(file));
        notes
    }

    fn lock_state(&self) -> MutexGuard<'_, GuardState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish_command(&self, is_seen: bool) -> RepositoryNotes {
        let mut state = self.lock_state();
        let notes = match state.baseline.take() {
            Some(baseline) => {
                let (after, notes) = compare_baseline(&mut state.scanner, &baseline);
                // A cancelled command may still be running, so its baseline stays.
                state.baseline = Some(if is_seen { after } else { baseline });
                notes
            }
            None => RepositoryNotes::default(),
        };
        state.running = state.running.saturating_sub(1);
        state.has_unseen_end |= !is_seen;
        if state.running == 0 && !state.has_unseen_end {
            state.baseline = None;
            if let Some(file) = &self.0.baseline_file {
                // If the file cannot be removed, it is compared at the next start, without a difference.
                drop(std::fs::remove_file(file));
            }
        }
        notes
    }

    fn report_notes(&self, notes: RepositoryNotes) {
        if notes == RepositoryNotes::default() {
            return;
        }
        let tell = self.0.callback.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(tell) = tell {
            tell(notes);
        }
    }
}

/// The watch over one running command.
pub struct CommandWatch {
    guard: RepositoryGuard,
    /// The state when the command started.
    pub survey: Arc<RepositorySurvey>,
    is_finished: bool,
}

impl CommandWatch {
    /// Compares after the command and all its processes have ended. Blocks during a scan.
    pub fn finish_watch(mut self) -> RepositoryNotes {
        self.is_finished = true;
        let notes = self.guard.finish_command(true);
        // Quarantined files are also reported to users, not only to the model that ran the command.
        self.guard.report_notes(RepositoryNotes {
            quarantined: notes.quarantined.clone(),
            ..RepositoryNotes::default()
        });
        notes
    }
}

impl Drop for CommandWatch {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        // The caller has cancelled and does not wait. If no thread can be started, the next command compares.
        let guard = self.guard.clone();
        let compared = std::thread::Builder::new().name("git-guard".to_owned()).spawn(move || {
            let notes = guard.finish_command(false);
            guard.report_notes(notes);
        });
        if compared.is_err() {
            let mut state = self.guard.lock_state();
            state.running = state.running.saturating_sub(1);
            state.has_unseen_end = true;
        }
    }
}

/// Returns the current baseline.
fn take_baseline(
    guard_scope: &GuardScope,
    survey: &RepositorySurvey,
    finder: &TargetFinder,
) -> GuardBaseline {
    let writable = |path: &Path| guard_scope.is_writable(path);
    let mut baseline = GuardBaseline { guard_scope: guard_scope.clone(), ..GuardBaseline::default() };
    for entry in &survey.repositories {
        baseline.entries.insert(entry.path.clone());
        baseline.marks.extend(repository_risks(entry, finder, &writable).into_iter().map(|risk| risk.mark));
    }
    // Git copies the hooks of the user's template into each new repository.
    for setting in finder.user_config_files().iter().flat_map(GitConfigFile::settings) {
        if let Some(SettingTarget::Template(path)) = setting_target(setting)
            && let Some(template) = expand_path(&path, Path::new("/"), finder.home_dir())
            && !guard_scope.is_writable(&follow_links(&template).real_path)
        {
            baseline
                .marks
                .extend(hook_risks(&template.join("hooks"), false).into_iter().map(|risk| risk.mark));
        }
    }
    baseline
}

/// Quarantines everything new that would run code. Returns the new baseline and notes.
fn compare_baseline(
    scanner: &mut RepositoryScanner,
    before: &GuardBaseline,
) -> (GuardBaseline, RepositoryNotes) {
    let guard_scope = &before.guard_scope;
    let finder = TargetFinder::for_current_user();
    let writable = |path: &Path| guard_scope.is_writable(path);
    let mut notes = RepositoryNotes::default();
    let mut survey = scanner.scan_area(guard_scope.area());
    for entry in survey.repositories.iter().filter(|entry| !before.entries.contains(&entry.path)) {
        // The repositories of submodules are part of their repository.
        let is_inner = entry.path.ancestors().skip(1).any(|above| above.ends_with(".git"));
        if !is_inner {
            notes
                .notices
                .push(format!("new git repository: {}", printable_text(&entry.path.to_string_lossy())));
        }
    }
    for round in 0..=MAX_ROUNDS {
        let mut found: BTreeMap<PathBuf, Vec<RepositoryRisk>> = BTreeMap::new();
        for entry in &survey.repositories {
            for risk in repository_risks(entry, &finder, &writable) {
                if !before.marks.contains(&risk.mark) && !guard_scope.is_lifted(&risk.path) {
                    found.entry(risk.path.clone()).or_default().push(risk);
                }
            }
        }
        if found.is_empty() {
            break;
        }
        for (place, risks) in &found {
            if round == MAX_ROUNDS {
                notes.quarantined.push(format!(
                    "{} {} and was restored each time it was quarantined; inspect the repository before you use git \
                 there",
                    printable_text(&place.to_string_lossy()),
                    describe_risks(risks)
                ));
                continue;
            }
            notes.quarantined.push(quarantine_file(place, risks, before));
        }
        survey = scanner.scan_area(guard_scope.area());
    }
    notes.notices.extend(survey.limits.iter().cloned());
    (take_baseline(guard_scope, &survey, &finder), notes)
}

fn describe_risks(risks: &[RepositoryRisk]) -> String {
    let mut reasons: Vec<String> = risks.iter().map(RepositoryRisk::reason_text).collect();
    reasons.dedup();
    reasons.truncate(4);
    reasons.join("; ")
}

/// Quarantines one file and returns a note.
fn quarantine_file(place: &Path, risks: &[RepositoryRisk], baseline: &GuardBaseline) -> String {
    let named = printable_text(&place.to_string_lossy());
    let settings = risks.iter().any(|risk| matches!(risk.kind, RiskKind::Setting(_)));
    // Read it before the move. Settings of an unreadable file are not kept.
    let kept = if settings { settings_to_keep(place, baseline) } else { Vec::new() };
    let aside = match quarantine_path(place) {
        Ok(aside) => aside,
        Err(e) => {
            return format!(
                "{named} {} and could not be quarantined: {e}; inspect the repository before you use git there",
                describe_risks(risks)
            );
        }
    };
    let name = aside.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut line =
        format!("moved {named} to {}, because it {}", printable_text(&name), describe_risks(risks));
    if settings {
        line.push_str(match write_settings(place, &kept) {
            Ok(()) => "; its other settings are kept",
            Err(_) => "; its other settings could not be kept",
        });
    }
    line
}

/// Returns the settings of a file that may stay: safe ones, and those of the baseline.
fn settings_to_keep(place: &Path, baseline: &GuardBaseline) -> Vec<GitSetting> {
    let text = crate::safe_paths::read_text(place).ok().flatten().unwrap_or_default();
    let git_dir = place.parent().unwrap_or(Path::new("/"));
    let writable = |path: &Path| baseline.guard_scope.is_writable(path);
    let may_stay = |setting: &GitSetting| {
        crate::risks::is_safe_setting(setting, git_dir, &writable)
            || baseline.marks.contains(&setting_mark(place, setting))
    };
    crate::config::parse_config(&text).unwrap_or_default().into_iter().filter(may_stay).collect()
}

/// Writes the baseline, readable by its owner only.
fn write_baseline(file: &Path, baseline: &GuardBaseline) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    if let Some(parent) = file.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let mut bytes = Vec::new();
    for entry in &baseline.entries {
        bytes.push(b'E');
        bytes.extend_from_slice(entry.as_os_str().as_bytes());
        bytes.push(0);
    }
    for mark in &baseline.marks {
        bytes.push(b'M');
        bytes.extend_from_slice(mark.as_bytes());
        bytes.push(0);
    }
    // The end marker shows that the file is complete.
    bytes.push(b'.');
    let mut fresh = file.as_os_str().to_owned();
    fresh.push(".new");
    let mut options = std::fs::File::options();
    let mut out = options.create(true).truncate(true).write(true).mode(0o600).open(&fresh)?;
    io::Write::write_all(&mut out, &bytes)?;
    std::fs::rename(&fresh, file)
}

fn decode_baseline(bytes: &[u8], guard_scope: GuardScope) -> GuardBaseline {
    let mut baseline = GuardBaseline { guard_scope, ..GuardBaseline::default() };
    for part in bytes.split(|byte| *byte == 0) {
        match part.split_first() {
            Some((b'E', path)) => {
                baseline.entries.insert(PathBuf::from(std::ffi::OsStr::from_bytes(path)));
            }
            Some((b'M', mark)) => {
                baseline.marks.insert(String::from_utf8_lossy(mark).into_owned());
            }
            _ => {}
        }
    }
    baseline
}

/// Whether a file makes its directory a bare repository, or controls what git runs in one, although no part of the path
/// is `.git`. For file tools, which do not scan.
pub fn is_bare_repository_file(path: &Path) -> bool {
    let parts = ["HEAD", "objects", "refs"];
    let makes = |dir: &Path, name: &str| {
        let exists = |part: &str| dir.join(part).symlink_metadata().is_ok();
        // The names come first: looking at the disk for every directory of a deep path would take quadratic time.
        if parts.contains(&name) {
            return parts.iter().all(|part| *part == name || exists(part)) && !exists(name);
        }
        ["config", "config.worktree", "commondir", "hooks"].contains(&name)
            && parts.iter().all(|part| exists(part))
    };
    path.ancestors().any(|part| match (part.parent(), part.file_name().and_then(|name| name.to_str())) {
        (Some(dir), Some(name)) => makes(dir, name),
        _ => false,
    })
}
