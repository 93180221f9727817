//! Pod: what a pod decides.
//!
//! `Pod::step` takes one input and gives what is to be written, shown and done. Durable state changes only in
//! `State::apply`, so replaying the log gives the same pod. No clock, disk, socket, task or randomness is here.

mod asks;
mod audit;
mod birth;
mod boot;
mod budget;
mod calls;
mod capture;
mod children;
mod digest;
mod family;
mod firing;
mod fold;
mod gate;
mod guests;
mod hooks;
mod input;
mod instructed;
mod job;
mod loops;
mod notes;
mod orders;
mod outbox;
mod own;
mod pod;
mod reply;
mod reply_end;
mod retry;
mod rewind;
mod rules;
mod run;
mod scripts;
mod spawning;
mod state;
mod status;
mod step;
mod stop;
mod table;
mod told;
mod tree;
mod waits;
mod yielding;

pub use audit::Audit;
pub use birth::{Forking, Moment, NewSession, Task, Visit, Visitor, Written, fork, new_session, visit};
pub use budget::{KEY as BUDGET, is_spent};
pub use family::Held;
pub use firing::Fire;
pub use gate::{BY_HOOK, Limits, REWRITTEN};
pub use input::*;
pub use instructed::instructions_told;
pub use job::DEADLINE;
pub use minke_thread::Wish;
pub use orders::UNDO;
pub use pod::{NETWORK, Pod};
pub use reply_end::{FILTERED, REFUSED};
pub use rewind::{RewindScan, Target};
pub use rules::RULES;
pub use run::{COSTS, UNREAD};
pub use state::State;
pub use step::*;
pub use table::{Cell, MethodKind, cell};
pub use told::{CATALOG, variables};
pub use tree::{KinKnown, Sending, Spawning, TreeNews, TreeOrder};
