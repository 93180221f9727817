//! Commands through the public API: their end (`running`), output (`output`), background commands (`background`), and
//! cleanup (`tree`). The leak test is a separate binary (`command_leak.rs`).

#![expect(clippy::unwrap_used, reason = "an error fails the test")]

mod background;
mod output;
mod repositories;
mod running;
mod support;
mod tree;
