//! Tests of `paint` through its public API: blocks and texts in, lines out. `MINKE_BLESS=1` rewrites the
//! golden screens.

mod blocks;
mod cache;
mod diffs;
mod figures;
mod hostile;
mod markdown;
mod sanitize;
mod support;
mod wrapping;
