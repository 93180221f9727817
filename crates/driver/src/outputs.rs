//! Outputs: what was too long for a result stands as a file in the pod's `output` directory, in every life anew.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use minke_pod::State;
use minke_record::Item;

use crate::library::Library;
use crate::stderr::report;

/// Nothing longer is kept of a call.
const FILE_BYTES: usize = 64 * 1024 * 1024;

/// A file for each result in the context that has more to say than it shows. What cannot be restored is told on stderr:
/// the blob is still there for `read_blob`.
pub(crate) fn restore(state: &State, library: &Library, output: &Path) {
    for item in state.context.items() {
        let Item::ToolResult { call_id, blob: Some(blob), .. } = item.as_ref() else { continue };
        if let Err(why) = restore_one(library, blob, &output.join(format!("{call_id}.txt"))) {
            report!("warning: the whole output of {call_id} cannot be shown again: {why}");
        }
    }
}

fn restore_one(library: &Library, blob: &str, path: &Path) -> Result<(), String> {
    let reader = library.reader().map_err(|e| e.to_string())?;
    let content = reader.blob(blob, 0, FILE_BYTES).map_err(|e| e.to_string())?;
    put(path, &content).map_err(|e| e.to_string())
}

/// Writes a new file.
pub(crate) fn put(path: &Path, content: &[u8]) -> std::io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(content)
}
