//! Resolves all references of one input in order, or returns why one could not be resolved.
//!
//! Elsewhere: the kinds of references (`file`, `library`), the use of the result (`pod`), redaction (`driver`).
//! Invariant: an input with an unresolvable reference is refused as a whole (`one_bad_reference_refuses_the_input`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_files::ScopedFiles;
use minke_record::{ImageSource, InputSegment, SystemItem, SystemKind};
use serde_json::json;

use crate::file::{Attachment, ReferenceReader};
use crate::front_matter::shorten_text;
use crate::index::FileIndex;
use crate::library::{InvokedText, LibraryDirs, ReferenceLibrary};

/// The most references of one input.
const MAX_REFERENCES: usize = 64;
/// The most bytes of all references, without images; more would fill the context window.
const MAX_INPUT_BYTES: u64 = 4 * 1024 * 1024;

/// The directories in which references are looked up.
#[derive(Debug, Clone, Default)]
pub struct ReferenceDirs {
    pub cwd: PathBuf,
    pub workspace: PathBuf,
    /// The user's configuration directory.
    pub config: PathBuf,
    pub data: PathBuf,
    /// `skills.directories`.
    pub directories: Vec<PathBuf>,
    /// `worker.file_upload.max_bytes`.
    pub max_bytes: usize,
}

impl ReferenceDirs {
    /// Loads the current knowledge, workflows and skills.
    pub fn load_library(&self) -> ReferenceLibrary {
        let ReferenceDirs { workspace, config, data, directories, .. } = self;
        ReferenceLibrary::load_from(LibraryDirs { workspace, config, data, directories })
    }
}

/// Resolves the references of inputs.
pub struct ReferenceResolver {
    pub(crate) files: Arc<ScopedFiles>,
    pub(crate) dirs: ReferenceDirs,
    pub(crate) index: FileIndex,
}

/// Stores an image and returns its blob name.
pub(crate) type StoreImage<'k> = &'k dyn Fn(Vec<u8>) -> Result<String, String>;

impl ReferenceResolver {
    pub fn new(files: Arc<ScopedFiles>, dirs: ReferenceDirs) -> ReferenceResolver {
        ReferenceResolver { files, dirs, index: FileIndex::default() }
    }

    /// Returns the directory for relative paths.
    pub fn working_dir(&self) -> &Path {
        &self.dirs.cwd
    }

    /// Loads the current knowledge, workflows and skills.
    pub fn load_library(&self) -> ReferenceLibrary {
        self.dirs.load_library()
    }

    /// Resolves the references of an input. Images become blobs in the input itself; the other contents are returned.
    /// An error names the segment and leaves the input unchanged.
    pub fn resolve_input(
        &self,
        input: &mut Vec<InputSegment>,
        store_image: StoreImage<'_>,
    ) -> Result<Vec<SystemItem>, String> {
        let mut referring = InputResolution {
            resolver: self,
            store_image,
            library: None,
            kept_segments: Vec::new(),
            attachments: Vec::new(),
            bytes: 0,
        };
        let count = input.iter().filter(|segment| segment.has_reference()).count();
        if count > MAX_REFERENCES {
            return Err(format!("params.input: it refers to {count} things, the limit is {MAX_REFERENCES}"));
        }
        let mut segments = input.iter().enumerate().peekable();
        while let Some((at, segment)) = segments.next() {
            let next = segments.peek().map(|(_, next)| *next);
            referring.resolve_segment(segment, next).map_err(|why| format!("params.input[{at}]: {why}"))?;
        }
        let InputResolution { kept_segments, attachments, .. } = referring;
        *input = kept_segments;
        Ok(attachments)
    }
}

struct InputResolution<'a> {
    resolver: &'a ReferenceResolver,
    store_image: StoreImage<'a>,
    library: Option<ReferenceLibrary>,
    kept_segments: Vec<InputSegment>,
    attachments: Vec<SystemItem>,
    bytes: u64,
}

