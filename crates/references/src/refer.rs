//! Referring: everything that one input refers to, read in its order, or the reason why it cannot be.
//!
//! Elsewhere: each kind (`file`, `shelf`), where it goes (`pod`), keys that are hidden in it (`driver`).
//! Invariant: an input whose references cannot all be read is refused whole (`one_bad_reference_refuses_the_input`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_files::Files;
use minke_record::{ImageSource, InputSegment, SystemItem, SystemKind};
use serde_json::json;

use crate::file::{Attached, Reading};
use crate::front::short;
use crate::index::Index;
use crate::shelf::{Around, Invoked, Shelf};

/// References of one input.
const REFERENCES: usize = 64;
/// What they may hold together, images not counted: more would only push the conversation out.
const INPUT_BYTES: u64 = 4 * 1024 * 1024;

/// Where a pod looks for what it is referred to.
#[derive(Debug, Clone, Default)]
pub struct Places {
    pub cwd: PathBuf,
    pub workspace: PathBuf,
    /// The person's configuration and data.
    pub config: PathBuf,
    pub data: PathBuf,
    /// `skills.directories`.
    pub directories: Vec<PathBuf>,
    /// `worker.file_upload.max_bytes`.
    pub max_bytes: usize,
}

impl Places {
    /// What is here now.
    pub fn shelf(&self) -> Shelf {
        let Places { workspace, config, data, directories, .. } = self;
        Shelf::look(Around { workspace, config, data, directories })
    }
}

/// What an input may refer to.
pub struct References {
    pub(crate) files: Arc<Files>,
    pub(crate) places: Places,
    pub(crate) index: Index,
}

/// Keeps an image, and gives the name that it then has.
pub(crate) type Keep<'k> = &'k dyn Fn(Vec<u8>) -> Result<String, String>;

impl References {
    pub fn new(files: Arc<Files>, places: Places) -> References {
        References { files, places, index: Index::default() }
    }

    /// What relative paths are from.
    pub fn cwd(&self) -> &Path {
        &self.places.cwd
    }

    /// What is here now.
    pub fn shelf(&self) -> Shelf {
        self.places.shelf()
    }

    /// Reads what an input refers to. Images become blobs in the input itself, the rest is given back. A refusal names the
    /// segment, and nothing is changed.
    pub fn refer(&self, input: &mut Vec<InputSegment>, keep: Keep<'_>) -> Result<Vec<SystemItem>, String> {
        let mut referring =
            Referring { of: self, keep, shelf: None, said: Vec::new(), attached: Vec::new(), bytes: 0 };
        let count = input.iter().filter(|segment| segment.refers()).count();
        if count > REFERENCES {
            return Err(format!(
                "params.input: it refers to {count} things, more than the {REFERENCES} it may"
            ));
        }
        let mut segments = input.iter().enumerate().peekable();
        while let Some((at, segment)) = segments.next() {
            let next = segments.peek().map(|(_, next)| *next);
            referring.segment(segment, next).map_err(|why| format!("params.input[{at}]: {why}"))?;
        }
        let Referring { said, attached, .. } = referring;
        *input = said;
        Ok(attached)
    }
}

struct Referring<'a> {
    of: &'a References,
    keep: Keep<'a>,
    shelf: Option<Shelf>,
    said: Vec<InputSegment>,
    attached: Vec<SystemItem>,
    bytes: u64,
}

