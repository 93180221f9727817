//! Tui: the terminal. A client of pods' sockets that keeps no truth: closing it or killing it stops no work.
//!
//! A mind that can be tested without a terminal (`app`, with `composer` and `keys`), and hands around it: the terminal
//! itself (`terminal`), the loop (`room`), one connection (`link`), files (`keep`), the person's editor (`editor`).
//! Elsewhere: what a session looks like (`view`), sessions, pods and models (whoever implements `Outside`).

mod app;
mod composer;
mod editor;
mod event;
mod keep;
mod keys;
mod link;
mod outside;
pub mod paint;
pub mod panes;
mod reach;
mod room;
mod run;
mod signals;
mod terminal;
mod wake;

pub use app::{App, Do, Link, Msg, Setup};
pub use composer::{Chip, Draft};
pub use event::{Code, Key, TermEvent};
pub use keep::Settings;
pub use keys::{Action, Keys, Place};
pub use outside::{
    Answer, Asking, FirstRun, Holder, Look, ModelLine, Outside, Question, SkillLine, Trouble, Where,
};
pub use run::{Left, RunError, Start, run};
