//! The pod's live scope: its grant without existing and pending loans.
//!
//! File tools and the next sandbox read it from `Files`; this module sets it. Elsewhere: the scope table
//! (`registry`), scope arithmetic (`policy`).
//! Invariant: from the request of a loan until the table ends it, this pod cannot write there
//! (`a_parent_cannot_write_where_a_loan_is_out`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use minke_files::{LentScope, ScopedFiles};
use minke_policy::subtract_loan;
use minke_record::{CloneOrigin, Permission, PodName, Scope, ScopeRule, SessionId};
use minke_registry::{RuntimeDir, ScopeTable};

use crate::calls::toolset::read_only_scope;

pub(crate) struct LiveScope {
    session: SessionId,
    runtime: RuntimeDir,
    files: Arc<ScopedFiles>,
    /// `sandbox.mode = "read_only"`: disables writes regardless of the scope.
    read_only: bool,
    /// Requested loans that are not in the table yet.
    promised: Mutex<BTreeMap<SessionId, LentScope>>,
    /// The directories of the children's clones, which this pod may read.
    clones: Mutex<BTreeSet<String>>,
    /// Serializes refreshes, so that an older table never replaces a newer one.
    refresh_lock: Mutex<()>,
}

fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Guarded values are only replaced as a whole, so a poisoned lock is consistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LiveScope {
    pub(crate) fn new(
        session: SessionId,
        runtime: RuntimeDir,
        files: Arc<ScopedFiles>,
        read_only: bool,
    ) -> LiveScope {
        LiveScope {
            session,
            runtime,
            files,
            read_only,
            promised: Mutex::default(),
            clones: Mutex::default(),
            refresh_lock: Mutex::default(),
        }
    }

    /// Narrows the pod's scope immediately, before any other step of the loan.
    pub(crate) fn promise_loan(&self, child: SessionId, name: &PodName, loan: &Scope) -> Result<(), String> {
        let mut promised = lock_mutex(&self.promised);
        promised.insert(child, LentScope { scope: loan.clone(), to: name.to_string() });
        self.files.set_scope(&subtract_loan(&self.files.scope(), loan)).map_err(|e| e.to_string())
    }

    /// Records a child's clone; it becomes readable with the next refresh.
    pub(crate) fn add_clone(&self, clone: &CloneOrigin) {
        lock_mutex(&self.clones).insert(clone.path.clone());
    }

    /// Sets the scope from the table, minus the pending loans except the one to `done`. Reads files; returns
    /// the table.
    pub(crate) fn refresh_scope(&self, done: Option<SessionId>) -> Result<ScopeTable, String> {
        let _one = lock_mutex(&self.refresh_lock);
        let table = self.runtime.read_table().map_err(|e| e.to_string())?;
        let row = table.pods.iter().find(|row| row.session == self.session);
        let row =
            row.ok_or("this pod is no longer in the scope table: another process has removed its row")?;
        let mut promised = lock_mutex(&self.promised);
        if let Some(done) = done {
            promised.remove(&done);
        }
        let scope =
            promised.values().fold(row.effective_scope(), |scope, lent| subtract_loan(&scope, &lent.scope));
        let mut scope = if self.read_only { read_only_scope(&scope) } else { scope };
        // A removed clone is skipped.
        let clones = lock_mutex(&self.clones)
            .iter()
            .filter(|path| Path::new(path).is_dir())
            .cloned()
            .collect::<Vec<_>>();
        scope.allow.extend(clones.into_iter().map(|target| ScopeRule {
            target,
            permission: Permission::Read,
            recursive: true,
        }));
        self.files.set_scope(&scope).map_err(|e| e.to_string())?;
        let loans =
            row.loans.iter().map(|loan| LentScope { scope: loan.scope.clone(), to: loan.name.to_string() });
        self.files.set_lent_scopes(loans.chain(promised.values().cloned()).collect());
        Ok(table)
    }
}
