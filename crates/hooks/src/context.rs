//! The context that hooks need from their pod.

use std::path::PathBuf;
use std::sync::Arc;

use minke_exec::command::Commands;

/// Redacts secrets in a text.
pub type RedactFn = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// The pod that hooks belong to.
#[derive(Clone)]
pub struct HookContext {
    pub session: String,
    pub pod: String,
    pub cwd: PathBuf,
    /// Runs a hook's command in the pod's own sandbox. `None` without a sandbox: then commands are not run.
    pub commands: Option<Arc<Commands>>,
    /// Redacts known secrets in everything that a hook gets.
    pub redact: RedactFn,
    /// The directory of the user's hook scripts, `<config>/hooks`; hook commands may read it.
    pub scripts_dir: PathBuf,
}
