//! Tui: the terminal. A client of pods' sockets that keeps no truth: closing it or killing it stops no work.

pub mod paint;
pub mod panes;
