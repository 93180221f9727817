//! The toolset: a pod's tools and their resources, created at boot.
//!
//! Here: the files of its scope, its commands and their sandbox, its proxy, the list of offered tools.
//! Elsewhere: the tools (`tools`), the sandbox (`exec`), which calls are allowed (`pod`).
//! Invariant: without a sandbox no command is offered (`without_a_fence_no_command_is_offered`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use minke_exec::command::{Commands, CommandsConfig, OutputFilter};
use minke_exec::sandbox::{EnvRules, HelperBinary, NetworkAccess, PodDirs, SandboxSpec, ScopeFindings};
use minke_files::{ExtraProtection, FilesConfig, ScopedFiles, TmpAlias};
use minke_git::{GuardScope, RepositoryGuard, RepositoryScanner, SurveyArea, TargetFinder};
use minke_manifest::profiles::ProfileCatalog;
use minke_manifest::{Manifest, SandboxMode};
use minke_net::proxy::Proxy;
use minke_policy::{AccessLevel, SandboxBackend};
use minke_record::{Permission, Scope, ScopeRule, SessionId};
use minke_references::Skill;
use minke_registry::{PodOwnDirs, UserPaths};
use minke_secrets::KeyRedactor;
use minke_tool::Tool;

use crate::models::system_prompt::can_read_skill;
use crate::policy::denied_paths::DeniedPathRules;

/// The path of the pod's own temporary directory inside a sandbox with mounts.
const SANDBOX_TMP: &str = "/tmp";

/// The directory of workspace clones inside the data directory.
pub(crate) const CLONES_DIR: &str = "clones";

/// The directory in the state directory that stores repository state from before the running commands.
const REPOSITORIES_DIR: &str = "repositories";

/// The configuration of a toolset.
pub(crate) struct ToolsetConfig<'a> {
    pub(crate) session: SessionId,
    pub(crate) scope: &'a Scope,
    pub(crate) manifest: &'a Manifest,
    pub(crate) paths: &'a UserPaths,
    pub(crate) dirs: &'a PodOwnDirs,
    pub(crate) redactor: &'a Arc<KeyRedactor>,
    pub(crate) backend: SandboxBackend,
    /// The sandbox helper binary.
    pub(crate) helper: HelperBinary,
    /// Profiles available for children.
    pub(crate) profiles: &'a Arc<ProfileCatalog>,
    pub(crate) skills: &'a [Skill],
    pub(crate) denials: &'a DeniedPathRules,
}

pub(crate) struct Toolset {
    pub(crate) files: Arc<ScopedFiles>,
    pub(crate) commands: Option<Arc<Commands>>,
    /// Compares repositories before and after commands.
    pub(crate) repository_guard: RepositoryGuard,
    /// Updated whenever the rules change.
    pub(crate) denials: DeniedPathRules,
    /// The offered tools, sorted by name.
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) backend: SandboxBackend,
    /// Scope of the pod's own directories.
    pub(crate) own_scope: Scope,
    /// Messages about the toolset for clients.
    pub(crate) notices: Vec<String>,
    /// Stops with the pod.
    pub(crate) proxy: Option<Proxy>,
}

impl Toolset {
    pub(crate) fn build(config: ToolsetConfig<'_>) -> Toolset {
        let ToolsetConfig { scope, manifest, backend, .. } = config;
        let making = &config;
        let mut notices = Vec::new();
        let files = ScopedFiles::new(files_config(making)).unwrap_or_else(|e| {
            notices.push(format!("could not open the files of the scope: {e}"));
            ScopedFiles::without_grants()
        });
        let files = Arc::new(files);
        let repository_guard = RepositoryGuard::new(Some(
            making.paths.state.join(REPOSITORIES_DIR).join(making.session.to_string()),
        ));
        let commands = backend
            .can_run_commands()
            .then(|| Arc::new(Commands::new(commands_config(making, &files, &repository_guard))));
        if backend.can_run_commands()
            && backend != SandboxBackend::Off
            && manifest.sandbox.mode != SandboxMode::ReadOnly
        {
            let denied = making.denials.denied_within(scope);
            let ground = GuardScope { scope: files.scope(), denied, lifted: lifted_paths(making) };
            notices.extend(repository_guard.recover_baseline(ground).to_lines());
        }
        notices.extend(sandbox_notice(backend));
        if manifest.sandbox.network != minke_manifest::NetworkPolicy::Off && !backend.can_grant_hosts() {
            notices.push(format!(
                "commands have no network access: sandbox {backend} cannot restrict them to the pod's proxy"
            ));
        }
        let tools = minke_tools::builtin_tools(&minke_tools::ToolResources {
            files: Arc::clone(&files),
            commands: commands.clone(),
            can_run_commands: backend.can_run_commands(),
            web: crate::policy::network_config::web_settings(manifest.web.as_ref(), &mut notices),
            profiles: Arc::clone(making.profiles),
        });
        if let Some(rule) =
            minke_policy::deny_inside_write(scope).filter(|_| backend == SandboxBackend::Landlock)
        {
            notices.push(format!(
                "commands are refused: the landlock sandbox cannot enforce a scope in which {} is denied",
                rule.target
            ));
        }
        let denials = making.denials.clone();
        Toolset {
            files,
            commands,
            repository_guard,
            denials,
            tools,
            backend,
            own_scope: own_dirs_scope(making),
            notices,
            proxy: None,
        }
    }
}

