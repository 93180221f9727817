//! Reference resolution: prepares an input for the log. Stores images as blobs, reads referenced files and
//! redacts their secrets.
//!
//! An input to a running pod is resolved when it arrives; an input queued without a pod is resolved at boot.
//! Elsewhere: the kinds of references (`references`), their handling (`pod`).
//! Invariant: an input that cannot be read completely is not logged at all
//! (`a_bad_reference_leaves_nothing`).

use std::path::PathBuf;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use minke_pod::{ResolvedReferences, State};
use minke_record::{About, ImageSource, InputSegment, QueueId, SystemItem, Text, has_unread_references};
use minke_references::ReferenceDirs;
use minke_registry::UserPaths;
use minke_secrets::KeyRedactor;

use crate::clients::log_reader::SessionReader;
use crate::clients::reader::ReaderContext;

impl ReaderContext {
    /// Reads the references of an input and replaces its images by blobs.
    pub(crate) async fn resolve_input(
        &self,
        input: &mut Vec<InputSegment>,
    ) -> Result<Vec<SystemItem>, String> {
        let plain = |segment: &InputSegment| {
            matches!(
                segment,
                InputSegment::Text { .. } | InputSegment::Paste { .. } | InputSegment::Unknown(_)
            )
        };
        if input.iter().all(plain) {
            return Ok(Vec::new());
        }
        let (output, redactor) = (input.clone(), std::sync::Arc::clone(&self.secret_filter.redactor));
        let ResolvedReferences { input: read, attached } = self
            .session_reader
            .run_blocking(move |session_reader| resolve_segments(session_reader, &redactor, output))
            .await?;
        *input = read;
        for item in &attached {
            self.secret_filter
                .alerts
                .check_text(item.body.inline().unwrap_or_default(), "a file that you referred to")
                .await;
        }
        Ok(attached)
    }
}

/// The base directories of references in this session.
pub(crate) fn reference_roots(state: &State, about: &About, paths: &UserPaths) -> ReferenceDirs {
    let max_bytes = state.manifest.worker.file_upload.max_bytes;
    ReferenceDirs {
        cwd: PathBuf::from(&about.cwd),
        workspace: PathBuf::from(&about.workspace),
        config: paths.config.clone(),
        data: paths.data.clone(),
        directories: state.manifest.skills.directories.iter().map(PathBuf::from).collect(),
        max_bytes: usize::try_from(max_bytes).unwrap_or(usize::MAX),
    }
}

/// Resolves the inputs that were queued while no pod was running.
pub(crate) fn resolve_queued(
    state: &State,
    session_reader: &SessionReader,
    redactor: &KeyRedactor,
) -> Vec<(QueueId, Result<ResolvedReferences, String>)> {
    let queue =
        state.facts.queue.iter().filter(|queued| has_unread_references(&queued.segments, &queued.attached));
    queue
        .map(|queued| (queued.id, resolve_segments(session_reader, redactor, queued.segments.clone())))
        .collect()
}

/// Reads files: do not call it on the event loop.
fn resolve_segments(
    library: &SessionReader,
    cover: &KeyRedactor,
    mut input: Vec<InputSegment>,
) -> Result<ResolvedReferences, String> {
    for (at, segment) in input.iter_mut().enumerate() {
        resolve_image(library, segment).map_err(|why| format!("params.input[{at}]: {why}"))?;
    }
    let keep = |bytes: Vec<u8>| {
        // Secrets are stored nowhere but in the secret store.
        if let [name, ..] = cover.names_in(&bytes).map_err(|e| e.to_string())?.as_slice() {
            return Err(format!("the image contains the secret {name}"));
        }
        store_blob(library, bytes)
    };
    let mut attached = library.references().resolve_input(&mut input, &keep)?;
    let mut texts: Vec<&mut String> = attached
        .iter_mut()
        .filter_map(|item| match &mut item.body {
            Text::Inline(text) => Some(text),
            Text::Blob(_) => None,
        })
        .collect();
    cover.redact(&mut texts).map_err(|e| format!("could not redact secrets in a referenced file: {e}"))?;
    Ok(ResolvedReferences { input, attached })
}

fn store_blob(session_reader: &SessionReader, bytes: Vec<u8>) -> Result<String, String> {
    let kept = session_reader.store().put_blob(session_reader.session(), bytes);
    kept.map(|name| name.blob).map_err(|e| format!("could not store the image: {e}; {}", e.hint()))
}

/// Stores an uploaded image as a blob; checks that a named one exists.
fn resolve_image(session_reader: &SessionReader, segment: &mut InputSegment) -> Result<(), String> {
    let InputSegment::Image { source, .. } = segment else { return Ok(()) };
    match source {
        ImageSource::Data(data) => {
            let content = BASE64_STANDARD
                .decode(data.as_bytes())
                .map_err(|e| format!("`data` of the image is not base64: {e}"))?;
            *source = ImageSource::Blob(store_blob(session_reader, content)?);
            Ok(())
        }
        ImageSource::Blob(blob) => {
            let read = session_reader.reader().and_then(|reader| reader.read_blob(blob, 0, 1));
            read.map(drop).map_err(|e| e.to_string())
        }
        ImageSource::Path(_) => Ok(()),
    }
}
