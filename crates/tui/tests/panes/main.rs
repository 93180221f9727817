//! Panes as pictures at three sizes. `MINKE_BLESS=1` writes the golden screens anew.

mod help;
mod pictures;
mod support;
