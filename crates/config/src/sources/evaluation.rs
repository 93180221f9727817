//! Evaluates a profile on its own thread with a time limit.
//!
//! Here: the thread with enough stack, the time limit, and local modules from the profile's directory.
//! Elsewhere: the language and its limits (`lua`), the locations of profiles (`profile_registry`).
//! Invariant: modules are never read through a link or from outside (`a_module_never_leads_outside`), and
//! waiting for a profile is limited (`a_profile_that_holds_the_machine_is_not_waited_for`).

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use minke_lua::{
    EvaluationLimits, LuaError, ModuleName, ModuleProvider, ModuleSource, NoModules, ProfileSource, Recipe,
};

/// The limit from the documentation.
const EVALUATION_LIMIT: Duration = Duration::from_secs(2);
/// Limit for a single long operation that cannot be interrupted, for example on long strings. The operation
/// ends because its input is limited, and so does its thread.
const EVALUATION_TIMEOUT: Duration = Duration::from_secs(3);

/// Where a profile's modules are.
#[derive(Debug, Clone)]
pub(crate) enum ModuleRoot {
    None,
    /// In this directory.
    Directory(PathBuf),
    /// In this directory of a workspace.
    Workspace {
        workspace: PathBuf,
        directory: PathBuf,
    },
}

impl ModuleProvider for ModuleRoot {
    fn load_module(&self, name: &ModuleName) -> Result<Option<ModuleSource>, String> {
        let mut file: PathBuf = name.words().collect();
        file.add_extension("lua");
        let (root, file) = match self {
            ModuleRoot::None => return NoModules.load_module(name),
            ModuleRoot::Directory(directory) => (directory, file),
            ModuleRoot::Workspace { workspace, directory } => (workspace, directory.join(file)),
        };
        let text = crate::trust::read_text_file(root, &file, minke_lua::MAX_FILE_BYTES as u64)
            .map_err(|e| e.to_string())?;
        Ok(text.map(|text| ModuleSource { file: root.join(&file).display().to_string(), text }))
    }
}

/// Evaluates a profile.
pub(crate) fn evaluate_profile(source: ProfileSource, module_root: ModuleRoot) -> Result<Recipe, LuaError> {
    evaluate_within(source, module_root, EVALUATION_TIMEOUT)
}

fn evaluate_within(
    source: ProfileSource,
    beside: ModuleRoot,
    patience: Duration,
) -> Result<Recipe, LuaError> {
    let file = source.name.clone();
    let failed = |message: String| LuaError { file: file.clone(), line: None, message };
    let (give, taken) = mpsc::sync_channel(1);
    let work = move || {
        let begin = Instant::now();
        let bounds = EvaluationLimits::default_limits(Rc::new(move || begin.elapsed() > EVALUATION_LIMIT));
        // The receiver may have given up.
        drop(give.send(minke_lua::evaluate(source, Rc::new(beside), &bounds)));
    };
    let builder = std::thread::Builder::new().name("profile".to_owned()).stack_size(minke_lua::STACK_BYTES);
    let thread =
        builder.spawn(work).map_err(|e| failed(format!("could not start a thread to evaluate it: {e}")))?;
    match taken.recv_timeout(patience) {
        Ok(result) => {
            drop(thread.join());
            result
        }
        Err(mpsc::RecvTimeoutError::Timeout) => {
            Err(failed("the evaluation of the profile exceeded the time limit".to_owned()))
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            Err(failed("the thread that evaluated the profile ended without a result".to_owned()))
        }
    }
}

/// Reads a profile from a file of the user.
pub(crate) fn read_user_profile(path: &Path) -> Result<String, String> {
    match crate::sources::config::read_config_file(path) {
        Ok(Some(text)) => Ok(text),
        Ok(None) => Err("the file does not exist".to_owned()),
        Err(e) => Err(e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_that_holds_the_machine_is_not_waited_for() {
        let head = "local z = ('0'):rep(1e6) local x ";
        let text = format!("{head}{}", "x=-z ".repeat(2_000));
        let source = ProfileSource { name: "slow.lua".to_owned(), text };
        let begin = Instant::now();
        let error = evaluate_within(source, ModuleRoot::None, Duration::from_millis(5)).unwrap_err();
        assert!(error.message.contains("exceeded the time limit"), "{error}");
        assert!(begin.elapsed() < EVALUATION_LIMIT);
    }
}
