//! Output limit: truncates the result of a call to the size that the manifest allows. The full text is stored
//! as a blob and a file.
//!
//! Secrets are redacted first, so that truncation never splits one. Elsewhere: limits inside a tool
//! (`tools`), files of earlier processes (`spilled_output`).
//! Invariant: a cut is between characters, states the number of omitted bytes, and loses nothing
//! (`a_result_is_cut_to_what_the_manifest_allows`).

use std::path::{Path, PathBuf};

use minke_manifest::ToolOutputSection;
use minke_pod::CallOutput;
use minke_record::CallId;

use crate::calls::spilled_output;
use crate::clients::log_reader::SessionReader;
use crate::stderr::report;

/// The maximum size of tool output, and where the full text is stored.
#[derive(Debug, Clone)]
pub(crate) struct OutputLimit {
    pub(crate) section: ToolOutputSection,
    /// The pod's own `output` directory.
    pub(crate) output_dir: PathBuf,
}

impl OutputLimit {
    /// Whether the output is longer than allowed.
    pub(crate) fn is_exceeded(&self, tool: &str, said: &CallOutput) -> bool {
        said.content.as_ref().is_some_and(|content| content.len() as u64 > self.section.max_bytes(tool))
    }

    /// Truncates the output. Writes files: do not call it on the event loop.
    pub(crate) fn truncate_output(
        &self,
        session_reader: &SessionReader,
        call_id: &CallId,
        tool: &str,
        said: CallOutput,
    ) -> CallOutput {
        let most = usize::try_from(self.section.max_bytes(tool)).unwrap_or(usize::MAX);
        let Some(full_text) = &said.content else { return said };
        let mut end = most.min(full_text.len());
        while !full_text.is_char_boundary(end) {
            end -= 1;
        }
        let shown = full_text.get(..end).unwrap_or_default();
        let (full_blob, place) = match &said.full_blob {
            // The output is an excerpt already, and the tool has named the full text.
            Some(rest) => (Some(rest.clone()), String::new()),
            None => match self.store_output(session_reader, call_id, full_text) {
                Ok((blob, file)) => {
                    (Some(blob), file.map_or(String::new(), |file| format!("; full output: {file}")))
                }
                Err(why) => (None, format!("; could not store the full output: {why}")),
            },
        };
        let line = if shown.is_empty() || shown.ends_with('\n') { "" } else { "\n" };
        let all = full_text.len();
        let content =
            format!("{shown}{line}[cut: {end} of {all} bytes are shown (worker.tool_output){place}]\n");
        CallOutput { content: Some(content), full_blob, ..said }
    }

    fn store_output(
        &self,
        session_reader: &SessionReader,
        call_id: &CallId,
        full_text: &str,
    ) -> Result<(String, Option<String>), String> {
        let kept = session_reader.store().put_blob(session_reader.session(), full_text.as_bytes().to_vec());
        let blob = kept.map_err(|e| e.to_string())?.blob;
        // A client chooses its call ids freely; only ids that are valid file names become one.
        let plain = call_id.0.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        let path = self.output_dir.join(format!("{call_id}.txt"));
        let file = plain.then(|| spilled_output::write_new_file(Path::new(&path), full_text.as_bytes()));
        match file {
            Some(Ok(())) => Ok((blob, Some(path.display().to_string()))),
            Some(Err(e)) => {
                report!("warning: could not write {}: {e}", path.display());
                Ok((blob, None))
            }
            None => Ok((blob, None)),
        }
    }
}
