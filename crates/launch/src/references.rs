//! References in input from the command line, resolved as the pod does in its working directory.
//!
//! A word is a reference only if its target exists; with `--literal` there are none. Elsewhere: the syntax
//! (`references`), reading the targets in the pod (`driver`).

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use minke_client::UserHome;
use minke_manifest::Manifest;
use minke_pod::State;
use minke_record::{InputSegment, Kind, SessionId, Text};
use minke_references::{KnownReferences, ReferenceDirs, ReferenceLibrary, split_segments};
use minke_registry::PathsError;

use crate::environment::{LaunchEnv, find_workspace};
use crate::error::SetupError;

/// Files, skills and knowledge that input to a pod can refer to.
pub struct ReferenceScope {
    places: ReferenceDirs,
    definitions: OnceCell<ReferenceLibrary>,
}

impl ReferenceScope {
    pub fn new(
        cwd: &Path,
        workspace: &Path,
        manifest: &Manifest,
        env: &LaunchEnv,
    ) -> Result<ReferenceScope, PathsError> {
        let paths = env.find_paths()?;
        let places = ReferenceDirs {
            cwd: cwd.to_owned(),
            workspace: workspace.to_owned(),
            config: paths.config,
            data: paths.data,
            directories: manifest.skills.directories.iter().map(PathBuf::from).collect(),
            ..ReferenceDirs::default()
        };
        Ok(ReferenceScope { places, definitions: OnceCell::new() })
    }

    /// Returns the scope for a new session with the directory and manifest of this state.
    pub fn for_state(state: &State, env: &LaunchEnv) -> Result<ReferenceScope, PathsError> {
        let cwd = state.facts.about.as_ref().map(|about| PathBuf::from(&about.cwd)).unwrap_or_default();
        ReferenceScope::new(&cwd, &find_workspace(&cwd), &state.manifest, env)
    }

    /// Returns the scope for the pod of a session.
    pub fn for_session(
        session: SessionId,
        home: &UserHome,
        env: &LaunchEnv,
    ) -> Result<ReferenceScope, SetupError> {
        let page = home.store.open_reader(session)?.read_page(0, 1, usize::MAX)?;
        match page.entries.first().map(|sealed| &sealed.entry.kind) {
            Some(Kind::SessionStart(start)) => {
                // An unreadable manifest contributes no directories; the pod reports it.
                let manifest = Manifest::from_value(&start.manifest).unwrap_or_default();
                Ok(ReferenceScope::new(Path::new(&start.cwd), Path::new(&start.workspace), &manifest, env)?)
            }
            _ => {
                let workspace = find_workspace(&env.cwd);
                Ok(ReferenceScope::new(&env.cwd, &workspace, &Manifest::default(), env)?)
            }
        }
    }

    /// Parses a text with its references.
    pub fn parse_text(&self, text: &str) -> Vec<InputSegment> {
        split_segments(text, self)
    }

    /// Parses the texts among other segments.
    pub fn parse_segments(&self, input: Vec<InputSegment>) -> Vec<InputSegment> {
        let parse_one = |segment: InputSegment| match segment {
            InputSegment::Text { content: Text::Inline(text) } => self.parse_text(&text),
            other => vec![other],
        };
        input.into_iter().flat_map(parse_one).collect()
    }

    pub fn into_places(self) -> ReferenceDirs {
        self.places
    }

    pub fn definitions(&self) -> &ReferenceLibrary {
        self.definitions.get_or_init(|| self.places.load_library())
    }
}

impl KnownReferences for ReferenceScope {
    fn has_file(&self, path: &str) -> bool {
        self.places.cwd.join(path).symlink_metadata().is_ok()
    }

    fn has_knowledge(&self, slug: &str) -> bool {
        self.definitions().knowledge_path(slug).symlink_metadata().is_ok()
    }

    fn has_workflow(&self, slug: &str) -> bool {
        self.definitions().find_workflow(slug).is_some_and(|workflow| workflow.user_invocable)
    }

    fn has_skill(&self, name: &str) -> bool {
        self.definitions().find_skill(name).is_some()
    }
}
