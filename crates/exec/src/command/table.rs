//! The table of commands: running ones, and remembered background commands that have ended.
//!
//! A command is listed as running as long as its `CommandSlot` exists. The owner drops it when the command has ended or
//! was cancelled.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use minke_record::Scope;

use super::background::BackgroundCommand;
use super::types::CommandError;

/// The most background commands that run at once.
pub const MAX_BACKGROUND: usize = 16;
/// The number of ended background commands to remember, so that their last output can be read.
pub const MAX_REMEMBERED: usize = 32;
/// The most characters of an id or a command that an error repeats.
const LISTED_CHARS: usize = 40;

/// A command that runs or ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandInfo {
    pub id: String,
    /// The shell line, redacted.
    pub command: String,
    pub started_at: Instant,
    pub background: bool,
    /// The scope that its sandbox lets it write; it does not change while the command runs. `None` before the sandbox
    /// is compiled and for a command without one: it could then write anywhere.
    pub write_scope: Option<Scope>,
}

impl CommandInfo {
    /// Whether the command could write anywhere in this scope.
    pub fn could_write_in(&self, scope: &Scope) -> bool {
        self.write_scope
            .as_ref()
            .is_none_or(|writes| minke_policy::find_write_overlap(writes, scope).is_some())
    }
}

#[derive(Default)]
pub(super) struct CommandTable(Mutex<TableState>);

#[derive(Default)]
struct TableState {
    running: BTreeMap<String, CommandInfo>,
    background: BTreeMap<String, Arc<BackgroundCommand>>,
    /// Background commands that have ended, oldest first.
    ended: VecDeque<String>,
}

impl CommandTable {
    /// Adds a command, unless its id is in use or too many run in the background.
    pub(super) fn reserve_slot(
        self: &Arc<CommandTable>,
        row: CommandInfo,
    ) -> Result<CommandSlot, CommandError> {
        let mut rows = self.lock_state();
        if rows.running.contains_key(&row.id) || rows.background.contains_key(&row.id) {
            return Err(CommandError::DuplicateId { id: row.id });
        }
        let beside = rows.running.values().filter(|other| other.background).count();
        if row.background && beside >= MAX_BACKGROUND {
            return Err(CommandError::TooMany { most: MAX_BACKGROUND, running: rows.describe_background() });
        }
        let id = row.id.clone();
        rows.running.insert(id.clone(), row);
        Ok(CommandSlot { table: Arc::clone(self), id, keep_record: false })
    }

    /// Sets the scope that the command can write.
    pub(super) fn set_write_scope(&self, id: &str, writes: Option<Scope>) {
        if let Some(row) = self.lock_state().running.get_mut(id) {
            row.write_scope = writes;
        }
    }

    pub(super) fn add_background(&self, background: &Arc<BackgroundCommand>) {
        self.lock_state().background.insert(background.info.id.clone(), Arc::clone(background));
    }

    pub(super) fn find_background(&self, id: &str) -> Result<Arc<BackgroundCommand>, CommandError> {
        let rows = self.lock_state();
        rows.background.get(id).cloned().ok_or_else(|| {
            let running = rows.describe_background();
            let known = if running.is_empty() {
                "no command runs".to_owned()
            } else {
                format!("the running commands are {running}")
            };
            CommandError::UnknownId { id: minke_text::shorten_first_line(id, LISTED_CHARS), known }
        })
    }

    pub(super) fn background_commands(&self) -> Vec<Arc<BackgroundCommand>> {
        self.lock_state().background.values().cloned().collect()
    }

    /// Returns all running commands, oldest first.
    pub(super) fn running_commands(&self) -> Vec<CommandInfo> {
        let mut alive: Vec<CommandInfo> = self.lock_state().running.values().cloned().collect();
        alive.sort_by_key(|row| row.started_at);
        alive
    }

    fn lock_state(&self) -> MutexGuard<'_, TableState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TableState {
    /// Lists the running background commands in one line.
    fn describe_background(&self) -> String {
        let mut running: Vec<&CommandInfo> = self.running.values().filter(|row| row.background).collect();
        running.sort_by_key(|row| row.started_at);
        let words: Vec<String> = running
            .iter()
            .map(|row| format!("{}: {}", row.id, minke_text::shorten_first_line(&row.command, LISTED_CHARS)))
            .collect();
        words.join("; ")
    }
}

/// The listing of a running command; dropping it removes the command.
pub(super) struct CommandSlot {
    table: Arc<CommandTable>,
    id: String,
    keep_record: bool,
}

impl CommandSlot {
    /// Marks the command as ended and keeps it for later reads.
    pub(super) fn release_and_keep(mut self) {
        self.keep_record = true;
    }
}

impl Drop for CommandSlot {
    fn drop(&mut self) {
        let mut rows = self.table.lock_state();
        rows.running.remove(&self.id);
        if self.keep_record {
            rows.ended.push_back(self.id.clone());
        } else {
            rows.background.remove(&self.id);
        }
        if rows.ended.len() > MAX_REMEMBERED
            && let Some(oldest) = rows.ended.pop_front()
        {
            rows.background.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_could_write_where_its_sandbox_lets_it_and_anywhere_without_one() {
        let row = |write_scope| CommandInfo {
            id: "a-1".to_owned(),
            command: "true".to_owned(),
            started_at: Instant::now(),
            background: true,
            write_scope,
        };
        let loan = Scope::writable("/p/lib");
        assert!(row(None).could_write_in(&loan), "its sandbox is not known");
        assert!(row(Some(Scope::writable("/p"))).could_write_in(&loan));
        assert!(row(Some(Scope::writable("/p/lib/deep"))).could_write_in(&loan));
        assert!(!row(Some(Scope::writable("/p/rest"))).could_write_in(&loan));
        assert!(!row(Some(Scope::default())).could_write_in(&loan), "read-only");
        let narrowed = minke_policy::subtract_loan(&Scope::writable("/p"), &loan);
        assert!(!row(Some(narrowed)).could_write_in(&loan), "the loan was made before the command started");
    }
}
