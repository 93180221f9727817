//! The house rules that a machine keeps, as plain functions over the tree, so that the tests and
//! `cargo xtask check` ask the same questions.
//!
//! Here: arrows between crates, labels of files, purity of minds, promises that name their tests, names of
//! providers.
//! Elsewhere: what the commands do (`main.rs`), what they measure (`bench`).
//! Invariant: what ARCHITECTURE.md draws is what Cargo builds (`what_is_drawn_is_what_is_built`).

pub mod arrows;
pub mod labels;
pub mod promises;
pub mod providers;
pub mod purity;
pub mod starts;
pub mod tree;
