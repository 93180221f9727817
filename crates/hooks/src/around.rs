//! Around: what hooks need to know of their pod.

use std::path::PathBuf;
use std::sync::Arc;

use minke_exec::command::Commands;

/// Takes what nobody is to see out of a text.
pub type Cover = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// The pod that hooks belong to.
#[derive(Clone)]
pub struct Around {
    pub session: String,
    pub pod: String,
    pub cwd: PathBuf,
    /// What holds a hook's command: the pod's own fence. None where nothing would (tier D): then none is run.
    pub commands: Option<Arc<Commands>>,
    /// Known secrets are taken out of whatever a hook is told.
    pub cover: Cover,
    /// Where the user's hooks have their scripts: readable for their commands, `<config>/hooks`.
    pub scripts: PathBuf,
}
