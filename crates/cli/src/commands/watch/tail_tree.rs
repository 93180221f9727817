//! `minke tail --tree`: entries of a pod and its descendants, each line prefixed with the pod's name.
//!
//! Reads the logs as they grow. This wakes no pod and also covers sessions whose pod sleeps in between.
//! Prints whole entries only, because streamed text of several models would interleave.
//! Invariant: each entry is printed once (`a_tree_is_followed_and_every_line_has_a_name`).

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use minke_client::UserHome;
use minke_record::{Entry, Kind, SessionId};
use minke_registry::RuntimeDir;
use serde_json::json;

use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;
use crate::render::pod_tree::{PodTreeView, StateCache, TreeExtent};
use crate::render::transcript::EntryLines;

/// How often the logs are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Polls between two checks of which pods are live.
const POLLS_PER_LIVENESS_CHECK: u32 = 5;
/// How many sessions are followed at once.
const MAX_FOLLOWED: usize = 1_024;
/// Size of one read of a log.
const PAGE_ENTRIES: usize = 1_000;
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// A log that is followed.
struct FollowedLog {
    session: SessionId,
    name: String,
    next_seq: u64,
    lines: EntryLines,
}

struct TreeTail<'a> {
    home: &'a UserHome,
    output: &'a CliOutput,
    logs: Vec<FollowedLog>,
    followed_sessions: BTreeSet<SessionId>,
    /// Children named by entries and not followed yet.
    new_children: VecDeque<(SessionId, String)>,
}

pub(crate) async fn run(
    home: &UserHome,
    root: SessionId,
    last: u64,
    follow: bool,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let mut tail = TreeTail {
        home,
        output,
        logs: Vec::new(),
        followed_sessions: BTreeSet::new(),
        new_children: VecDeque::new(),
    };
    tail.add_existing(root, last)?;
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    let mut polls = 0_u32;
    loop {
        // A live pod may write until it ends, so its log is read once more after this check.
        let over = polls.is_multiple_of(POLLS_PER_LIVENESS_CHECK) && !tail.is_any_live()?;
        tail.print_new_entries()?;
        if over || !follow {
            return Ok(ExitKind::Success);
        }
        polls = polls.wrapping_add(1);
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            signal = &mut interrupted => {
                signal.map_err(|e| CliError::new(ExitKind::Failed, "could not listen for signals").with_reason(e))?;
                return Ok(ExitKind::Signal);
            }
        }
    }
}

impl TreeTail<'_> {
    /// Adds the pods that exist, each from its last entries.
    fn add_existing(&mut self, root: SessionId, last: u64) -> Result<(), CliError> {
        let family = PodTreeView::load(self.home, TreeExtent::WithEndedPods, &mut StateCache::default())?;
        let mut existing: Vec<(SessionId, String)> =
            family.subtree(root).iter().map(|member| (member.session, member.name.clone())).collect();
        if existing.is_empty() {
            // No pod is live, so the tree comes from the log itself.
            let known = StateCache::default().pod_facts(self.home, root);
            existing.push((root, known.as_ref().and_then(|known| known.name.clone()).unwrap_or_default()));
            let children = known.map(|known| known.children).unwrap_or_default();
            existing.extend(children.into_iter().map(|child| (child.session, child.name.to_string())));
        }
        for (session, name) in existing {
            let head = self.home.store.open_reader(session)?.head_position()?;
            let next = head.map_or(0, |head| (head.seq + 1).saturating_sub(last));
            self.add_session(session, name, next);
        }
        Ok(())
    }

    fn add_session(&mut self, session: SessionId, name: String, next_seq: u64) {
        if self.logs.len() < MAX_FOLLOWED && self.followed_sessions.insert(session) {
            self.logs.push(FollowedLog { session, name, next_seq, lines: EntryLines::default() });
        }
    }

    fn is_any_live(&self) -> Result<bool, CliError> {
        let look = RuntimeDir::new(&self.home.paths).take_snapshot()?;
        Ok(look.live.iter().any(|live| self.followed_sessions.contains(&live.row.session)))
    }

    /// Prints new entries of every log, including new children.
    fn print_new_entries(&mut self) -> Result<(), CliError> {
        let mut at = 0;
        while at < self.logs.len() {
            self.print_log_entries(at)?;
            // A child's log starts with its task.
            while let Some((session, name)) = self.new_children.pop_front() {
                self.add_session(session, name, 0);
            }
            at += 1;
        }
        Ok(())
    }

    fn print_log_entries(&mut self, at: usize) -> Result<(), CliError> {
        let width = self.logs.iter().map(|followed| followed.name.len()).max().unwrap_or(0);
        let Some(voice) = self.logs.get_mut(at) else { return Ok(()) };
        // The log names a child before its session exists.
        let Ok(reader) = self.home.store.open_reader(voice.session) else { return Ok(()) };
        let Some(head) = reader.head_position()? else { return Ok(()) };
        while voice.next_seq <= head.seq {
            let page = reader.read_page(voice.next_seq, PAGE_ENTRIES, PAGE_BYTES)?;
            if page.entries.is_empty() {
                return Ok(());
            }
            for sealed in &page.entries {
                voice.next_seq = sealed.entry.seq + 1;
                if let Kind::Child(child) = &sealed.entry.kind {
                    self.new_children.push_back((child.session, child.name.to_string()));
                }
                print_entry(self.output, voice, &sealed.entry, width)?;
            }
        }
        Ok(())
    }
}

fn print_entry(
    output: &CliOutput,
    followed: &mut FollowedLog,
    entry: &Entry,
    width: usize,
) -> Result<(), CliError> {
    if output.json {
        let session = format!("s_{}", followed.session);
        return output.print_json(&json!({ "pod": followed.name, "session": session, "entry": entry }));
    }
    followed
        .lines
        .entry_lines(entry)
        .iter()
        .try_for_each(|line| output.print_line(&format!("{:<width$} │ {line}", followed.name)))
}
