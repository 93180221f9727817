//! The system prompt of a pod, composed from its log and the files around it.
//!
//! Here: collecting its inputs once at boot, and the same for a preview. Elsewhere: templates and the order
//! of parts (`prompts`), reading the files (`sources`), when a segment starts (`pod`).
//! Invariant: the preview equals the prompt of a pod (`what_is_shown_is_what_the_model_is_told`).

use std::path::Path;
use std::sync::Arc;

use minke_config::sources::{InstructionSearch, PromptDirs, find_instructions};
use minke_config::trust::{TrustStatus, TrustStore};
use minke_exec::probe::cached_backend_in;
use minke_exec::sandbox::HelperBinary;
use minke_files::ScopedFiles;
use minke_launch::secret_variables;
use minke_llm::{ResolveContext, build_key_redactor};
use minke_manifest::SandboxMode;
use minke_manifest::profiles::ProfileCatalog;
use minke_pod::{State, prompt_variables};
use minke_policy::{AccessLevel, SandboxBackend, access_level};
use minke_prompts::{
    FittedInstructions, ListedSkill, PromptError, PromptInputs, PromptPart, SnippetCatalog, project_section,
    prompt_parts, system_prompt,
};
use minke_record::{About, Permission, PodName, Scope, ScopeRule};
use minke_references::{ReferenceLibrary, Skill};
use minke_registry::UserPaths;
use minke_secrets::{KeyRedactor, KeySourceError};

use crate::calls::nested_instructions::is_readable;

/// Prefix of built-in assets, which contain no user text.
const BUILTIN_PREFIX: &str = "$minke/";
/// The maximum length of a description in the list of skills.
const MAX_DESCRIPTION_CHARS: usize = 240;

/// A composed system prompt.
#[derive(Debug, Clone)]
pub struct SystemPrompt {
    pub prompt: String,
    /// The parts of the prompt.
    pub parts: Vec<PromptPart>,
    /// The catalog with the user's replacements.
    pub catalog: SnippetCatalog,
    /// The loaded or truncated project files, in one line.
    pub loaded: Option<String>,
    /// Files that could not be used.
    pub problems: Vec<String>,
}

