//! Panes as pictures at three sizes. `MINKE_BLESS=1` writes the golden screens anew.

mod pictures;
mod support;
