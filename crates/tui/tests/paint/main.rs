//! Paint, by its front door: blocks and texts in, lines out. `MINKE_BLESS=1` writes the golden screens anew.

mod blocks;
mod diffs;
mod drawing;
mod figures;
mod harmless;
mod hostile;
mod markdown;
mod support;
mod wrapping;
