//! The kit: a pod's tools and what they work with, made when it boots.
//!
//! Here: the files of its scope, its commands behind their fence, its proxy, which tools are offered. Elsewhere: the
//! tools (`tools`), the fence (`exec`), who may call them (`pod`).
//! Invariant: where nothing holds a command, none is offered (`without_a_fence_no_command_is_offered`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use minke_exec::command::{Commands, CommandsConfig, Veil};
use minke_exec::fence::{EnvRules, FenceSpec, Findings, Helper, Network, PodDirs};
use minke_exec::proxy::Proxy;
use minke_files::{Files, FilesConfig, LedTo, TmpAlias};
use minke_git::{Area, Finder, Ground, Guard, Scanner};
use minke_llm::Cover;
use minke_manifest::profiles::Offer;
use minke_manifest::{Manifest, SandboxMode};
use minke_policy::{Level, Tier};
use minke_record::{Permission, Scope, ScopeRule, SessionId};
use minke_references::Skill;
use minke_registry::{OwnDirs, Paths};
use minke_tool::Tool;

use crate::denials::Denials;
use crate::words::reaches;

/// Where commands in a fence that can move it see the pod's own temporary directory.
const SHOWN_TMP: &str = "/tmp";

/// Where clones of workspaces lie among our data.
pub(crate) const CLONES: &str = "clones";

/// Where among our state the repositories are kept that were there before the commands that run.
const BEFORE: &str = "repositories";

/// What a kit is made from.
pub(crate) struct Making<'a> {
    pub(crate) session: SessionId,
    pub(crate) scope: &'a Scope,
    pub(crate) manifest: &'a Manifest,
    pub(crate) paths: &'a Paths,
    pub(crate) dirs: &'a OwnDirs,
    pub(crate) cover: &'a Arc<Cover>,
    pub(crate) tier: Tier,
    /// The binary that puts up the walls.
    pub(crate) helper: Helper,
    /// The profiles that a child can be made from.
    pub(crate) profiles: &'a Arc<Offer>,
    pub(crate) skills: &'a [Skill],
    pub(crate) denials: &'a Denials,
}

pub(crate) struct Kit {
    pub(crate) files: Arc<Files>,
    pub(crate) commands: Option<Arc<Commands>>,
    /// Compares repositories before and after commands.
    pub(crate) guard: Guard,
    /// Told of the rules whenever they change.
    pub(crate) denials: Denials,
    /// Exactly what is offered, sorted by name.
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) tier: Tier,
    /// The pod's own directories, beside its scope.
    pub(crate) own: Scope,
    /// What a client should know about all this.
    pub(crate) notices: Vec<String>,
    /// Ends with the pod.
    pub(crate) proxy: Option<Proxy>,
}

impl Kit {
    pub(crate) fn make(making: Making<'_>) -> Kit {
        let Making { scope, manifest, tier, .. } = making;
        let making = &making;
        let mut notices = Vec::new();
        let files = Files::new(files_config(making)).unwrap_or_else(|e| {
            notices.push(format!("no file of the scope can be reached: {e}"));
            Files::none()
        });
        let files = Arc::new(files);
        let guard = Guard::new(Some(making.paths.state.join(BEFORE).join(making.session.to_string())));
        let commands = tier
            .offers_commands()
            .then(|| Arc::new(Commands::new(commands_config(making, (&files, &guard)))));
        if tier.offers_commands() && tier != Tier::Off && manifest.sandbox.mode != SandboxMode::ReadOnly {
            let denied = making.denials.within(scope);
            let ground = Ground { scope: files.scope(), denied, lifted: lifted(making) };
            notices.extend(guard.recover(ground).lines());
        }
        notices.extend(notice(tier));
        if manifest.sandbox.network != minke_manifest::Network::Off && !tier.reaches_hosts() {
            notices.push(format!("commands reach no host: tier {tier} cannot hold them to the pod's proxy"));
        }
        let tools = minke_tools::builtin(&minke_tools::Kit {
            files: Arc::clone(&files),
            commands: commands.clone(),
            offers_commands: tier.offers_commands(),
            web: crate::web::settings(manifest.web.as_ref(), &mut notices),
            profiles: Arc::clone(making.profiles),
        });
        if let Some(rule) = minke_policy::deny_inside_write(scope).filter(|_| tier == Tier::B) {
            notices.push(format!(
                "commands are refused: tier B cannot hold them to a scope in which {} is denied",
                rule.target
            ));
        }
        let denials = making.denials.clone();
        Kit { files, commands, guard, denials, tools, tier, own: own(making), notices, proxy: None }
    }
}

