//! The pod's live scope: what it has, without what is lent and what is about to be.
//!
//! File tools and the next fence read it from `Files`; here it is set. Elsewhere: who holds what (`registry`), arithmetic
//! (`policy`).
//! Invariant: from the moment a loan is wanted until the table says otherwise, this pod cannot write there
//! (`a_parent_cannot_write_where_a_loan_is_out`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use minke_files::{Files, Lent};
use minke_policy::subtract;
use minke_record::{CloneOf, Permission, PodName, Scope, ScopeRule, SessionId};
use minke_registry::{Runtime, Table};

use crate::kit::reading;

pub(crate) struct LiveScope {
    session: SessionId,
    runtime: Runtime,
    files: Arc<Files>,
    /// `sandbox.mode = "read_only"`: nothing is written whatever the scope says.
    read_only: bool,
    /// Loans that are wanted and not in the table yet.
    promised: Mutex<BTreeMap<SessionId, Lent>>,
    /// Where children have their own clones, which this pod may read.
    clones: Mutex<BTreeSet<String>>,
    /// One at a time, so that an older table is never set after a newer one.
    refreshing: Mutex<()>,
}

fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whatever it guards is replaced whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LiveScope {
    pub(crate) fn new(session: SessionId, runtime: Runtime, files: Arc<Files>, read_only: bool) -> LiveScope {
        LiveScope {
            session,
            runtime,
            files,
            read_only,
            promised: Mutex::default(),
            clones: Mutex::default(),
            refreshing: Mutex::default(),
        }
    }

    /// Narrows the pod at once, before anything else happens for the loan.
    pub(crate) fn promise(&self, child: SessionId, name: &PodName, loan: &Scope) -> Result<(), String> {
        let mut promised = hold(&self.promised);
        promised.insert(child, Lent { scope: loan.clone(), to: name.to_string() });
        self.files.set_scope(&subtract(&self.files.scope(), loan)).map_err(|e| e.to_string())
    }

    /// A child has a clone of its own; it can be read from the next refresh on.
    pub(crate) fn may_read(&self, clone: &CloneOf) {
        hold(&self.clones).insert(clone.path.clone());
    }

    /// Sets what the table says, without what is promised to others than `done`. Reads files; gives the table.
    pub(crate) fn refresh(&self, done: Option<SessionId>) -> Result<Table, String> {
        let _one = hold(&self.refreshing);
        let table = self.runtime.table().map_err(|e| e.to_string())?;
        let row = table.pods.iter().find(|row| row.session == self.session);
        let row = row.ok_or("this pod is not in the scope table any more: somebody cleaned it up")?;
        let mut promised = hold(&self.promised);
        if let Some(done) = done {
            promised.remove(&done);
        }
        let scope = promised.values().fold(row.effective(), |scope, lent| subtract(&scope, &lent.scope));
        let mut scope = if self.read_only { reading(&scope) } else { scope };
        // One that was removed is not there to be read.
        let clones =
            hold(&self.clones).iter().filter(|path| Path::new(path).is_dir()).cloned().collect::<Vec<_>>();
        scope.allow.extend(clones.into_iter().map(|target| ScopeRule {
            target,
            permission: Permission::Read,
            recursive: true,
        }));
        self.files.set_scope(&scope).map_err(|e| e.to_string())?;
        let loans =
            row.loans.iter().map(|loan| Lent { scope: loan.scope.clone(), to: loan.name.to_string() });
        self.files.set_lent(loans.chain(promised.values().cloned()).collect());
        Ok(table)
    }
}
