//! Evaluating: a profile's text, with the clock and the thread that the language itself does not have.
//!
//! Here: a thread with enough stack, the backstop, local modules from the profile's own directory. Elsewhere: the language
//! and its bounds (`lua`), where profiles lie (`registry`).
//! Invariant: no module is read through a link or from outside (`a_module_never_leads_outside`); whoever waits for a
//! profile waits a bounded time (`a_profile_that_holds_the_machine_is_not_waited_for`).

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use minke_lua::{Bounds, LuaError, Module, ModuleName, Modules, NoModules, Recipe, Source};

/// As the page has it.
const BACKSTOP: Duration = Duration::from_secs(2);
/// A machine that cannot be looked at is not waited for any longer: straight code on long texts. It ends by itself, since
/// a text is short, and its thread with it.
const PATIENCE: Duration = Duration::from_secs(3);

/// Where a profile's modules lie.
#[derive(Debug, Clone)]
pub(crate) enum Beside {
    Nothing,
    /// In this directory.
    Directory(PathBuf),
    /// In this directory of a workspace, given from there.
    Workspace {
        workspace: PathBuf,
        directory: PathBuf,
    },
}

impl Modules for Beside {
    fn module(&self, name: &ModuleName) -> Result<Option<Module>, String> {
        let mut file: PathBuf = name.words().collect();
        file.add_extension("lua");
        let (root, file) = match self {
            Beside::Nothing => return NoModules.module(name),
            Beside::Directory(directory) => (directory, file),
            Beside::Workspace { workspace, directory } => (workspace, directory.join(file)),
        };
        let text = minke_trust::read(root, &file, minke_lua::FILE_BYTES as u64).map_err(|e| e.to_string())?;
        Ok(text.map(|text| Module { file: root.join(&file).display().to_string(), text }))
    }
}

/// Evaluates a profile.
pub(crate) fn evaluate(source: Source, beside: Beside) -> Result<Recipe, LuaError> {
    evaluate_within(source, beside, PATIENCE)
}

fn evaluate_within(source: Source, beside: Beside, patience: Duration) -> Result<Recipe, LuaError> {
    let file = source.name.clone();
    let failed = |message: String| LuaError { file: file.clone(), line: None, message };
    let (give, taken) = mpsc::sync_channel(1);
    let work = move || {
        let begin = Instant::now();
        let bounds = Bounds::usual(Rc::new(move || begin.elapsed() > BACKSTOP));
        // Whoever asked may have stopped waiting.
        drop(give.send(minke_lua::evaluate(source, Rc::new(beside), &bounds)));
    };
    let builder = std::thread::Builder::new().name("profile".to_owned()).stack_size(minke_lua::STACK_BYTES);
    let thread =
        builder.spawn(work).map_err(|e| failed(format!("no thread could be had to evaluate it: {e}")))?;
    match taken.recv_timeout(patience) {
        Ok(result) => {
            drop(thread.join());
            result
        }
        Err(mpsc::RecvTimeoutError::Timeout) => {
            Err(failed("the profile takes too long: nobody waits for it any more".to_owned()))
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            Err(failed("the profile could not be evaluated: its thread ended without an answer".to_owned()))
        }
    }
}

/// The text of a profile that lies in a file of the person's.
pub(crate) fn person_file(path: &Path) -> Result<String, String> {
    match crate::config::read(path) {
        Ok(Some(text)) => Ok(text),
        Ok(None) => Err("there is no such file".to_owned()),
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
        let source = Source { name: "slow.lua".to_owned(), text };
        let begin = Instant::now();
        let error = evaluate_within(source, Beside::Nothing, Duration::from_millis(5)).unwrap_err();
        assert!(error.message.contains("nobody waits"), "{error}");
        assert!(begin.elapsed() < BACKSTOP);
    }
}