/// Secrets of the person, and everything of ours that is not this pod's own.
pub(crate) fn masked(paths: &Paths) -> Vec<PathBuf> {
    let home = std::env::home_dir().map(|home| minke_policy::secrets(&home.to_string_lossy()));
    let secrets = home.unwrap_or_default().into_iter().map(PathBuf::from);
    let ours = [&paths.config, &paths.state, &paths.runtime].into_iter().cloned();
    let all: BTreeSet<PathBuf> = secrets.chain(ours).chain(masked_data(&paths.data)).collect();
    all.into_iter().collect()
}

/// All of our data but the clones: those are told apart by scopes, which a pod has only for its own and, to read, for
/// its children's. Where they cannot be told apart, all of it.
fn masked_data(data: &Path) -> Vec<PathBuf> {
    let clones = data.join(CLONES);
    match std::fs::create_dir_all(&clones).and_then(|()| std::fs::read_dir(data)) {
        Ok(listed) => listed.flatten().map(|found| found.path()).filter(|path| *path != clones).collect(),
        Err(_) => vec![data.to_owned()],
    }
}

/// What a person lifted, and the pod's own clone, which lies among what is ours. Names that are protected inside it stay
/// so.
fn lifted(making: &Making<'_>) -> Vec<PathBuf> {
    let clone = making.paths.data.join(CLONES).join(making.session.to_string());
    let clone = clone
        .canonicalize()
        .ok()
        .filter(|clone| making.scope.allow.iter().any(|rule| Path::new(&rule.target) == clone.as_path()));
    making.manifest.sandbox.lifted.iter().map(PathBuf::from).chain(clone).collect()
}

fn files_config(making: &Making<'_>) -> FilesConfig {
    let Making { scope, manifest, paths, dirs, tier, .. } = *making;
    let read_only = manifest.sandbox.mode == SandboxMode::ReadOnly;
    let alias = TmpAlias { shown: SHOWN_TMP.into(), real: dirs.tmp.clone() };
    FilesConfig {
        scope: if read_only { reading(scope) } else { scope.clone() },
        tmp: tier.moves_tmp().then_some(alias),
        tmp_dir: Some(dirs.tmp.clone()),
        tmp_read_only: !manifest.sandbox.writable_tmp,
        output: Some(dirs.output.clone()),
        readable: beside(making.scope, making.skills),
        masked: masked(paths),
        lifted: lifted(making),
        led_to: led_to(),
    }
}

/// What git is led to outside of protected names, looked up for each write: a person may change it at any time.
fn led_to() -> LedTo {
    let scanner = Mutex::new(Scanner::default());
    LedTo(Some(Arc::new(move |path: &Path, scope: &Scope| {
        if minke_git::is_of_a_bare_repository(path) {
            return Some("a repository's own directory");
        }
        let survey = {
            let mut scanner = scanner.lock().unwrap_or_else(PoisonError::into_inner);
            scanner.scan(Area { scope, denied: None })
        };
        let within = |target: &Path| path.starts_with(target);
        let targets = Finder::of_this_user().targets(&survey.repositories, within);
        (!targets.is_empty()).then_some("what git's configuration or a hook leads to")
    })))
}

/// Directories of skills that the scope does not reach, and that are read all the same.
pub(crate) fn beside(scope: &Scope, skills: &[Skill]) -> Vec<PathBuf> {
    let reached = |dir: &Path| minke_policy::level(scope, &dir.to_string_lossy()) >= Level::Read;
    let outside = skills.iter().filter(|skill| skill.level != minke_references::Level::Project);
    let usable = outside.filter(|skill| reaches(scope, skill) && !reached(&skill.dir));
    usable.map(|skill| skill.dir.clone()).collect()
}

fn read_rule(dir: &Path) -> ScopeRule {
    ScopeRule { target: dir.to_string_lossy().into_owned(), permission: Permission::Read, recursive: true }
}

