//! What the tour claims, each held against logs, files, scope table and kernel after everything has ended.
//!
//! Here: the claims. Elsewhere: what was seen while it happened (`guide`), telling them (`closing`).
//! Invariant: a claim rests on something that the guide did not say itself
//! (`nothing_is_claimed_without_evidence`).

use std::collections::BTreeMap;
use std::fs;

use minke_client::Home;
use minke_pod::State;
use minke_record::{ChildOutcome, Entry, Kind, Outcome, RunResult, SessionId};
use minke_registry::Runtime;

use super::guide::{Life, Witness, id, writes};
use super::kernel;
use super::logs::{Logs, ends_with, errno, exit_of, is_escape, lives, results};
use super::place::{AFTERWARDS, FILES, FORBIDDEN, Place, TARGET, sha256};
use crate::failure::{Exit, Failure};

/// How shells and `child_end` write an end by signal 9; only a parent learns it, from the kernel.
const EXIT_OF_SIGNAL_9: i32 = 128 + 9;
/// What a dead pod held is back this soon.
const SCOPE_BACK_MS: u64 = 2_000;

/// Something that the tour says is so.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) name: &'static str,
    pub(super) held: bool,
    pub(super) evidence: String,
}

/// Looks for each claim where nobody of the tour could have put it.
pub(super) struct Judge<'a> {
    pub(super) witness: &'a Witness,
    pub(super) home: &'a Home,
    pub(super) place: &'a Place,
    pub(super) logs: &'a Logs,
}

