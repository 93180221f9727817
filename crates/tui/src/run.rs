//! Where the terminal starts and how it ends.
//!
//! Elsewhere: the loop (`room`), what is shown and done (`app`).

use std::io;
use std::path::PathBuf;

use minke_record::SessionId;
use thiserror::Error;

use crate::app::{App, Setup};
use crate::keep::Keep;
use crate::keys::Keys;
use crate::outside::Outside;
use crate::room::Room;
use crate::signals::Signals;
use crate::terminal::Terminal;

/// Where the terminal starts.
#[derive(Debug, Clone)]
pub struct Start {
    pub cwd: PathBuf,
    /// The person's own directory, which is shown as `~`.
    pub home: Option<PathBuf>,
    /// Attached to it; else with what there is.
    pub session: Option<SessionId>,
    /// Where drafts, earlier inputs and settings are kept.
    pub state: PathBuf,
    /// The person's `keys.toml`, if there is one.
    pub keys: Option<String>,
    pub no_color: bool,
    /// Plain lines for a screen reader, whatever is set.
    pub plain: bool,
    /// A name for this terminal's inputs that no other one has.
    pub seed: String,
    /// The person's editor.
    pub editor: Option<String>,
    /// The workspace of `cwd`: no program is started from there.
    pub workspace: PathBuf,
    /// Nothing is said and nothing is ordered: somebody else does it all.
    pub looks_on: bool,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// The person left; the session that was attached goes on.
    ByPerson {
        attached: Option<SessionId>,
    },
    BySignal,
}

#[derive(Debug, Error)]
pub enum RunError {
    #[error("this terminal cannot be used")]
    Terminal(#[source] io::Error),
    #[error("signals cannot be listened for")]
    Signals(#[source] io::Error),
}

/// Runs until the person leaves.
pub async fn run(start: Start, outside: &dyn Outside) -> Result<Left, RunError> {
    let keep = Keep::new(start.state.clone());
    let (keys, problems) = Keys::read(start.keys.as_deref().unwrap_or_default());
    let settings = keep.settings();
    let mouse = settings.mouse;
    let setup = Setup {
        cwd: start.cwd.clone(),
        home: start.home.clone(),
        seed: start.seed.clone(),
        keys,
        settings,
        no_color: start.no_color,
        plain: start.plain,
        past: keep.past(),
        draft: keep.draft(None).filter(|_| start.session.is_none()),
        looks_on: start.looks_on,
        problems,
    };
    let mut app = App::new(setup);
    let signals = Signals::listen().map_err(RunError::Signals)?;
    let first = match start.session {
        Some(session) => app.attach(session, outside.now()),
        None => app.open(outside.now()),
    };
    let terminal = Terminal::enter(mouse).map_err(RunError::Terminal)?;
    let mut room = Room::new(app, outside, (keep, terminal, signals), (start.editor, start.workspace));
    for order in first {
        room.perform(order)?;
    }
    let left = room.stay().await;
    room.end().await;
    left
}
