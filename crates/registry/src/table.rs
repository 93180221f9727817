//! The scope table: who holds which part of the file system, and who has lent it to whom.
//!
//! Here: the rows and what may become of them, as pure functions over a whole table. Elsewhere: the file, its lock and the
//! leases (`ledger`, `lease`, `runtime`); scope arithmetic (`policy`).
//! Invariants: no two rows can write one path (`no_two_pods_can_write_one_path`), a borrower has nothing that its lender
//! had not, and what a row held is its lender's again when the row is gone.

use minke_record::{PodName, Scope, SessionId};
use serde::{Deserialize, Serialize};

use crate::lease::Row;

/// All rows of this machine's user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// Counts changes.
    pub generation: u64,
    /// By name.
    pub pods: Vec<Row>,
}

/// What a pod has lent to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loan {
    pub session: SessionId,
    pub name: PodName,
    pub scope: Scope,
}

/// How many pods there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableLimits {
    /// Pods above a pod.
    pub depth: u32,
    /// Live children of one pod.
    pub children: usize,
    /// Live pods of the user.
    pub pods: usize,
}

impl Default for TableLimits {
    fn default() -> Self {
        TableLimits { depth: 4, children: 16, pods: 256 }
    }
}
