//! The call digest: an answer is bound to it, so that only the approved call runs.

use minke_record::{ExecutedScript, Text};

/// Returns a hash of tool, final arguments, working directory, the preview's old hash and the named scripts.
/// Without scripts the digest has its older form, so that old answers stay valid.
pub(crate) fn call_digest(
    tool: &str,
    arguments: &Text,
    cwd: &str,
    before: Option<&str>,
    scripts: &[ExecutedScript],
) -> String {
    let parts = if scripts.is_empty() {
        serde_json::json!([tool, arguments, cwd, before])
    } else {
        let known = |script: &ExecutedScript| {
            serde_json::json!([script.path, script.hash, script.leads_to, script.problem])
        };
        let scripts: Vec<serde_json::Value> = scripts.iter().map(known).collect();
        serde_json::json!([tool, arguments, cwd, before, scripts])
    };
    minke_record::Blob::new(parts.to_string().into_bytes()).name.blob
}
