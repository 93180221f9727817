//! The house rules that a machine keeps, as plain functions over the tree, so that the tests and
//! `cargo xtask check` ask the same questions.
//!
//! Here: arrows between crates, labels of files, links of documentation pages, purity of types and core,
//! promises that name their tests, names of providers.
//! Elsewhere: what the commands do (`main.rs`), what they measure (`bench`).
//! Invariant: what ARCHITECTURE.md draws is what Cargo builds (`what_is_drawn_is_what_is_built`).

pub mod arrows;
pub mod commits;
pub mod figures;
pub mod labels;
pub mod pages;
pub mod promises;
pub mod providers;
pub mod purity;
pub mod starts;
pub mod tree;
