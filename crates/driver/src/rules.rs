//! Rule files: read when a pod starts, looked at again before each call is judged, written when a person says "always".
//!
//! Here: which files there are and what is done when one cannot be read. Elsewhere: what stands in them
//! (`policy::rules`), when they count (`pod`).
//! Invariants: a rule that a person wrote is never dropped in silence: a pod does not start with a broken file of theirs,
//! and a live one keeps the rules it has (`a_broken_policy_keeps_a_pod_from_starting_and_leaves_a_live_one_its_rules`);
//! a workspace can only tighten, so a broken file of it is named and left out.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use minke_manifest::PermissionsSection;
use minke_policy::{Layer, Placed, Rule, RuleSet};
use minke_record::Judgement;
use minke_registry::Paths;

/// The rules of the machine's owner.
pub const MANAGED: &str = "/etc/minke/policy.toml";
/// The file's name in the configuration directory, and below a workspace.
pub const FILE: &str = "policy.toml";
const OF_WORKSPACE: &str = ".minke/policy.toml";
/// Where else a workspace may ask and deny.
const SETTINGS_OF_WORKSPACE: &str = ".minke/config.toml";
/// The longest rule file that is read.
const FILE_BYTES: u64 = 1024 * 1024;

/// Where rules stand.
#[derive(Debug, Clone)]
pub struct RuleFiles {
    managed: PathBuf,
    user: PathBuf,
    workspace: PathBuf,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Loaded {
    pub rules: RuleSet,
    /// What a person should know: rules that were left out, each with its file.
    pub problems: Vec<String>,
}

/// Why rules of a person could not be had.
#[derive(Debug, thiserror::Error)]
#[error("the rules in {} cannot be used: {why}", path.display())]
pub struct RulesError {
    path: PathBuf,
    why: String,
}

impl RuleFiles {
    pub fn new(paths: &Paths, workspace: &Path) -> RuleFiles {
        RuleFiles { managed: MANAGED.into(), user: paths.config.join(FILE), workspace: workspace.to_owned() }
    }

    /// The person's own file.
    pub fn user(&self) -> &Path {
        &self.user
    }

    /// Every rule of all layers; `own` are those that came with the pod's configuration.
    pub fn load(&self, own: &PermissionsSection) -> Result<Loaded, RulesError> {
        let mut loaded = Loaded::default();
        for (layer, path) in [(Layer::Managed, &self.managed), (Layer::User, &self.user)] {
            let fail = |why: String| RulesError { path: path.clone(), why };
            let Some(text) = read(path).map_err(|e| fail(e.to_string()))? else { continue };
            let (rules, problems) =
                RuleSet::read(layer, &path.to_string_lossy(), &text).map_err(|e| fail(e.to_string()))?;
            loaded.take(rules, problems);
        }
        loaded.rules.rules.extend(declared(own));
        self.workspaces(&mut loaded);
        Ok(loaded)
    }

    /// What the repository adds. It may only tighten, so nothing is lost to a person if it is left out.
    fn workspaces(&self, loaded: &mut Loaded) {
        let text = match minke_trust::read(&self.workspace, Path::new(OF_WORKSPACE), FILE_BYTES) {
            Ok(None) => return,
            Ok(Some(text)) => text,
            Err(e) => return loaded.problems.push(format!("{OF_WORKSPACE} is ignored: {e}")),
        };
        match RuleSet::read(Layer::Workspace, OF_WORKSPACE, &text) {
            Ok((rules, problems)) => loaded.take(rules, problems),
            Err(e) => loaded.problems.push(format!("{OF_WORKSPACE} is ignored: {e}")),
        }
    }

    /// What the files look like from outside; two looks that differ mean that something was changed.
    fn look(&self) -> [Option<Stamp>; 3] {
        [&self.managed, &self.user, &self.workspace.join(OF_WORKSPACE)].map(|path| stamp(path))
    }

    /// Appends a rule, one line of TOML, to the person's file, with everything else in it as it was.
    pub fn add(&self, rule: &str) -> Result<(), RulesError> {
        let fail = |why: String| RulesError { path: self.user.clone(), why };
        let rule = Rule::parse(rule).map_err(|e| fail(e.to_string()))?;
        let io = |e: io::Error| fail(e.to_string());
        let parent = self.user.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(parent).map_err(io)?;
        // Two pods may be told "always" at once.
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(parent.join("policy.lock"))
            .map_err(io)?;
        lock.lock().map_err(io)?;
        let before = read(&self.user).map_err(io)?.unwrap_or_default();
        let after = minke_policy::rules::append(&before, &rule).map_err(|e| fail(e.to_string()))?;
        if after == before {
            return Ok(());
        }
        // A link that a person put there leads to where the file really is.
        let target = fs::canonicalize(&self.user).unwrap_or_else(|_| self.user.clone());
        replace(&target, after.as_bytes()).map_err(io)
    }
}

impl Loaded {
    fn take(&mut self, rules: RuleSet, problems: Vec<impl ToString>) {
        self.rules.rules.extend(rules.rules);
        self.problems.extend(problems.into_iter().map(|problem| problem.to_string()));
    }
}

/// The rules that came with a pod's configuration.
fn declared(own: &PermissionsSection) -> Vec<Placed> {
    let place = |rule: Rule, origin: &str| Placed { layer: Layer::User, origin: origin.to_owned(), rule };
    let rules = own.rule.iter().map(|rule| place(rule.clone(), "permissions.rule"));
    // What the workspace's settings ask or deny is a layer of its own: beside a person's rule it could be the more
    // specific one, and loosen.
    let workspace = own.workspace_rule.iter().map(|rule| Placed {
        layer: Layer::Workspace,
        origin: SETTINGS_OF_WORKSPACE.to_owned(),
        rule: rule.clone(),
    });
    let least = own.default_action.clone().filter(|action| !matches!(action, Judgement::Other(_)));
    let least = least.map(|action| place(Rule::everything(action), "permissions.default_action"));
    rules.chain(least).chain(workspace).collect()
}

/// The rules of a live pod, and how their files looked when they were read.
pub(crate) struct Rules {
    files: RuleFiles,
    seen: [Option<Stamp>; 3],
}

impl Rules {
    pub(crate) fn new(files: RuleFiles) -> Rules {
        let seen = files.look();
        Rules { files, seen }
    }

    pub(crate) fn files(&self) -> &RuleFiles {
        &self.files
    }

    /// What the files say now, if they were changed since they were last looked at.
    pub(crate) fn changed(&mut self, own: &PermissionsSection) -> Option<Result<Loaded, RulesError>> {
        let now = self.files.look();
        if now == self.seen {
            return None;
        }
        self.seen = now;
        Some(self.files.load(own))
    }
}

type Stamp = (u64, u64, i64, i64, u64);

fn stamp(path: &Path) -> Option<Stamp> {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.mtime(), found.mtime_nsec(), found.len()))
}

/// A person's file; `None` if there is none.
fn read(path: &Path) -> io::Result<Option<String>> {
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = match File::options().read(true).custom_flags(nonblock).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let found = file.metadata()?;
    if !found.is_file() || found.len() > FILE_BYTES {
        let what = format!("it is not a file of at most {FILE_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    let mut text = String::new();
    file.take(FILE_BYTES).read_to_string(&mut text)?;
    Ok(Some(text))
}

/// Puts new content in a file's place at once, readable by its owner only.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
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
