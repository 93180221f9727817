//! Claims of the tour, checked against logs, files, scope table and kernel after all pods have ended.
//!
//! Here: the checks. Elsewhere: recording the events (`scenario`), printing the results (`report`).
//! Invariant: every claim has evidence from outside the tour itself (`nothing_is_claimed_without_evidence`).

use std::collections::BTreeMap;
use std::fs;

use minke_client::UserHome;
use minke_pod::State;
use minke_record::{ChildOutcome, Entry, Kind, Outcome, RunResult, SessionId};
use minke_registry::RuntimeDir;

use super::kernel;
use super::logs::{
    TourLogs, completed_calls, errno_name, exit_code, is_escape_attempt, is_file_call, split_by_process,
};
use super::scenario::{PodProcess, TourRecord, session_id, writable_targets};
use super::workspace::{FORBIDDEN_FILES, RETURNED_FILE, TARGET_FILE, TourWorkspace, WORKSPACE_FILES, sha256};
use crate::error::{CliError, ExitKind};

/// How shells and `child_end` report an exit by signal 9; only the parent learns it, from the kernel.
const EXIT_OF_SIGNAL_9: i32 = 128 + 9;
/// Time limit for the release of a dead pod's scope.
const SCOPE_FREED_MS: u64 = 2_000;

/// A claim of the tour with its evidence.
#[derive(Debug)]
pub(super) struct TourClaim {
    pub(super) name: &'static str,
    pub(super) holds: bool,
    pub(super) evidence: String,
}

/// Checks each claim against sources that the tour does not write.
pub(super) struct ClaimChecker<'a> {
    pub(super) record: &'a TourRecord,
    pub(super) home: &'a UserHome,
    pub(super) workspace: &'a TourWorkspace,
    pub(super) logs: &'a TourLogs,
}