/// Paths hidden from commands: the user's secrets, and all Minke files that do not belong to this pod.
pub(crate) fn masked_paths(paths: &UserPaths) -> Vec<PathBuf> {
    let home = std::env::home_dir().map(|home| minke_policy::secret_paths(&home.to_string_lossy()));
    let secrets = home.unwrap_or_default().into_iter().map(PathBuf::from);
    let ours = [&paths.config, &paths.state, &paths.runtime].into_iter().cloned();
    let all: BTreeSet<PathBuf> = secrets.chain(ours).chain(masked_data(&paths.data)).collect();
    all.into_iter().collect()
}

/// Hides the data directory except for clones: a pod's scope contains only its own clone and, read-only,
/// those of its children. If the sandbox cannot separate them, the whole directory is hidden.
fn masked_data(data: &Path) -> Vec<PathBuf> {
    let clones = data.join(CLONES_DIR);
    match std::fs::create_dir_all(&clones).and_then(|()| std::fs::read_dir(data)) {
        Ok(listed) => listed.flatten().map(|found| found.path()).filter(|path| *path != clones).collect(),
        Err(_) => vec![data.to_owned()],
    }
}

/// Protected paths that the user has exempted, and the pod's own clone inside the data directory. Protected
/// names inside the clone stay protected.
fn lifted_paths(config: &ToolsetConfig<'_>) -> Vec<PathBuf> {
    let clone = config.paths.data.join(CLONES_DIR).join(config.session.to_string());
    let clone = clone
        .canonicalize()
        .ok()
        .filter(|clone| config.scope.allow.iter().any(|rule| Path::new(&rule.target) == clone.as_path()));
    config.manifest.sandbox.lifted.iter().map(PathBuf::from).chain(clone).collect()
}

fn files_config(making: &ToolsetConfig<'_>) -> FilesConfig {
    let ToolsetConfig { scope, manifest, paths, dirs, backend, .. } = *making;
    let read_only = manifest.sandbox.mode == SandboxMode::ReadOnly;
    let alias = TmpAlias { shown: SANDBOX_TMP.into(), real: dirs.tmp.clone() };
    FilesConfig {
        scope: if read_only { read_only_scope(scope) } else { scope.clone() },
        tmp: backend.remaps_tmp().then_some(alias),
        tmp_dir: Some(dirs.tmp.clone()),
        tmp_read_only: !manifest.sandbox.writable_tmp,
        output: Some(dirs.output.clone()),
        readable: skill_dirs(making.scope, making.skills),
        masked: masked_paths(paths),
        lifted: lifted_paths(making),
        extra_protection: git_redirects(),
    }
}

/// Paths outside of protected names that git would execute or include; computed for each write, because the
/// user may change the configuration at any time.
fn git_redirects() -> ExtraProtection {
    let scanner = Mutex::new(RepositoryScanner::default());
    ExtraProtection(Some(Arc::new(move |path: &Path, scope: &Scope| {
        if minke_git::is_bare_repository_file(path) {
            return Some("a repository's own directory");
        }
        let survey = {
            let mut scanner = scanner.lock().unwrap_or_else(PoisonError::into_inner);
            scanner.scan_area(SurveyArea { scope, denied: None })
        };
        let within = |target: &Path| path.starts_with(target);
        let targets = TargetFinder::for_current_user().find_targets(&survey.repositories, within);
        (!targets.is_empty()).then_some("a file that git's configuration or a hook refers to")
    })))
}

/// Skill directories outside of the scope that are readable all the same.
pub(crate) fn skill_dirs(scope: &Scope, skills: &[Skill]) -> Vec<PathBuf> {
    let reached = |dir: &Path| minke_policy::access_level(scope, &dir.to_string_lossy()) >= AccessLevel::Read;
    let outside = skills.iter().filter(|skill| skill.level != minke_references::SkillLevel::Project);
    let usable = outside.filter(|skill| can_read_skill(scope, skill) && !reached(&skill.dir));
    usable.map(|skill| skill.dir.clone()).collect()
}

fn read_rule(dir: &Path) -> ScopeRule {
    ScopeRule { target: dir.to_string_lossy().into_owned(), permission: Permission::Read, recursive: true }
}

