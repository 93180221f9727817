//! Spilled output: results too long for the context are files in the pod's `output` directory, restored by
//! each process.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use minke_pod::State;
use minke_record::Item;

use crate::clients::log_reader::SessionReader;
use crate::stderr::report;

/// Longer output of a call is not restored.
const MAX_OUTPUT_BYTES: usize = 64 * 1024 * 1024;

/// Writes a file for each truncated result in the context. Failures are reported on stderr: `read_blob` can
/// still read the blob.
pub(crate) fn restore_outputs(state: &State, session_reader: &SessionReader, output: &Path) {
    for item in state.context.items() {
        let Item::ToolResult { call_id, blob: Some(blob), .. } = item.as_ref() else { continue };
        if let Err(why) = restore_output(session_reader, blob, &output.join(format!("{call_id}.txt"))) {
            report!("warning: could not restore the full output of {call_id}: {why}");
        }
    }
}

fn restore_output(library: &SessionReader, blob: &str, path: &Path) -> Result<(), String> {
    let reader = library.reader().map_err(|e| e.to_string())?;
    let content = reader.read_blob(blob, 0, MAX_OUTPUT_BYTES).map_err(|e| e.to_string())?;
    write_new_file(path, &content).map_err(|e| e.to_string())
}

/// Writes a new file.
pub(crate) fn write_new_file(path: &Path, content: &[u8]) -> std::io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(content)
}
