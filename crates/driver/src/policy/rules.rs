//! Rule files: read at the start of a pod, checked for changes before each call is judged, and written when a
//! user answers "always".
//!
//! Here: the files, and the handling of unreadable ones. Elsewhere: their syntax (`policy::rules`), when they
//! apply (`pod`).
//! Invariants: a user's rule is never dropped silently: a pod does not start with a broken user file, and a
//! running one keeps its rules (`a_broken_policy_keeps_a_pod_from_starting_and_leaves_a_live_one_its_rules`);
//! a workspace can only tighten, so its broken file is reported and ignored.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use minke_manifest::PermissionsSection;
use minke_policy::{LayeredRule, PolicyRule, RuleLayer, RuleSet};
use minke_record::Judgement;
use minke_registry::UserPaths;

/// The rules of the machine's administrator.
pub const MANAGED_FILE: &str = "/etc/minke/policy.toml";
/// The file name in the configuration directory and in a workspace.
pub const USER_FILE: &str = "policy.toml";
const WORKSPACE_FILE: &str = ".minke/policy.toml";
/// The workspace settings, which may also contain ask and deny rules.
const WORKSPACE_SETTINGS: &str = ".minke/config.toml";
/// The maximum size of a rule file.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// The locations of the rule files.
#[derive(Debug, Clone)]
pub struct RuleFiles {
    managed: PathBuf,
    user: PathBuf,
    workspace: PathBuf,
}

/// The loaded rules.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LoadedRules {
    pub rules: RuleSet,
    /// Ignored rules, each with its file, to report to the user.
    pub problems: Vec<String>,
}

/// The reason why the user's rules could not be loaded.
#[derive(Debug, thiserror::Error)]
#[error("could not load the rules in {}: {why}", path.display())]
pub struct RulesError {
    path: PathBuf,
    why: String,
}

impl RuleFiles {
    pub fn new(paths: &UserPaths, workspace: &Path) -> RuleFiles {
        RuleFiles {
            managed: MANAGED_FILE.into(),
            user: paths.config.join(USER_FILE),
            workspace: workspace.to_owned(),
        }
    }

    /// The user's own file.
    pub fn user_file(&self) -> &Path {
        &self.user
    }

    /// Loads the rules of all layers; `own` are the rules of the pod's configuration.
    pub fn load_rules(&self, own: &PermissionsSection) -> Result<LoadedRules, RulesError> {
        let mut loaded = LoadedRules::default();
        for (layer, path) in [(RuleLayer::Managed, &self.managed), (RuleLayer::User, &self.user)] {
            let fail = |why: String| RulesError { path: path.clone(), why };
            let Some(text) = read_file(path).map_err(|e| fail(e.to_string()))? else { continue };
            let (rules, problems) =
                RuleSet::parse(layer, &path.to_string_lossy(), &text).map_err(|e| fail(e.to_string()))?;
            loaded.add_layer(rules, problems);
        }
        loaded.rules.rules.extend(manifest_rules(own));
        self.load_workspace(&mut loaded);
        Ok(loaded)
    }

    /// Adds the rules of the repository. They can only tighten, so ignoring them takes nothing away from the
    /// user.
    fn load_workspace(&self, loaded: &mut LoadedRules) {
        let text = match minke_config::trust::read_text_file(
            &self.workspace,
            Path::new(WORKSPACE_FILE),
            MAX_FILE_BYTES,
        ) {
            Ok(None) => return,
            Ok(Some(text)) => text,
            Err(e) => return loaded.problems.push(format!("{WORKSPACE_FILE} is ignored: {e}")),
        };
        match RuleSet::parse(RuleLayer::Workspace, WORKSPACE_FILE, &text) {
            Ok((rules, problems)) => loaded.add_layer(rules, problems),
            Err(e) => loaded.problems.push(format!("{WORKSPACE_FILE} is ignored: {e}")),
        }
    }

    /// The stamps of the files; a difference means that a file has changed.
    fn file_stamps(&self) -> [Option<RuleFileStamp>; 3] {
        [&self.managed, &self.user, &self.workspace.join(WORKSPACE_FILE)].map(|path| file_stamp(path))
    }

