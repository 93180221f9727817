//! Hooks: people's own programs, told what happens and asked before it does.
//!
//! Here: reading `hooks.toml` (`Loaded`), asking at the points where a hook may steer (`Hooks::ask`), telling what
//! happened afterwards from the log (`Hooks::observe`). Elsewhere: which points there are and what an answer leads to
//! (`pod`), wiring (`driver`), whether a workspace's file is read (`trust`).
//!
//! How a driver uses it:
//! ```text
//! let loaded = Loaded::default().user(&paths.config.join("hooks.toml")).workspace(&file, &text /* if trusted */);
//! let hooks = Arc::new(Hooks::new(loaded, Around { session, pod, cwd, commands, cover, scripts }));
//! hooks.problems()                                    // told to the person once
//! hooks.steers(Event::BeforeTool)                     // fills pod::Steers
//! hooks.ask(&Question::before_tool(Call { .. })).await // -> Steered, whose first six fields are pod::HooksSaid
//! let observers = hooks.observe(Observing { .. });    // one task for each hook that is told afterwards
//! observers.committed(seq)                            // after each sync; never blocks
//! observers.stop(Duration::from_secs(2)).await        // at the end
//! ```
//! Invariants: `load`, `steer`, `observe` name theirs.

mod around;
mod cursor;
mod event;
mod hook;
mod http;
mod load;
mod map;
mod near;
mod observe;
mod observer;
mod payload;
mod question;
mod sink;
mod steer;
mod table;
mod verdict;
mod work;

pub use around::{Around, Cover};
pub use event::Event;
pub use hook::{Handler, Hook, Layer, When};
pub use load::{FILE_BYTES, HOOKS_MOST, Loaded};
pub use map::Frames;
pub use observe::{LAG_TOLD, Lag, Observers, Observing, Page, Tell};
pub use question::{Call, Question};
pub use steer::{ANSWER_BYTES, Heard, Hooks, QUESTION_BYTES, Said, Steered};
pub use verdict::{CONTEXT_CHARS, ENV_BYTES, REASON_CHARS, VALUE_BYTES, Verdict};
pub use work::notified;