/// The reason why the prompt could not be composed.
#[derive(Debug, thiserror::Error)]
pub enum SystemPromptError {
    #[error("the session has no session_start")]
    MissingStart,
    #[error("`worker.instruction`: {0}")]
    Prompt(#[from] PromptError),
    #[error("the prompt catalog contains the secret {0}: remove the value")]
    Secret(String),
    #[error("could not check the instruction for secrets")]
    Catalog(#[source] KeySourceError),
}

/// The inputs of the prompt besides the log.
pub(crate) struct SystemPromptInputs<'a> {
    pub(crate) name: &'a PodName,
    pub(crate) backend: SandboxBackend,
    /// The names of the tools.
    pub(crate) tools: Vec<String>,
    pub(crate) config: &'a Path,
    pub(crate) trusted: bool,
    /// Skills and workflows.
    pub(crate) shelf: &'a ReferenceLibrary,
    /// Redacts secrets in files.
    pub(crate) redactor: &'a KeyRedactor,
}

pub(crate) fn compose_prompt(
    state: &State,
    inputs: SystemPromptInputs<'_>,
) -> Result<SystemPrompt, SystemPromptError> {
    let Some(about) = &state.facts.about else { return Err(SystemPromptError::MissingStart) };
    let SystemPromptInputs { name, backend, tools, config, trusted, shelf, redactor } = inputs;
    let variables = prompt_variables(state, tools).ok_or(SystemPromptError::MissingStart)?;
    let (cwd, workspace) = (Path::new(&about.cwd), Path::new(&about.workspace));
    let output = &state.manifest.worker.instruction;
    let pack = state.manifest.pod.prompt_pack.as_deref().map(Path::new);
    let shelves = PromptDirs { config, workspace, trusted, pack };
    let catalog = shelves.load_catalog()?;
    for text in catalog.texts().values() {
        // The instruction is used exactly as logged.
        if let [name, ..] = redactor.names_in(text.as_bytes()).map_err(SystemPromptError::Catalog)?.as_slice()
        {
            return Err(SystemPromptError::Secret(name.clone()));
        }
    }
    let mut instruction = shelves.resolve_instruction(output, &variables)?;
    if output.starts_with('$') && !output.starts_with(BUILTIN_PREFIX) {
        redactor.redact(&mut [&mut instruction]).map_err(SystemPromptError::Catalog)?;
    }
    let may_read = |path: &Path| is_readable(&about.scope, path);
    let mut project = find_instructions(InstructionSearch { config, workspace, cwd, may_read: &may_read });
    let mut texts: Vec<&mut String> =
        project.instructions.files.iter_mut().map(|file| &mut file.text).collect();
    if !texts.is_empty()
        && let Err(e) = redactor.redact(&mut texts)
    {
        project.problems.push(format!("no project instructions: could not check them for secrets: {e}"));
        project.instructions = FittedInstructions::default();
    }
    let known = known_skills(shelf, about, redactor).unwrap_or_else(|e| {
        project.problems.push(format!("no skills: could not check them for secrets: {e}"));
        Vec::new()
    });
    let who = PromptInputs {
        name,
        cwd,
        scope: &about.scope,
        sandbox_backend: backend.as_str(),
        network: &state.manifest.sandbox.network.to_string(),
        instruction: &instruction,
        language: state.manifest.worker.language.as_deref(),
        project: &project_section(&project.instructions, &catalog),
        skills: &known,
    };
    let (prompt, parts) = (system_prompt(&who), prompt_parts(&who));
    let (loaded, problems) = (project.load_summary(), project.problems);
    Ok(SystemPrompt { prompt, parts, catalog, loaded, problems })
}

/// The skills and workflows available to the model, each with the file to read.
fn known_skills(
    shelf: &ReferenceLibrary,
    about: &About,
    redactor: &KeyRedactor,
) -> Result<Vec<ListedSkill>, KeySourceError> {
    let short = |text: &str| match text.char_indices().nth(MAX_DESCRIPTION_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    };
    let one = |kind, name: &str, description: &str, path: &Path| ListedSkill {
        kind,
        name: name.to_owned(),
        description: format!("{} (to use it, read {})", short(description), path.display()),
    };
    let skills = shelf.skills.iter().filter(|skill| can_read_skill(&about.scope, skill));
    let workflows =
        shelf.workflows.iter().filter(|flow| flow.model_invocable && is_readable(&about.scope, &flow.path));
    let mut known: Vec<ListedSkill> = skills
        .map(|skill| one("skill", &skill.name, &skill.description, &skill.file_path()))
        .chain(workflows.map(|flow| one("workflow", &flow.slug, &flow.description, &flow.path)))
        .collect();
    let mut texts: Vec<&mut String> = known.iter_mut().map(|known| &mut known.description).collect();
    if !texts.is_empty() {
        redactor.redact(&mut texts)?;
    }
    Ok(known)
}

/// Whether a pod with this scope may read a skill. Skills outside of the workspace are readable unless
/// denied.
pub(crate) fn can_read_skill(scope: &Scope, skill: &Skill) -> bool {
    let reached = skill.dir.to_str().is_some_and(|dir| access_level(scope, dir) != AccessLevel::None);
    let over = |rule: &ScopeRule| {
        skill.dir.starts_with(&rule.target) || Path::new(&rule.target).starts_with(&skill.dir)
    };
    let denied = || scope.deny.iter().any(|rule| rule.permission == Permission::Read && over(rule));
    reached || (skill.level != minke_references::SkillLevel::Project && !denied())
}

/// The system prompt that a pod with this log and name would get now.
pub fn system_prompt_for(
    state: &State,
    name: &PodName,
    paths: &UserPaths,
) -> Result<SystemPrompt, SystemPromptError> {
    let Some(about) = &state.facts.about else { return Err(SystemPromptError::MissingStart) };
    let (cwd, found) = (&about.cwd, minke_config::trust::scan_workspace(Path::new(&about.workspace)));
    let standing = TrustStore::in_data_dir(&paths.data).trust_status(&found).ok();
    let backend = match state.manifest.sandbox.mode {
        SandboxMode::Off => SandboxBackend::Off,
        SandboxMode::Scope | SandboxMode::ReadOnly => {
            cached_backend_in(&HelperBinary::default(), &paths.runtime)
        }
    };
    let tools = minke_tools::builtin_tools(&minke_tools::ToolResources {
        files: Arc::new(ScopedFiles::without_grants()),
        commands: None,
        can_run_commands: backend.can_run_commands(),
        web: crate::policy::network_config::web_settings(state.manifest.web.as_ref(), &mut Vec::new()),
        profiles: Arc::new(ProfileCatalog::accepting_any()),
    });
    let tools = tools.iter().map(|tool| tool.spec().name).collect();
    let trusted = standing.as_ref().is_some_and(TrustStatus::is_trusted);
    let env = ResolveContext::for_process(Path::new(cwd), Some(paths.config.clone()))
        .with_secrets(secret_variables(&state.manifest));
    let redactor = build_key_redactor(env);
    let shelf = crate::calls::resolve_references::reference_roots(state, about, paths).load_library();
    let config = &paths.config;
    compose_prompt(
        state,
        SystemPromptInputs { name, backend, tools, config, trusted, shelf: &shelf, redactor: &redactor },
    )
}
