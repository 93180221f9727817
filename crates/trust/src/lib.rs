//! Trust: what a workspace brings along that could run something or change the agent, and whether its person agreed.
//!
//! Here: looking (`look`), reading one file of a workspace safely (`read`), what was agreed to (`store`), and the words
//! for people (`found`, `runs`, `words`). Elsewhere: what is done with it (`driver`), the question (`cli`), what rules
//! mean (`policy`) and hooks (`hooks`).
//! Invariant: nothing is followed out of the workspace, waited for or read beyond its bound, whatever lies there
//! (`whatever_lies_there_the_look_ends_and_names_it`), and what was not looked at is never trusted
//! (`a_change_of_anything_that_counts_asks_again`).

mod found;
mod limits;
mod look;
mod reach;
mod runs;
mod store;
mod words;

pub use found::{Found, Ignored, Item, Kind, Use};
pub use limits::{FILE_BYTES, LOOK_TIME};
pub use look::look;
pub use reach::{Beginning, Refused, Why, beginning, read};
pub use store::{Change, How, Standing, TrustError, TrustStore, Trusted};
pub use words::shown;
