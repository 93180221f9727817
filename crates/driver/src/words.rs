//! First words: the system prompt of a pod, made from its log and from the files around it.
//!
//! Here: gathering what it is made of, once when a pod boots, and the same for whoever only wants to see it. Elsewhere:
//! templates and how the parts stand (`prompts`), reading the files (`sources`), when a segment begins (`pod`).
//! Invariant: what is shown is what a pod is told (`what_is_shown_is_what_the_model_is_told`).

use std::path::Path;
use std::sync::Arc;

use minke_exec::fence::Helper;
use minke_exec::probe::known_tier_in;
use minke_files::Files;
use minke_llm::{Around, CatalogError, Cover};
use minke_manifest::SandboxMode;
use minke_manifest::profiles::Offer;
use minke_pod::{State, variables};
use minke_policy::{Level, Tier, level};
use minke_prompts::{Catalog, Fitted, Known, Part, PromptError, Who, parts, project_part, system_prompt};
use minke_record::{About, Permission, PodName, Scope, ScopeRule};
use minke_references::{Shelf, Skill};
use minke_registry::Paths;
use minke_sources::{Searching, Shelves, project};
use minke_trust::{Standing, TrustStore};

use crate::nested::reads;

/// Assets that hold no words of others.
const OWN: &str = "$minke/";
/// The most of one description that a model is told of in short.
const KNOWN_CHARS: usize = 240;

/// What a model is told first.
#[derive(Debug, Clone)]
pub struct FirstWords {
    pub prompt: String,
    /// The same in its parts.
    pub parts: Vec<Part>,
    /// Texts in the place of the catalog's own.
    pub catalog: Catalog,
    /// What of the project was loaded or cut, in one line.
    pub loaded: Option<String>,
    /// What lies there and could not be used.
    pub problems: Vec<String>,
}