/// The same scope without the right to write.
pub(crate) fn reading(scope: &Scope) -> Scope {
    let mut scope = scope.clone();
    for rule in &mut scope.allow {
        rule.permission = Permission::Read;
    }
    scope
}

fn commands_config(making: &Making<'_>, (files, guard): (&Arc<Files>, &Guard)) -> CommandsConfig {
    let Making { manifest, paths, dirs, tier, cover, .. } = *making;
    let sandbox = &manifest.sandbox;
    let network = match sandbox.network {
        minke_manifest::Network::On | minke_manifest::Network::Hosts(_) if tier.reaches_hosts() => {
            Network::Proxy { socket: dirs.proxy.clone() }
        }
        // Elsewhere nothing would hold a command to the proxy, so it gets no network at all.
        _ => Network::Off,
    };
    let made = FenceSpec {
        scope: Scope::default(),
        read_only: sandbox.mode == SandboxMode::ReadOnly,
        dirs: PodDirs {
            tmp: dirs.tmp.clone(),
            output: dirs.output.clone(),
            fences: dirs.fences.clone(),
            writable_tmp: sandbox.writable_tmp,
        },
        masked: masked(paths),
        lifted: lifted(making),
        network,
        env: EnvRules { pass: sandbox.env.pass.clone(), set: sandbox.env.set.clone() },
        findings: Findings::default(),
    };
    let denials = making.denials.clone();
    let (files, cover) = (Arc::clone(files), Arc::clone(cover));
    let skills: Vec<ScopeRule> =
        beside(making.scope, making.skills).iter().map(|dir| read_rule(dir)).collect();
    CommandsConfig {
        tier,
        // The scope is one live value, and the files hold it.
        spec: Arc::new(move || {
            let mut scope = files.scope();
            scope.allow.extend(skills.iter().cloned());
            let findings = Findings { denied: denials.within(&scope), survey: None };
            FenceSpec { scope, findings, ..made.clone() }
        }),
        output_dir: dirs.output.clone(),
        cover: Arc::new(move || Box::new(Covered::new(&cover))),
        helper: making.helper.clone(),
        guard: guard.clone(),
    }
}

/// What the pod may touch beside its scope, as paths are named to it.
fn own(making: &Making<'_>) -> Scope {
    let Making { manifest, dirs, tier, .. } = *making;
    let rule = |path: &Path, permission: Permission| ScopeRule {
        target: path.to_string_lossy().into_owned(),
        permission,
        recursive: true,
    };
    let tmp = if manifest.sandbox.writable_tmp { Permission::Write } else { Permission::Read };
    let mut allow = vec![rule(&dirs.tmp, tmp.clone()), rule(&dirs.output, Permission::Read)];
    if tier.moves_tmp() {
        allow.push(rule(Path::new(SHOWN_TMP), tmp));
    }
    allow.extend(beside(making.scope, making.skills).iter().map(|dir| read_rule(dir)));
    Scope { allow, deny: Vec::new() }
}

/// What a person must know about a fence that is not whole.
fn notice(tier: Tier) -> Option<String> {
    let text = match tier {
        Tier::A | Tier::APrime | Tier::C => return None,
        Tier::B => {
            "weaker fence (tier B): commands can change modes and times of files outside, see other processes, and \
             write protected names such as .git/hooks; `minke doctor` says what would give tier A"
        }
        Tier::D => "no fence (tier D): commands are not offered; `minke doctor` says what is missing",
        Tier::Off => "no fence (--unsandboxed): commands run with all your rights",
    };
    Some(text.to_owned())
}

/// Hides keys in what a command says.
struct Covered(Result<minke_secrets::Stream, String>);

impl Covered {
    fn new(cover: &Cover) -> Covered {
        Covered(cover.stream().map_err(|e| e.to_string()))
    }
}

impl Veil for Covered {
    fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        match &mut self.0 {
            Ok(stream) => stream.push(bytes),
            // What cannot be looked at for keys is not shown.
            Err(_) => Vec::new(),
        }
    }

    fn end(&mut self) -> Vec<u8> {
        match &mut self.0 {
            Ok(stream) => stream.finish(),
            Err(why) => format!("[nothing is shown, since keys could not be hidden: {why}]\n").into_bytes(),
        }
    }
}
