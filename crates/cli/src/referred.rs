//! Words that refer to something: what a person says on the command line, as a pod in its working directory is to take it.
//!
//! A word counts only if it names what is there; with `--literal` none does. Elsewhere: which words (`references`), reading
//! what they name, which is the pod's (`driver`).

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use minke_client::Home;
use minke_manifest::Manifest;
use minke_record::{InputSegment, Kind, SessionId, Text};
use minke_references::{Known, Places, Shelf, segments};

use crate::around::Surroundings;
use crate::failure::Failure;

/// Where a pod works, as far as its inputs can refer to it.
pub(crate) struct Here {
    places: Places,
    shelf: OnceCell<Shelf>,
}

impl Here {
    pub(crate) fn new(
        cwd: &Path,
        workspace: &Path,
        manifest: &Manifest,
        around: &Surroundings,
    ) -> Result<Here, Failure> {
        let paths = around.paths()?;
        let places = Places {
            cwd: cwd.to_owned(),
            workspace: workspace.to_owned(),
            config: paths.config,
            data: paths.data,
            directories: manifest.skills.directories.iter().map(PathBuf::from).collect(),
            ..Places::default()
        };
        Ok(Here { places, shelf: OnceCell::new() })
    }

    /// Where the pod of a session works.
    pub(crate) fn of(session: SessionId, home: &Home, around: &Surroundings) -> Result<Here, Failure> {
        let page = home.store.reader(session)?.page(0, 1, usize::MAX)?;
        match page.entries.first().map(|sealed| &sealed.entry.kind) {
            Some(Kind::SessionStart(start)) => {
                // One that cannot be read names no directories; the pod says so itself.
                let manifest = Manifest::read(&start.manifest).unwrap_or_default();
                Here::new(Path::new(&start.cwd), Path::new(&start.workspace), &manifest, around)
            }
            _ => {
                let workspace = Surroundings::workspace(&around.cwd);
                Here::new(&around.cwd, &workspace, &Manifest::default(), around)
            }
        }
    }

    /// A text with its references.
    pub(crate) fn said(&self, text: &str) -> Vec<InputSegment> {
        segments(text, self)
    }

    /// The same for texts among other segments.
    pub(crate) fn all_said(&self, input: Vec<InputSegment>) -> Vec<InputSegment> {
        let one = |segment: InputSegment| match segment {
            InputSegment::Text { content: Text::Here(text) } => self.said(&text),
            other => vec![other],
        };
        input.into_iter().flat_map(one).collect()
    }

    pub(crate) fn places(self) -> Places {
        self.places
    }

    pub(crate) fn shelf(&self) -> &Shelf {
        self.shelf.get_or_init(|| self.places.shelf())
    }
}

impl Known for Here {
    fn file(&self, path: &str) -> bool {
        self.places.cwd.join(path).symlink_metadata().is_ok()
    }

    fn knowledge(&self, slug: &str) -> bool {
        self.shelf().knowledge_path(slug).symlink_metadata().is_ok()
    }

    fn workflow(&self, slug: &str) -> bool {
        self.shelf().workflow(slug).is_some_and(|workflow| workflow.user_invocable)
    }

    fn skill(&self, name: &str) -> bool {
        self.shelf().skill(name).is_some()
    }
}
