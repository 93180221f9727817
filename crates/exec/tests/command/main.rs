//! Commands from the front door: how they end (`running`), what is heard of them (`output`), those in the background
//! (`background`), and that nothing of them is left (`tree`). The leak test is a binary of its own (`command_leak.rs`).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod background;
mod output;
mod repositories;
mod running;
mod support;
mod tree;