/// The same scope without write access.
pub(crate) fn read_only_scope(scope: &Scope) -> Scope {
    let mut scope = scope.clone();
    for rule in &mut scope.allow {
        rule.permission = Permission::Read;
    }
    scope
}

fn commands_config(
    config: &ToolsetConfig<'_>,
    files: &Arc<ScopedFiles>,
    guard: &RepositoryGuard,
) -> CommandsConfig {
    let ToolsetConfig { manifest, paths, dirs, backend, redactor, .. } = *config;
    let sandbox = &manifest.sandbox;
    let network = match sandbox.network {
        minke_manifest::NetworkPolicy::On | minke_manifest::NetworkPolicy::Hosts(_)
            if backend.can_grant_hosts() =>
        {
            NetworkAccess::Proxy { socket: dirs.proxy.clone() }
        }
        // Without a sandbox a command could bypass the proxy, so it gets no network access.
        _ => NetworkAccess::Off,
    };
    let made = SandboxSpec {
        scope: Scope::default(),
        read_only: sandbox.mode == SandboxMode::ReadOnly,
        dirs: PodDirs {
            tmp: dirs.tmp.clone(),
            output: dirs.output.clone(),
            lock_file: dirs.sandbox_lock.clone(),
            writable_tmp: sandbox.writable_tmp,
        },
        masked: masked_paths(paths),
        lifted: lifted_paths(config),
        network,
        env: EnvRules { pass: sandbox.env.pass.clone(), set: sandbox.env.set.clone() },
        findings: ScopeFindings::default(),
    };
    let denials = config.denials.clone();
    let (files, cover) = (Arc::clone(files), Arc::clone(redactor));
    let skills: Vec<ScopeRule> =
        skill_dirs(config.scope, config.skills).iter().map(|dir| read_rule(dir)).collect();
    CommandsConfig {
        backend,
        // `files` holds the live scope.
        spec: Arc::new(move || {
            let mut scope = files.scope();
            scope.allow.extend(skills.iter().cloned());
            let findings = ScopeFindings { denied: denials.denied_within(&scope), survey: None };
            SandboxSpec { scope, findings, ..made.clone() }
        }),
        output_dir: dirs.output.clone(),
        output_filter: Arc::new(move || Box::new(RedactedOutput::new(&cover))),
        helper: config.helper.clone(),
        guard: guard.clone(),
    }
}

/// The pod's own directories as a scope, under the paths that the pod uses.
fn own_dirs_scope(making: &ToolsetConfig<'_>) -> Scope {
    let ToolsetConfig { manifest, dirs, backend, .. } = *making;
    let rule = |path: &Path, permission: Permission| ScopeRule {
        target: path.to_string_lossy().into_owned(),
        permission,
        recursive: true,
    };
    let tmp = if manifest.sandbox.writable_tmp { Permission::Write } else { Permission::Read };
    let mut allow = vec![rule(&dirs.tmp, tmp.clone()), rule(&dirs.output, Permission::Read)];
    if backend.remaps_tmp() {
        allow.push(rule(Path::new(SANDBOX_TMP), tmp));
    }
    allow.extend(skill_dirs(making.scope, making.skills).iter().map(|dir| read_rule(dir)));
    Scope { allow, deny: Vec::new() }
}

/// A warning about an incomplete sandbox.
fn sandbox_notice(backend: SandboxBackend) -> Option<String> {
    let text = match backend {
        SandboxBackend::Namespaces | SandboxBackend::Bubblewrap | SandboxBackend::Seatbelt => return None,
        SandboxBackend::Landlock => {
            "weaker sandbox (landlock): commands can change modes and times of files outside, see other processes, and \
             write protected names such as .git/hooks; `minke doctor` shows the missing requirements of a full sandbox"
        }
        SandboxBackend::Unavailable => {
            "no sandbox: commands are not offered; `minke doctor` shows the missing requirements"
        }
        SandboxBackend::Off => "no sandbox (--unsandboxed): commands run with your full permissions",
    };
    Some(text.to_owned())
}

/// Redacts secrets in the output of a command.
struct RedactedOutput(Result<minke_secrets::RedactionStream, String>);

impl RedactedOutput {
    fn new(redactor: &KeyRedactor) -> RedactedOutput {
        RedactedOutput(redactor.redaction_stream().map_err(|e| e.to_string()))
    }
}

impl OutputFilter for RedactedOutput {
    fn filter_bytes(&mut self, bytes: &[u8]) -> Vec<u8> {
        match &mut self.0 {
            Ok(stream) => stream.push(bytes),
            // Output that cannot be checked for secrets is not shown.
            Err(_) => Vec::new(),
        }
    }

    fn finish(&mut self) -> Vec<u8> {
        match &mut self.0 {
            Ok(stream) => stream.finish(),
            Err(why) => format!("[not shown: could not redact secrets: {why}]\n").into_bytes(),
        }
    }
}