/// Why there are none.
#[derive(Debug, thiserror::Error)]
pub enum WordsError {
    #[error("the session has no session_start")]
    NoStart,
    #[error("`worker.instruction`: {0}")]
    Prompt(#[from] PromptError),
    #[error("a text of the prompt catalog holds the secret {0}: leave the value out")]
    Secret(String),
    #[error("keys could not be looked for in the instruction")]
    Unseen(#[source] CatalogError),
}

/// Who is to be told, beside what its log says.
pub(crate) struct Listener<'a> {
    pub(crate) name: &'a PodName,
    pub(crate) tier: Tier,
    /// The names of its tools.
    pub(crate) tools: Vec<String>,
    pub(crate) config: &'a Path,
    pub(crate) trusted: bool,
    /// Skills and workflows.
    pub(crate) shelf: &'a Shelf,
    /// Hides keys in what files say.
    pub(crate) cover: &'a Cover,
}

pub(crate) fn first_words(state: &State, listener: Listener<'_>) -> Result<FirstWords, WordsError> {
    let Some(about) = &state.facts.about else { return Err(WordsError::NoStart) };
    let Listener { name, tier, tools, config, trusted, shelf, cover } = listener;
    let variables = variables(state, tools).ok_or(WordsError::NoStart)?;
    let (cwd, workspace) = (Path::new(&about.cwd), Path::new(&about.workspace));
    let said = &state.manifest.worker.instruction;
    let pack = state.manifest.pod.prompt_pack.as_deref().map(Path::new);
    let shelves = Shelves { config, workspace, trusted, pack };
    let catalog = shelves.catalog()?;
    for text in catalog.texts().values() {
        // It stands in the log as it is.
        if let [name, ..] = cover.names_in(text.as_bytes()).map_err(WordsError::Unseen)?.as_slice() {
            return Err(WordsError::Secret(name.clone()));
        }
    }
    let mut instruction = shelves.instruction(said, &variables)?;
    if said.starts_with('$') && !said.starts_with(OWN) {
        cover.hide(&mut [&mut instruction]).map_err(WordsError::Unseen)?;
    }
    let may_read = |path: &Path| reads(&about.scope, path);
    let mut project = project(Searching { config, workspace, cwd, may_read: &may_read });
    let mut texts: Vec<&mut String> = project.fitted.files.iter_mut().map(|file| &mut file.text).collect();
    if !texts.is_empty()
        && let Err(e) = cover.hide(&mut texts)
    {
        project.problems.push(format!("no project instructions: keys could not be looked for in them: {e}"));
        project.fitted = Fitted::default();
    }
    let known = known(shelf, about, cover).unwrap_or_else(|e| {
        project.problems.push(format!("no skill is shown: keys could not be looked for in them: {e}"));
        Vec::new()
    });
    let who = Who {
        name,
        cwd,
        scope: &about.scope,
        fence: tier.as_str(),
        network: &state.manifest.sandbox.network.to_string(),
        instruction: &instruction,
        language: state.manifest.worker.language.as_deref(),
        project: &project_part(&project.fitted, &catalog),
        known: &known,
    };
    let (prompt, parts) = (system_prompt(&who), parts(&who));
    let (loaded, problems) = (project.told(), project.problems);
    Ok(FirstWords { prompt, parts, catalog, loaded, problems })
}

/// What the model can use when it needs it, each with the file that it then reads.
fn known(shelf: &Shelf, about: &About, cover: &Cover) -> Result<Vec<Known>, CatalogError> {
    let short = |text: &str| match text.char_indices().nth(KNOWN_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    };
    let one = |kind, name: &str, description: &str, path: &Path| Known {
        kind,
        name: name.to_owned(),
        description: format!("{} (to use it, read {})", short(description), path.display()),
    };
    let skills = shelf.skills.iter().filter(|skill| reaches(&about.scope, skill));
    let workflows =
        shelf.workflows.iter().filter(|flow| flow.model_invocable && reads(&about.scope, &flow.path));
    let mut known: Vec<Known> = skills
        .map(|skill| one("skill", &skill.name, &skill.description, &skill.file()))
        .chain(workflows.map(|flow| one("workflow", &flow.slug, &flow.description, &flow.path)))
        .collect();
    let mut texts: Vec<&mut String> = known.iter_mut().map(|known| &mut known.description).collect();
    if !texts.is_empty() {
        cover.hide(&mut texts)?;
    }
    Ok(known)
}

/// Whether a pod with this scope may read a skill: one that lies outside of the workspace unless it is denied.
pub(crate) fn reaches(scope: &Scope, skill: &Skill) -> bool {
    let reached = skill.dir.to_str().is_some_and(|dir| level(scope, dir) != Level::None);
    let over = |rule: &ScopeRule| {
        skill.dir.starts_with(&rule.target) || Path::new(&rule.target).starts_with(&skill.dir)
    };
    let denied = || scope.deny.iter().any(|rule| rule.permission == Permission::Read && over(rule));
    reached || (skill.level != minke_references::Level::Project && !denied())
}

/// What a pod with this log and name would be told if it were started now.
pub fn words_of(state: &State, name: &PodName, paths: &Paths) -> Result<FirstWords, WordsError> {
    let Some(about) = &state.facts.about else { return Err(WordsError::NoStart) };
    let (cwd, found) = (&about.cwd, minke_trust::look(Path::new(&about.workspace)));
    let standing = TrustStore::in_data(&paths.data).standing(&found).ok();
    let tier = match state.manifest.sandbox.mode {
        SandboxMode::Off => Tier::Off,
        SandboxMode::Scope | SandboxMode::ReadOnly => known_tier_in(&Helper::default(), &paths.runtime),
    };
    let tools = minke_tools::builtin(&minke_tools::Kit {
        files: Arc::new(Files::none()),
        commands: None,
        offers_commands: tier.offers_commands(),
        web: crate::web::settings(state.manifest.web.as_ref(), &mut Vec::new()),
        profiles: Arc::new(Offer::unseen()),
    });
    let tools = tools.iter().map(|tool| tool.spec().name).collect();
    let trusted = standing.as_ref().is_some_and(Standing::holds);
    let around = Around::here(Path::new(cwd), Some(paths.config.clone()))
        .with_secrets(crate::web::secret_variables(&state.manifest));
    let cover = Cover::new(around);
    let shelf = crate::referring::places(state, about, paths).shelf();
    let config = &paths.config;
    first_words(state, Listener { name, tier, tools, config, trusted, shelf: &shelf, cover: &cover })
}
