//! The digest: what an answer is bound to, so that what was approved is what runs.

use minke_record::Text;

/// What an answer is bound to: tool, final arguments, cwd, and the preview's hash before.
pub(crate) fn digest(tool: &str, arguments: &Text, cwd: &str, before: Option<&str>) -> String {
    let parts = serde_json::json!([tool, arguments, cwd, before]);
    minke_record::Blob::new(parts.to_string().into_bytes()).name.blob
}
