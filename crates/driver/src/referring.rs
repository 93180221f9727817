//! Referring: an input made ready for the log. Images become blobs, what it refers to is read, keys in that are hidden.
//!
//! An input that reaches the pod is read when it comes, one that waits from a time when no pod lived at the boot. Elsewhere:
//! what can be referred to (`references`), where it goes then (`pod`).
//! Invariant: nothing of an input that cannot be read whole is in the log (`a_bad_reference_leaves_nothing`).

use std::path::PathBuf;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use minke_llm::Cover;
use minke_pod::{Referred, State};
use minke_record::{About, ImageSource, InputSegment, QueueId, SystemItem, Text, unread};
use minke_references::Places;
use minke_registry::Paths;

use crate::clients::reading::Door;
use crate::library::Library;

impl Door {
    /// Reads what an input refers to; the input is changed where images became blobs.
    pub(crate) async fn take_in(&self, input: &mut Vec<InputSegment>) -> Result<Vec<SystemItem>, String> {
        let plain = |segment: &InputSegment| {
            matches!(
                segment,
                InputSegment::Text { .. } | InputSegment::Paste { .. } | InputSegment::Unknown(_)
            )
        };
        if input.iter().all(plain) {
            return Ok(Vec::new());
        }
        let (said, cover) = (input.clone(), std::sync::Arc::clone(&self.guard.cover));
        let Referred { input: read, attached } =
            self.library.off_loop(move |library| refer(library, &cover, said)).await?;
        *input = read;
        for item in &attached {
            self.guard.noticed.look(item.body.here().unwrap_or_default(), "what you referred to").await;
        }
        Ok(attached)
    }
}

/// Where inputs of this session refer to.
pub(crate) fn places(state: &State, about: &About, paths: &Paths) -> Places {
    let max_bytes = state.manifest.worker.file_upload.max_bytes;
    Places {
        cwd: PathBuf::from(&about.cwd),
        workspace: PathBuf::from(&about.workspace),
        config: paths.config.clone(),
        data: paths.data.clone(),
        directories: state.manifest.skills.directories.iter().map(PathBuf::from).collect(),
        max_bytes: usize::try_from(max_bytes).unwrap_or(usize::MAX),
    }
}

/// What inputs refer to that were queued while no pod lived.
pub(crate) fn waiting(
    state: &State,
    library: &Library,
    cover: &Cover,
) -> Vec<(QueueId, Result<Referred, String>)> {
    let queue = state.facts.queue.iter().filter(|queued| unread(&queued.segments, &queued.attached));
    queue.map(|queued| (queued.id, refer(library, cover, queued.segments.clone()))).collect()
}

/// Reads files: not for the loop.
fn refer(library: &Library, cover: &Cover, mut input: Vec<InputSegment>) -> Result<Referred, String> {
    for (at, segment) in input.iter_mut().enumerate() {
        image(library, segment).map_err(|why| format!("params.input[{at}]: {why}"))?;
    }
    let keep = |bytes: Vec<u8>| {
        // A key is written nowhere but in its store.
        if let [name, ..] = cover.names_in(&bytes).map_err(|e| e.to_string())?.as_slice() {
            return Err(format!("the image holds the secret {name}"));
        }
        put(library, bytes)
    };
    let mut attached = library.references().refer(&mut input, &keep)?;
    let mut texts: Vec<&mut String> = attached
        .iter_mut()
        .filter_map(|item| match &mut item.body {
            Text::Here(text) => Some(text),
            Text::Blob(_) => None,
        })
        .collect();
    cover.hide(&mut texts).map_err(|e| {
        format!("what it refers to cannot be shown, since keys in it could not be hidden: {e}")
    })?;
    Ok(Referred { input, attached })
}

fn put(library: &Library, bytes: Vec<u8>) -> Result<String, String> {
    let kept = library.store().put_blob(library.session(), bytes);
    kept.map(|name| name.blob).map_err(|e| format!("the image cannot be kept: {e}; {}", e.hint()))
}

/// An image that was sent becomes a blob; one that is named must be there.
fn image(library: &Library, segment: &mut InputSegment) -> Result<(), String> {
    let InputSegment::Image { source, .. } = segment else { return Ok(()) };
    match source {
        ImageSource::Data(data) => {
            let content = BASE64_STANDARD
                .decode(data.as_bytes())
                .map_err(|e| format!("`data` of the image is not base64: {e}"))?;
            *source = ImageSource::Blob(put(library, content)?);
            Ok(())
        }
        ImageSource::Blob(blob) => {
            let read = library.reader().and_then(|reader| reader.blob(blob, 0, 1));
            read.map(drop).map_err(|e| e.to_string())
        }
        ImageSource::Path(_) => Ok(()),
    }
}