impl ClaimChecker<'_> {
    pub(super) fn check_all(&self, changed: &[String]) -> Result<Vec<TourClaim>, CliError> {
        Ok(vec![
            self.check_tests(changed)?,
            self.check_children(),
            self.check_lender(),
            self.check_escape(),
            self.check_killed(),
            self.check_resources_freed(),
            self.check_resumed(),
            self.check_loans_returned(),
            self.check_costs(),
            self.check_nothing_left()?,
        ])
    }

    fn root_entries(&self) -> &[Entry] {
        self.logs.entries_of(self.record.root)
    }

    /// The tests failed before and pass now, for the pods and in this process.
    fn check_tests(&self, changed: &[String]) -> Result<TourClaim, CliError> {
        let (ours, said) = self.workspace.run_tests()?;
        let exits: Vec<Option<i32>> = completed_calls(self.root_entries())
            .iter()
            .filter(|call| call.args["command"].as_str().is_some_and(|line| line.starts_with("sh test.sh")))
            .map(|call| exit_code(call.summary))
            .collect();
        let theirs = !self.workspace.backend.enforces_scope() || exits == [Some(1), Some(0)];
        let wanted = ["length/convert.sh", "weight/convert.sh", RETURNED_FILE];
        let holds = ours == Some(0) && theirs && changed == wanted;
        let evidence = format!(
            "`sh test.sh` exits with {}{}; changed are {}",
            ours.map_or_else(|| "a signal".to_owned(), |code| code.to_string()),
            if self.workspace.backend.enforces_scope() {
                ", and did for the first pod after it had failed"
            } else {
                ""
            },
            changed.join(", "),
        );
        let evidence = if holds {
            evidence
        } else {
            format!("{evidence}; for the first pod: {exits:?}; output: {said}")
        };
        Ok(TourClaim { name: "tests_pass", holds, evidence })
    }

    /// Two child processes had separate loans, recorded in the scope table.
    fn check_children(&self) -> TourClaim {
        let processes: Vec<_> = self
            .record
            .processes
            .iter()
            .filter(|process| process.row.parent == Some(self.record.root))
            .collect();
        let firsts: BTreeMap<SessionId, _> =
            processes.iter().rev().map(|life| (life.row.session, *life)).collect();
        let firsts: Vec<_> = firsts.into_values().collect();
        let logged = |process: &PodProcess| {
            let start = self.logs.entries_of(process.row.session).first();
            matches!(start.map(|entry| &entry.kind), Some(Kind::SessionStart(start))
                if start.parent.as_ref().is_some_and(|parent| parent.session == self.record.root)
                    && start.scope == process.row.scope)
        };
        let lent = |life: &PodProcess| {
            life.lender.as_ref().is_some_and(|row| {
                row.loans.iter().any(|loan| loan.session == life.row.session)
                    && minke_policy::scope_contains(&row.scope, &life.row.scope)
            })
        };
        let sound = processes.iter().all(|process| process.matches_log && logged(process) && lent(process));
        let holds = match firsts.as_slice() {
            [one, two] => {
                sound
                    && one.row.pid != two.row.pid
                    && minke_policy::find_write_overlap(&one.row.scope, &two.row.scope).is_none()
            }
            _ => false,
        };
        let each: Vec<String> = firsts
            .iter()
            .map(|process| {
                format!(
                    "{} (process {}) writes {}",
                    process.row.name,
                    process.row.pid,
                    self.workspace.shorten_paths(&writable_targets(&process.row.scope))
                )
            })
            .collect();
        TourClaim { name: "two_children_with_disjoint_loans", holds, evidence: each.join("; ") }
    }

    /// The lender could not write a lent path.
    fn check_lender(&self) -> TourClaim {
        let refused = completed_calls(self.root_entries())
            .into_iter()
            .find(|call| call.tool == "Write" && is_file_call(&call.args, FORBIDDEN_FILES[0]));
        let there = self.workspace.file_path(FORBIDDEN_FILES[0]).exists();
        let holds = !there && refused.as_ref().is_some_and(|call| call.is_error);
        let evidence = refused.map_or_else(
            || "no attempt was made".to_owned(),
            |call| self.workspace.shorten_paths(call.summary),
        );
        TourClaim { name: "the_lender_cannot_write_what_is_lent", holds, evidence }
    }

    /// The borrower could not write outside its loan: stopped by the kernel where commands are sandboxed,
    /// else by the file tools.
    fn check_escape(&self) -> TourClaim {
        let name = "an_escape_was_stopped";
        let tried = self.logs.find_by_name("length").and_then(|(_, entries)| {
            completed_calls(entries).into_iter().find(|call| is_escape_attempt(&call.tool, &call.args))
        });
        let Some(call) = tried else {
            return TourClaim { name, holds: false, evidence: "no attempt was made".to_owned() };
        };
        let original = WORKSPACE_FILES
            .iter()
            .find(|(file, _)| *file == TARGET_FILE)
            .map(|(_, text)| sha256(text.as_bytes().to_vec()));
        let intact = original.is_some()
            && self.record.target_after == original
            && self.workspace.file_hash(TARGET_FILE).is_ok_and(|now| now == original)
            && !self.workspace.file_path(FORBIDDEN_FILES[1]).exists();
        let errno = errno_name(call.output);
        let holds = if self.workspace.backend.enforces_scope() {
            intact && errno.is_some() && exit_code(call.summary).is_some_and(|code| code != 0)
        } else {
            intact && call.is_error
        };
        let evidence = match errno {
            Some(errno) => format!("{errno} from the kernel, {TARGET_FILE} is unchanged"),
            None => format!(
                "{}; {TARGET_FILE} is {}",
                self.workspace.shorten_paths(call.summary),
                if intact { "unchanged" } else { "changed" }
            ),
        };
        TourClaim { name, holds, evidence }
    }

    /// A process with a lease got signal 9: its log has no end of the run, and its parent recorded a crash.
    fn check_killed(&self) -> TourClaim {
        let name = "one_pod_was_killed";
        let Some(killed) = &self.record.killed else {
            return TourClaim { name, holds: false, evidence: "no pod was killed".to_owned() };
        };
        let first_life =
            split_by_process(self.logs.entries_of(killed.session)).into_iter().next().unwrap_or_default();
        let ended =
            first_life.iter().find(|entry| matches!(entry.kind, Kind::RunCompleted(_) | Kind::RunErrored(_)));
        let by = matches!(first_life.first().map(|entry| &entry.kind), Some(Kind::Opened(opened)) if opened.pid == killed.pid);
        let seen = self.root_entries().iter().find_map(|entry| match &entry.kind {
            Kind::ChildEnd(end) if end.session == killed.session => Some(end),
            _ => None,
        });
        let crashed = seen
            .is_some_and(|end| end.outcome == ChildOutcome::Crashed && end.exit == Some(EXIT_OF_SIGNAL_9));
        let commands = !self.workspace.backend.enforces_scope() || !killed.processes.is_empty();
        let holds = by && ended.is_none() && crashed && commands;
        let evidence = format!(
            "process {} of {} got signal 9 during its run; its parent recorded: {}",
            killed.pid,
            killed.name,
            seen.map_or_else(
                || "nothing".to_owned(),
                |end| format!(
                    "{}, exit status {}",
                    end.outcome,
                    end.exit.map_or_else(|| "unknown".to_owned(), |code| code.to_string())
                )
            ),
        );
        TourClaim { name, holds, evidence }
    }

    /// The scope of the killed pod was released, and none of its processes remains.
    fn check_resources_freed(&self) -> TourClaim {
        let name = "what_it_held_came_back";
        let Some(killed) = &self.record.killed else {
            return TourClaim { name, holds: false, evidence: "no pod was killed".to_owned() };
        };
        let left: Vec<u32> = killed
            .processes
            .iter()
            .chain([&killed.pid])
            .copied()
            .filter(|pid| kernel::pid_exists(*pid))
            .collect();
        let holds = killed.gone_ms <= SCOPE_FREED_MS && left.is_empty();
        let command = match killed.processes.len() {
            0 => "its command had no process".to_owned(),
            1 => "the process of its command is gone too".to_owned(),
            many => format!("the {many} processes of its command are gone too"),
        };
        let evidence = match left.as_slice() {
            [] => format!("after {} ms; {command}", killed.gone_ms),
            some => format!("still running: {some:?}"),
        };
        TourClaim { name, holds, evidence }
    }

    /// Another process resumed the same session and finished its run, and repeated no work.
    fn check_resumed(&self) -> TourClaim {
        let name = "it_was_resumed_and_finished";
        let Some(killed) = &self.record.killed else {
            return TourClaim { name, holds: false, evidence: "no pod was killed".to_owned() };
        };
        let entries = self.logs.entries_of(killed.session);
        let later: Vec<Vec<&Entry>> = split_by_process(entries).into_iter().skip(1).collect();
        let pid = later.first().and_then(|process| match &process.first()?.kind {
            Kind::Opened(opened) => Some(opened.pid),
            _ => None,
        });
        let finished = later
            .iter()
            .flatten()
            .filter(
                |entry| matches!(&entry.kind, Kind::RunCompleted(end) if end.result == RunResult::Finished),
            )
            .count();
        let edits = completed_calls(entries)
            .iter()
            .filter(|call| call.tool == "Edit" && call.outcome == Outcome::Done)
            .count();
        let seen = self
            .record
            .processes
            .iter()
            .any(|process| process.row.session == killed.session && Some(process.row.pid) == pid);
        let holds = pid.is_some_and(|pid| pid != killed.pid) && seen && finished > 0 && edits == 1;
        let evidence = format!(
            "process {} resumed {}; {finished} runs finished, {edits} edit was made",
            pid.map_or_else(|| "none".to_owned(), |pid| pid.to_string()),
            session_id(killed.session),
        );
        TourClaim { name, holds, evidence }
    }

    /// After the loan had ended, the first pod could write there again.
    fn check_loans_returned(&self) -> TourClaim {
        let wrote = completed_calls(self.root_entries()).into_iter().find(|call| {
            call.args["command"].as_str().is_some_and(|line| line.contains(RETURNED_FILE))
                || (call.tool == "Write" && is_file_call(&call.args, RETURNED_FILE))
        });
        let there = self.workspace.file_path(RETURNED_FILE).is_file();
        let holds = there && wrote.is_some_and(|call| call.outcome == Outcome::Done && !call.is_error);
        let evidence = format!(
            "{RETURNED_FILE} was {}written by the first pod after its children had ended",
            if there { "" } else { "not " }
        );
        TourClaim { name: "the_loans_came_back", holds, evidence }
    }

    /// The children's costs in the parent's log equal the sum of their own logs.
    fn check_costs(&self) -> TourClaim {
        let below = State::replay(self.root_entries()).facts.children_spent.tokens;
        let children = self.logs.sessions.iter().filter(|(session, _)| *session != self.record.root);
        // The open reservation of the killed pod's request counts as spent.
        let each: u64 = children.map(|(_, entries)| State::replay(entries).own_spent().tokens).sum();
        let holds = below == each && each > 0;
        TourClaim {
            name: "costs_add_up",
            holds,
            evidence: format!("children spent {each} tokens by their logs, {below} by their parent's log"),
        }
    }

    /// No pod, process or socket remains.
    fn check_nothing_left(&self) -> Result<TourClaim, CliError> {
        let look = RuntimeDir::new(&self.home.paths).take_snapshot()?;
        let pods = self.home.paths.runtime.join("pods");
        let dirs =
            fs::read_dir(&pods).map(Iterator::count).or_else(|e| match e.kind() {
                std::io::ErrorKind::NotFound => Ok(0),
                _ => Err(CliError::new(ExitKind::Storage, format!("cannot read {}", pods.display()))
                    .with_reason(e)),
            })?;
        let alive: Vec<u32> = self
            .record
            .processes
            .iter()
            .map(|process| process.row.pid)
            .filter(|pid| kernel::pid_exists(*pid))
            .collect();
        let clean = self.record.exit.is_some_and(|status| status.success());
        let holds = look.live.is_empty() && dirs == 0 && alive.is_empty() && clean;
        let exit = self.record.exit.map_or_else(|| "no exit status".to_owned(), |status| status.to_string());
        let evidence = format!(
            "{} pods, {dirs} runtime directories and {} processes remain; the first pod ended with {exit}",
            look.live.len(),
            alive.len(),
        );
        Ok(TourClaim { name: "nothing_is_left", holds, evidence })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use minke_policy::SandboxBackend;
    use minke_registry::{ProcessEnv, UserPaths};
    use minke_session::{FileStore, RealDisk};

    use super::*;

    #[test]
    fn nothing_is_claimed_without_evidence() {
        let dir = tempfile::tempdir().unwrap();
        let env = [("MINKE_HOME".into(), dir.path().join("home").into())].into();
        let paths =
            UserPaths::from_env(&ProcessEnv { env, uid: rustix::process::getuid().as_raw() }).unwrap();
        paths.create_dirs().unwrap();
        let store = Arc::new(FileStore::new(Arc::new(RealDisk), paths.sessions_dir()));
        let home = UserHome { paths, store };
        for backend in [SandboxBackend::Namespaces, SandboxBackend::Unavailable] {
            let workspace = TourWorkspace::create(dir.path(), backend).unwrap();
            let root = SessionId(crate::context::new_ids().next_uuid());
            let record =
                TourRecord { root, processes: Vec::new(), killed: None, target_after: None, exit: None };
            let logs = TourLogs { sessions: Vec::new() };
            let checker = ClaimChecker { record: &record, home: &home, workspace: &workspace, logs: &logs };
            for claim in checker.check_all(&[]).unwrap() {
                assert!(!claim.holds, "{claim:?}");
            }
        }
    }
}