impl Judge<'_> {
    pub(super) fn all(&self, changed: &[String]) -> Result<Vec<Claim>, Failure> {
        Ok(vec![
            self.tests(changed)?,
            self.children(),
            self.lender(),
            self.escape(),
            self.killed(),
            self.back(),
            self.resumed(),
            self.returned(),
            self.costs(),
            self.nothing_left()?,
        ])
    }

    fn root(&self) -> &[Entry] {
        self.logs.of(self.witness.root)
    }

    /// They failed before and pass now, for the pods and for us.
    fn tests(&self, changed: &[String]) -> Result<Claim, Failure> {
        let (ours, said) = self.place.test()?;
        let exits: Vec<Option<i32>> = results(self.root())
            .iter()
            .filter(|call| call.args["command"].as_str().is_some_and(|line| line.starts_with("sh test.sh")))
            .map(|call| exit_of(call.summary))
            .collect();
        let theirs = !self.place.tier.holds() || exits == [Some(1), Some(0)];
        let wanted = ["length/convert.sh", "weight/convert.sh", AFTERWARDS];
        let held = ours == Some(0) && theirs && changed == wanted;
        let evidence = format!(
            "`sh test.sh` exits with {}{}; changed are {}",
            ours.map_or_else(|| "a signal".to_owned(), |code| code.to_string()),
            if self.place.tier.holds() { ", and did for the first pod after it had failed" } else { "" },
            changed.join(", "),
        );
        let evidence = if held {
            evidence
        } else {
            format!("{evidence}; for the first pod: {exits:?}; it said: {said}")
        };
        Ok(Claim { name: "tests_pass", held, evidence })
    }

    /// Two processes beside the first, each with a loan of its own that the scope table had.
    fn children(&self) -> Claim {
        let lives: Vec<_> =
            self.witness.lives.iter().filter(|life| life.row.parent == Some(self.witness.root)).collect();
        let firsts: BTreeMap<SessionId, _> =
            lives.iter().rev().map(|life| (life.row.session, *life)).collect();
        let firsts: Vec<_> = firsts.into_values().collect();
        let logged = |life: &Life| {
            let start = self.logs.of(life.row.session).first();
            matches!(start.map(|entry| &entry.kind), Some(Kind::SessionStart(start))
                if start.parent.as_ref().is_some_and(|parent| parent.session == self.witness.root)
                    && start.scope == life.row.scope)
        };
        let lent = |life: &Life| {
            life.lender.as_ref().is_some_and(|row| {
                row.loans.iter().any(|loan| loan.session == life.row.session)
                    && minke_policy::contains(&row.scope, &life.row.scope)
            })
        };
        let sound = lives.iter().all(|life| life.as_logged && logged(life) && lent(life));
        let held = match firsts.as_slice() {
            [one, two] => {
                sound
                    && one.row.pid != two.row.pid
                    && minke_policy::overlaps_write(&one.row.scope, &two.row.scope).is_none()
            }
            _ => false,
        };
        let each: Vec<String> = firsts
            .iter()
            .map(|life| {
                format!(
                    "{} (process {}) writes {}",
                    life.row.name,
                    life.row.pid,
                    self.place.short(&writes(&life.row.scope))
                )
            })
            .collect();
        Claim { name: "two_children_with_disjoint_loans", held, evidence: each.join("; ") }
    }

    /// What was lent its lender could not write.
    fn lender(&self) -> Claim {
        let refused = results(self.root())
            .into_iter()
            .find(|call| call.tool == "Write" && ends_with(&call.args, FORBIDDEN[0]));
        let there = self.place.path(FORBIDDEN[0]).exists();
        let held = !there && refused.as_ref().is_some_and(|call| call.is_error);
        let evidence =
            refused.map_or_else(|| "it never tried".to_owned(), |call| self.place.short(call.summary));
        Claim { name: "the_lender_cannot_write_what_is_lent", held, evidence }
    }

    /// What was not lent the borrower could not write: by the kernel where it holds commands, else by the file tools.
    fn escape(&self) -> Claim {
        let name = "an_escape_was_stopped";
        let tried = self.logs.named("length").and_then(|(_, entries)| {
            results(entries).into_iter().find(|call| is_escape(&call.tool, &call.args))
        });
        let Some(call) = tried else {
            return Claim { name, held: false, evidence: "it never tried".to_owned() };
        };
        let original =
            FILES.iter().find(|(file, _)| *file == TARGET).map(|(_, text)| sha256(text.as_bytes().to_vec()));
        let intact = original.is_some()
            && self.witness.target_after == original
            && self.place.hash(TARGET).is_ok_and(|now| now == original)
            && !self.place.path(FORBIDDEN[1]).exists();
        let errno = errno(call.said);
        let held = if self.place.tier.holds() {
            intact && errno.is_some() && exit_of(call.summary).is_some_and(|code| code != 0)
        } else {
            intact && call.is_error
        };
        let evidence = match errno {
            Some(errno) => format!("{errno} from the kernel, {TARGET} is what it was"),
            None => format!(
                "{}; {TARGET} is {}",
                self.place.short(call.summary),
                if intact { "what it was" } else { "changed" }
            ),
        };
        Claim { name, held, evidence }
    }

    /// A process that held a lease got signal 9: no word of an end in its log, and its parent saw it crash.
    fn killed(&self) -> Claim {
        let name = "one_pod_was_killed";
        let Some(killed) = &self.witness.killed else {
            return Claim { name, held: false, evidence: "nobody was killed".to_owned() };
        };
        let first_life = lives(self.logs.of(killed.session)).into_iter().next().unwrap_or_default();
        let ended =
            first_life.iter().find(|entry| matches!(entry.kind, Kind::RunCompleted(_) | Kind::RunErrored(_)));
        let by = matches!(first_life.first().map(|entry| &entry.kind), Some(Kind::Opened(opened)) if opened.pid == killed.pid);
        let seen = self.root().iter().find_map(|entry| match &entry.kind {
            Kind::ChildEnd(end) if end.session == killed.session => Some(end),
            _ => None,
        });
        let crashed = seen
            .is_some_and(|end| end.outcome == ChildOutcome::Crashed && end.exit == Some(EXIT_OF_SIGNAL_9));
        let commands = !self.place.tier.holds() || !killed.processes.is_empty();
        let held = by && ended.is_none() && crashed && commands;
        let evidence = format!(
            "process {} of {} got signal 9 in the middle of its run; its parent saw: {}",
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
        Claim { name, held, evidence }
    }

    /// What it held came back, and nothing of it runs on.
    fn back(&self) -> Claim {
        let name = "what_it_held_came_back";
        let Some(killed) = &self.witness.killed else {
            return Claim { name, held: false, evidence: "nobody was killed".to_owned() };
        };
        let left: Vec<u32> = killed
            .processes
            .iter()
            .chain([&killed.pid])
            .copied()
            .filter(|pid| kernel::exists(*pid))
            .collect();
        let held = killed.gone_ms <= SCOPE_BACK_MS && left.is_empty();
        let command = match killed.processes.len() {
            0 => "no process of its command was there".to_owned(),
            1 => "its command's process is gone too".to_owned(),
            many => format!("its command's {many} processes are gone too"),
        };
        let evidence = match left.as_slice() {
            [] => format!("after {} ms; {command}", killed.gone_ms),
            some => format!("still there: {some:?}"),
        };
        Claim { name, held, evidence }
    }

    /// Another process went on with the same session and finished, and nothing was done twice.
    fn resumed(&self) -> Claim {
        let name = "it_was_resumed_and_finished";
        let Some(killed) = &self.witness.killed else {
            return Claim { name, held: false, evidence: "nobody was killed".to_owned() };
        };
        let entries = self.logs.of(killed.session);
        let later: Vec<Vec<&Entry>> = lives(entries).into_iter().skip(1).collect();
        let pid = later.first().and_then(|life| match &life.first()?.kind {
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
        let edits = results(entries)
            .iter()
            .filter(|call| call.tool == "Edit" && call.outcome == Outcome::Done)
            .count();
        let seen = self
            .witness
            .lives
            .iter()
            .any(|life| life.row.session == killed.session && Some(life.row.pid) == pid);
        let held = pid.is_some_and(|pid| pid != killed.pid) && seen && finished > 0 && edits == 1;
        let evidence = format!(
            "process {} went on with {}; {finished} runs finished, {edits} edit was made",
            pid.map_or_else(|| "nobody".to_owned(), |pid| pid.to_string()),
            id(killed.session),
        );
        Claim { name, held, evidence }
    }

    /// The first pod could write again where the loan had been.
    fn returned(&self) -> Claim {
        let wrote = results(self.root()).into_iter().find(|call| {
            call.args["command"].as_str().is_some_and(|line| line.contains(AFTERWARDS))
                || (call.tool == "Write" && ends_with(&call.args, AFTERWARDS))
        });
        let there = self.place.path(AFTERWARDS).is_file();
        let held = there && wrote.is_some_and(|call| call.outcome == Outcome::Done && !call.is_error);
        let evidence = format!(
            "{AFTERWARDS} was {}written by the first pod after its children had ended",
            if there { "" } else { "not " }
        );
        Claim { name: "the_loans_came_back", held, evidence }
    }

    /// What the first pod was told that its children spent is what their own logs say.
    fn costs(&self) -> Claim {
        let below = State::replay(self.root()).facts.children_spent.tokens;
        let children = self.logs.sessions.iter().filter(|(session, _)| *session != self.witness.root);
        // What a request had reserved that the killed pod did not live to see ended counts as spent.
        let each: u64 = children.map(|(_, entries)| State::replay(entries).own_spent().tokens).sum();
        let held = below == each && each > 0;
        Claim {
            name: "costs_add_up",
            held,
            evidence: format!("children spent {each} tokens by their logs, {below} by their parent's"),
        }
    }

    /// No pod, no process, no socket.
    fn nothing_left(&self) -> Result<Claim, Failure> {
        let look = Runtime::new(&self.home.paths).look()?;
        let pods = self.home.paths.runtime.join("pods");
        let dirs = fs::read_dir(&pods).map(Iterator::count).or_else(|e| match e.kind() {
            std::io::ErrorKind::NotFound => Ok(0),
            _ => Err(Failure::new(Exit::Storage, format!("cannot read {}", pods.display())).why(e)),
        })?;
        let alive: Vec<u32> =
            self.witness.lives.iter().map(|life| life.row.pid).filter(|pid| kernel::exists(*pid)).collect();
        let clean = self.witness.exit.is_some_and(|status| status.success());
        let held = look.live.is_empty() && dirs == 0 && alive.is_empty() && clean;
        let exit = self.witness.exit.map_or_else(|| "not at all".to_owned(), |status| status.to_string());
        let evidence = format!(
            "{} pods, {dirs} runtime directories and {} processes are left; the first pod ended with {exit}",
            look.live.len(),
            alive.len(),
        );
        Ok(Claim { name: "nothing_is_left", held, evidence })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use minke_policy::Tier;
    use minke_registry::{Paths, Surroundings};
    use minke_session::{FileStore, RealDisk};

    use super::*;

    #[test]
    fn nothing_is_claimed_without_evidence() {
        let dir = tempfile::tempdir().unwrap();
        let env = [("MINKE_HOME".into(), dir.path().join("home").into())].into();
        let paths = Paths::find(&Surroundings { env, uid: rustix::process::getuid().as_raw() }).unwrap();
        paths.create().unwrap();
        let store = Arc::new(FileStore::new(Arc::new(RealDisk), paths.sessions()));
        let home = Home { paths, store };
        for tier in [Tier::A, Tier::D] {
            let place = Place::lay(dir.path(), tier).unwrap();
            let root = SessionId(crate::around::ids().next_uuid());
            let witness = Witness { root, lives: Vec::new(), killed: None, target_after: None, exit: None };
            let logs = Logs { sessions: Vec::new() };
            let judge = Judge { witness: &witness, home: &home, place: &place, logs: &logs };
            for claim in judge.all(&[]).unwrap() {
                assert!(!claim.held, "{claim:?}");
            }
        }
    }
}