impl InputResolution<'_> {
    fn resolve_segment(&mut self, segment: &InputSegment, next: Option<&InputSegment>) -> Result<(), String> {
        match segment {
            InputSegment::FileRef { path } => {
                let Attachment { item, image } = self.reference_reader().read_reference(path)?;
                self.kept_segments.push(segment.clone());
                if let Some(image) = image {
                    let media_type = image.media_type;
                    let shown = self.store_segment(image.bytes, media_type)?;
                    // An input that was returned for editing contains its image already.
                    if next != Some(&shown) {
                        self.kept_segments.push(shown);
                    }
                }
                self.attach_item(item)
            }
            InputSegment::Image { source: ImageSource::Path(path), .. } => {
                let Some(image) = self.reference_reader().read_reference(path)?.image else {
                    return Err(format!("`{}` is not an image", shorten_text(path)));
                };
                let shown = self.store_segment(image.bytes, image.media_type)?;
                self.kept_segments.push(shown);
                Ok(())
            }
            InputSegment::KnowledgeRef { slug } => {
                self.attach_knowledge(slug, true).and_then(|()| self.keep_segment(segment))
            }
            InputSegment::WorkflowInvoke { slug } => {
                self.attach_workflow(slug).and_then(|()| self.keep_segment(segment))
            }
            InputSegment::SkillRef { name } => {
                self.attach_skill(name).and_then(|()| self.keep_segment(segment))
            }
            InputSegment::Text { .. }
            | InputSegment::Paste { .. }
            | InputSegment::Image { .. }
            | InputSegment::Unknown(_) => self.keep_segment(segment),
        }
    }

    fn keep_segment(&mut self, segment: &InputSegment) -> Result<(), String> {
        self.kept_segments.push(segment.clone());
        Ok(())
    }

    fn reference_reader(&self) -> ReferenceReader<'_> {
        let ReferenceResolver { files, dirs, .. } = self.resolver;
        ReferenceReader { files, cwd: &dirs.cwd, max_bytes: dirs.max_bytes }
    }

    fn store_segment(&self, bytes: Vec<u8>, media_type: String) -> Result<InputSegment, String> {
        let blob = (self.store_image)(bytes)?;
        Ok(InputSegment::Image { source: ImageSource::Blob(blob), media_type })
    }

    fn attach_item(&mut self, item: SystemItem) -> Result<(), String> {
        self.bytes += item.body.byte_len();
        if self.bytes > MAX_INPUT_BYTES {
            return Err(format!(
                "the references of the input have more than {MAX_INPUT_BYTES} bytes in total"
            ));
        }
        self.attachments.push(item);
        Ok(())
    }

    fn loaded_library(&mut self) -> &ReferenceLibrary {
        let of = self.resolver;
        self.library.get_or_insert_with(|| of.load_library())
    }

    /// Returns the text for the model, if the pod may read its file.
    fn readable_item(&self, invoked: InvokedText, kind: SystemKind) -> Result<SystemItem, String> {
        if !self.resolver.files.may_read(&invoked.path) {
            return Err(format!("`{}` is outside the files that this pod may read", invoked.name));
        }
        let InvokedText { name, path, body, is_truncated } = invoked;
        let path = path.to_string_lossy();
        let cause = json!({ "name": name, "path": path, "bytes": body.len(), "cut": is_truncated });
        Ok(SystemItem { kind, cause: Some(cause), body: body.into() })
    }

    fn attach_knowledge(&mut self, slug: &str, by_person: bool) -> Result<(), String> {
        let record = self.loaded_library().read_knowledge(slug)?;
        if by_person && !record.user_invocable {
            return Err(format!(
                "knowledge `{slug}` cannot be referenced by users (`user_invocable: false`)"
            ));
        }
        let item = self.readable_item(record.into_invoked(), SystemKind::Knowledge)?;
        self.attach_item(item)
    }

    fn attach_workflow(&mut self, slug: &str) -> Result<(), String> {
        let most = self.resolver.dirs.max_bytes;
        let shelf = self.loaded_library();
        let Some(workflow) = shelf.find_workflow(slug).cloned() else {
            return Err(missing_reason(shelf, "workflow", slug, &format!("/workflows/{slug}.md")));
        };
        if !workflow.user_invocable {
            return Err(format!("workflow `{slug}` cannot be called by users (`user_invocable: false`)"));
        }
        for slug in &workflow.requires {
            self.attach_knowledge(slug, false)?;
        }
        let item = self.readable_item(workflow.to_invoked(most), SystemKind::Workflow)?;
        self.attach_item(item)
    }

    fn attach_skill(&mut self, name: &str) -> Result<(), String> {
        let most = self.resolver.dirs.max_bytes;
        let shelf = self.loaded_library();
        let Some(skill) = shelf.find_skill(name).cloned() else {
            return Err(missing_reason(shelf, "skill", name, &format!("/skills/{name}/")));
        };
        let item = self.readable_item(skill.to_invoked(most), SystemKind::Skill)?;
        self.attach_item(item)
    }
}

/// Returns why a name is missing, including the problem of an unusable file.
fn missing_reason(shelf: &ReferenceLibrary, what: &str, name: &str, place: &str) -> String {
    match shelf.problems.iter().find(|problem| problem.contains(place)) {
        Some(problem) => format!("there is no {what} `{}` here: {problem}", shorten_text(name)),
        None => format!("there is no {what} `{}` here", shorten_text(name)),
    }
}
