//! Bounded: what a call puts into the context, cut to what the manifest allows; the whole of it stays a blob and a file.
//!
//! Keys are hidden before, so that none is cut in two. Elsewhere: what a tool bounds itself (`tools`), files of earlier
//! lives (`outputs`).
//! Invariant: a cut is between characters, says how much was left out, and loses nothing
//! (`a_result_is_cut_to_what_the_manifest_allows`).

use std::path::{Path, PathBuf};

use minke_manifest::ToolOutputSection;
use minke_pod::Said;
use minke_record::CallId;

use crate::library::Library;
use crate::outputs;
use crate::stderr::report;

/// How much tools may say, and where the rest stands.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    pub(crate) section: ToolOutputSection,
    /// The pod's own `output`.
    pub(crate) output: PathBuf,
}

impl Bounds {
    /// Whether a tool has said more than it may.
    pub(crate) fn are_crossed(&self, tool: &str, said: &Said) -> bool {
        said.content.as_ref().is_some_and(|content| content.len() as u64 > self.section.max_bytes(tool))
    }

    /// Cuts what was said. Writes files: not for the loop.
    pub(crate) fn cut(&self, library: &Library, call_id: &CallId, tool: &str, said: Said) -> Said {
        let most = usize::try_from(self.section.max_bytes(tool)).unwrap_or(usize::MAX);
        let Some(whole) = &said.content else { return said };
        let mut end = most.min(whole.len());
        while !whole.is_char_boundary(end) {
            end -= 1;
        }
        let shown = whole.get(..end).unwrap_or_default();
        let (rest, place) = match &said.rest {
            // What it said is a part already, and the tool has said where the rest is.
            Some(rest) => (Some(rest.clone()), String::new()),
            None => match self.keep(library, call_id, whole) {
                Ok((blob, file)) => {
                    (Some(blob), file.map_or(String::new(), |file| format!("; all of it is in {file}")))
                }
                Err(why) => (None, format!("; the rest could not be kept: {why}")),
            },
        };
        let line = if shown.is_empty() || shown.ends_with('\n') { "" } else { "\n" };
        let all = whole.len();
        let content =
            format!("{shown}{line}[cut: {end} of {all} bytes are shown (worker.tool_output){place}]\n");
        Said { content: Some(content), rest, ..said }
    }

    fn keep(
        &self,
        library: &Library,
        call_id: &CallId,
        whole: &str,
    ) -> Result<(String, Option<String>), String> {
        let kept = library.store().put_blob(library.session(), whole.as_bytes().to_vec());
        let blob = kept.map_err(|e| e.to_string())?.blob;
        // A client names its calls as it likes; only what can be the name of a file becomes one.
        let plain = call_id.0.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        let path = self.output.join(format!("{call_id}.txt"));
        let file = plain.then(|| outputs::put(Path::new(&path), whole.as_bytes()));
        match file {
            Some(Ok(())) => Ok((blob, Some(path.display().to_string()))),
            Some(Err(e)) => {
                report!("warning: {} could not be written: {e}", path.display());
                Ok((blob, None))
            }
            None => Ok((blob, None)),
        }
    }
}
