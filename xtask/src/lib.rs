//! The repository rules that a program can check, as plain functions over the tree, shared by the tests and
//! `cargo xtask check`.
//!
//! Here: dependencies between crates, labels of files, links of documentation pages, purity of types and core,
//! promises that name their tests, names of providers, figures of names and phrases.
//! Elsewhere: the commands (`main.rs`), benchmarks (`bench`).
//! Invariant: the table in ARCHITECTURE.md matches Cargo (`what_is_drawn_is_what_is_built`).

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
