//! Panes at three sizes. `MINKE_BLESS=1` rewrites the golden screens.

mod help;
mod pictures;
mod support;