impl Referring<'_> {
    fn segment(&mut self, segment: &InputSegment, next: Option<&InputSegment>) -> Result<(), String> {
        match segment {
            InputSegment::FileRef { path } => {
                let Attached { item, image } = self.reading().attach(path)?;
                self.said.push(segment.clone());
                if let Some(image) = image {
                    let media_type = image.media_type;
                    let shown = self.kept(image.bytes, media_type)?;
                    // An input that came back to be changed has its image already.
                    if next != Some(&shown) {
                        self.said.push(shown);
                    }
                }
                self.attach(item)
            }
            InputSegment::Image { source: ImageSource::Path(path), .. } => {
                let Some(image) = self.reading().attach(path)?.image else {
                    return Err(format!("`{}` is not an image", short(path)));
                };
                let shown = self.kept(image.bytes, image.media_type)?;
                self.said.push(shown);
                Ok(())
            }
            InputSegment::KnowledgeRef { slug } => {
                self.knowledge(slug, true).and_then(|()| self.say(segment))
            }
            InputSegment::WorkflowInvoke { slug } => self.workflow(slug).and_then(|()| self.say(segment)),
            InputSegment::SkillRef { name } => self.skill(name).and_then(|()| self.say(segment)),
            InputSegment::Text { .. }
            | InputSegment::Paste { .. }
            | InputSegment::Image { .. }
            | InputSegment::Unknown(_) => self.say(segment),
        }
    }

    fn say(&mut self, segment: &InputSegment) -> Result<(), String> {
        self.said.push(segment.clone());
        Ok(())
    }

    fn reading(&self) -> Reading<'_> {
        let References { files, places, .. } = self.of;
        Reading { files, cwd: &places.cwd, max_bytes: places.max_bytes }
    }

    fn kept(&self, bytes: Vec<u8>, media_type: String) -> Result<InputSegment, String> {
        let blob = (self.keep)(bytes)?;
        Ok(InputSegment::Image { source: ImageSource::Blob(blob), media_type })
    }

    fn attach(&mut self, item: SystemItem) -> Result<(), String> {
        self.bytes += item.body.bytes();
        if self.bytes > INPUT_BYTES {
            return Err(format!("what the input refers to has more than {INPUT_BYTES} bytes together"));
        }
        self.attached.push(item);
        Ok(())
    }

    fn shelf(&mut self) -> &Shelf {
        let of = self.of;
        self.shelf.get_or_insert_with(|| of.shelf())
    }

    /// The model is given only what the pod may read.
    fn readable(&self, invoked: Invoked, kind: SystemKind) -> Result<SystemItem, String> {
        if !self.of.files.may_read(&invoked.path) {
            return Err(format!("`{}` lies outside of what this pod may read", invoked.name));
        }
        let Invoked { name, path, body, cut } = invoked;
        let path = path.to_string_lossy();
        let cause = json!({ "name": name, "path": path, "bytes": body.len(), "cut": cut });
        Ok(SystemItem { kind, cause: Some(cause), body: body.into() })
    }

    fn knowledge(&mut self, slug: &str, by_person: bool) -> Result<(), String> {
        let record = self.shelf().knowledge(slug)?;
        if by_person && !record.user_invocable {
            return Err(format!(
                "knowledge `{slug}` is not for people to refer to (`user_invocable: false`)"
            ));
        }
        let item = self.readable(record.invoked(), SystemKind::Knowledge)?;
        self.attach(item)
    }

    fn workflow(&mut self, slug: &str) -> Result<(), String> {
        let most = self.of.places.max_bytes;
        let shelf = self.shelf();
        let Some(workflow) = shelf.workflow(slug).cloned() else {
            return Err(missing(shelf, "workflow", slug, &format!("/workflows/{slug}.md")));
        };
        if !workflow.user_invocable {
            return Err(format!("workflow `{slug}` is not for people to call (`user_invocable: false`)"));
        }
        for slug in &workflow.requires {
            self.knowledge(slug, false)?;
        }
        let item = self.readable(workflow.invoked(most), SystemKind::Workflow)?;
        self.attach(item)
    }

    fn skill(&mut self, name: &str) -> Result<(), String> {
        let most = self.of.places.max_bytes;
        let shelf = self.shelf();
        let Some(skill) = shelf.skill(name).cloned() else {
            return Err(missing(shelf, "skill", name, &format!("/skills/{name}/")));
        };
        let item = self.readable(skill.invoked(most), SystemKind::Skill)?;
        self.attach(item)
    }
}

/// Why something is not there; one that cannot be used says why.
fn missing(shelf: &Shelf, what: &str, name: &str, place: &str) -> String {
    match shelf.problems.iter().find(|problem| problem.contains(place)) {
        Some(problem) => format!("there is no {what} `{}` here: {problem}", short(name)),
        None => format!("there is no {what} `{}` here", short(name)),
    }
}