    /// Appends a rule as one line of TOML to the user's file, without other changes.
    pub fn add_rule(&self, rule: &str) -> Result<(), RulesError> {
        let fail = |why: String| RulesError { path: self.user.clone(), why };
        let rule = PolicyRule::parse(rule).map_err(|e| fail(e.to_string()))?;
        let io = |e: io::Error| fail(e.to_string());
        let parent = self.user.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(parent).map_err(io)?;
        // Two pods may add a rule at the same time.
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(parent.join("policy.lock"))
            .map_err(io)?;
        lock.lock().map_err(io)?;
        let before = read_file(&self.user).map_err(io)?.unwrap_or_default();
        let after = minke_policy::rules::append_rule(&before, &rule).map_err(|e| fail(e.to_string()))?;
        if after == before {
            return Ok(());
        }
        // Follows a symbolic link of the user to the actual file.
        let target = fs::canonicalize(&self.user).unwrap_or_else(|_| self.user.clone());
        replace_file(&target, after.as_bytes()).map_err(io)
    }
}

impl LoadedRules {
    fn add_layer(&mut self, rules: RuleSet, problems: Vec<impl ToString>) {
        self.rules.rules.extend(rules.rules);
        self.problems.extend(problems.into_iter().map(|problem| problem.to_string()));
    }
}

/// The rules of a pod's configuration.
fn manifest_rules(own: &PermissionsSection) -> Vec<LayeredRule> {
    let place = |rule: PolicyRule, origin: &str| LayeredRule {
        layer: RuleLayer::User,
        origin: origin.to_owned(),
        rule,
    };
    let rules = own.rule.iter().map(|rule| place(rule.clone(), "permissions.rule"));
    // The workspace's ask and deny rules form a separate layer: in the user's layer a more specific one could
    // loosen a user's rule.
    let workspace = own.workspace_rule.iter().map(|rule| LayeredRule {
        layer: RuleLayer::Workspace,
        origin: WORKSPACE_SETTINGS.to_owned(),
        rule: rule.clone(),
    });
    let least = own.default_action.clone().filter(|action| !matches!(action, Judgement::Other(_)));
    let least = least.map(|action| place(PolicyRule::for_all_tools(action), "permissions.default_action"));
    rules.chain(least).chain(workspace).collect()
}

/// The rules of a running pod, and the stamps of their files.
pub(crate) struct WatchedRules {
    files: RuleFiles,
    stamps: [Option<RuleFileStamp>; 3],
}

impl WatchedRules {
    pub(crate) fn new(files: RuleFiles) -> WatchedRules {
        let stamps = files.file_stamps();
        WatchedRules { files, stamps }
    }

    pub(crate) fn files(&self) -> &RuleFiles {
        &self.files
    }

    /// Reloads the rules if a file has changed since the last check.
    pub(crate) fn reload_changed(
        &mut self,
        own: &PermissionsSection,
    ) -> Option<Result<LoadedRules, RulesError>> {
        let now = self.files.file_stamps();
        if now == self.stamps {
            return None;
        }
        self.stamps = now;
        Some(self.files.load_rules(own))
    }
}

type RuleFileStamp = (u64, u64, i64, i64, u64);

fn file_stamp(path: &Path) -> Option<RuleFileStamp> {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.mtime(), found.mtime_nsec(), found.len()))
}

/// Reads a user file; `None` if it does not exist.
fn read_file(path: &Path) -> io::Result<Option<String>> {
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = match File::options().read(true).custom_flags(nonblock).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let found = file.metadata()?;
    if !found.is_file() || found.len() > MAX_FILE_BYTES {
        let what = format!("it is not a file of at most {MAX_FILE_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
    Ok(Some(text))
}

/// Replaces a file atomically, readable only by its owner.
fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    use std::io::Write;
    let mut temp = path.as_os_str().to_owned();
    temp.push(".new");
    let temp = PathBuf::from(temp);
    let mut file = File::options().create(true).truncate(true).write(true).mode(0o600).open(&temp)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temp, path)?;
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}
