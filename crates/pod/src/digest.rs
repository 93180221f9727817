//! The digest: what an answer is bound to, so that what was approved is what runs.

use minke_record::{Script, Text};

/// What an answer is bound to: tool, final arguments, cwd, the preview's hash before, and the scripts that the line
/// names. Where there are none, the digest is as it was before they were part of it, so that old answers count.
pub(crate) fn digest(
    tool: &str,
    arguments: &Text,
    cwd: &str,
    before: Option<&str>,
    scripts: &[Script],
) -> String {
    let parts = if scripts.is_empty() {
        serde_json::json!([tool, arguments, cwd, before])
    } else {
        let known =
            |script: &Script| serde_json::json!([script.path, script.hash, script.leads_to, script.problem]);
        let scripts: Vec<serde_json::Value> = scripts.iter().map(known).collect();
        serde_json::json!([tool, arguments, cwd, before, scripts])
    };
    minke_record::Blob::new(parts.to_string().into_bytes()).name.blob
}
