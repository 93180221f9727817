//! Starts and ends the UI.
//!
//! Elsewhere: the loop (`main_loop`), the state machine (`app`).

use std::io;
use std::path::PathBuf;

use minke_record::SessionId;
use thiserror::Error;

use crate::app::{App, AppSetup};
use crate::backend::TuiBackend;
use crate::keys::KeyBindings;
use crate::main_loop::{LoopResources, MainLoop};
use crate::signals::Signals;
use crate::storage::StateStore;
use crate::terminal::Terminal;

/// Options of the UI.
#[derive(Debug, Clone)]
pub struct TuiOptions {
    pub cwd: PathBuf,
    /// The user's home directory, shown as `~`.
    pub home: Option<PathBuf>,
    /// The session to attach to; `None` opens the start screen.
    pub session: Option<SessionId>,
    /// Directory of drafts, history and settings.
    pub state_dir: PathBuf,
    /// Contents of the user's `keys.toml`.
    pub keys: Option<String>,
    pub no_color: bool,
    /// Enables plain lines for a screen reader in any case.
    pub plain: bool,
    /// Unique prefix for the ids of this terminal's inputs.
    pub seed: String,
    /// The user's editor.
    pub editor: Option<String>,
    /// The workspace of `cwd`; programs inside of it are never started.
    pub workspace: PathBuf,
    /// Read-only mode: sends no inputs and changes nothing.
    pub read_only: bool,
}

/// How the UI ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitReason {
    /// The user quit; the attached session keeps running.
    ByUser {
        attached: Option<SessionId>,
    },
    BySignal,
}

#[derive(Debug, Error)]
pub enum RunError {
    #[error("could not use this terminal")]
    Terminal(#[source] io::Error),
    #[error("could not listen for signals")]
    Signals(#[source] io::Error),
}

/// Runs until the user quits.
pub async fn run_tui(start: TuiOptions, backend: &dyn TuiBackend) -> Result<ExitReason, RunError> {
    let storage = StateStore::new(start.state_dir.clone());
    let (keys, problems) = KeyBindings::parse_config(start.keys.as_deref().unwrap_or_default());
    let settings = storage.load_settings();
    let mouse = settings.mouse;
    let setup = AppSetup {
        cwd: start.cwd.clone(),
        home: start.home.clone(),
        seed: start.seed.clone(),
        keys,
        settings,
        no_color: start.no_color,
        plain: start.plain,
        history: storage.load_history(),
        draft: storage.load_draft(None).filter(|_| start.session.is_none()),
        read_only: start.read_only,
        problems,
    };
    let mut app = App::new(setup);
    let signals = Signals::listen().map_err(RunError::Signals)?;
    let first = match start.session {
        Some(session) => app.attach_session(session, backend.now_ms()),
        None => app.show_start(backend.now_ms()),
    };
    let terminal = Terminal::enter(mouse).map_err(RunError::Terminal)?;
    let resources =
        LoopResources { storage, terminal, signals, editor: start.editor, workspace: start.workspace };
    let mut main_loop = MainLoop::new(app, backend, resources);
    for order in first {
        main_loop.run_effect(order)?;
    }
    let left = main_loop.run_loop().await;
    main_loop.shut_down().await;
    left
}
