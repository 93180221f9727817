//! Which commands there are: those that run, and the background commands that have ended and are remembered.
//!
//! A row of the table lives as long as its `Entered`; who drops that has seen the command end, or given it up.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use minke_record::Scope;

use super::background::Background;
use super::order::CommandError;

/// The most commands that run in the background at once.
pub const BACKGROUND_MOST: usize = 16;
/// So many that have ended are remembered, so that their last words can be read.
pub const REMEMBERED_MOST: usize = 32;
/// How much of an id or a command an error repeats.
const LISTED_CHARS: usize = 40;

/// A command that runs, or ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub id: String,
    /// The shell line, covered.
    pub command: String,
    pub since: Instant,
    pub background: bool,
    /// What its fence lets it write; it stays so as long as the command runs. None while that is not decided yet, and where
    /// no fence holds it: then it could write anywhere.
    pub writes: Option<Scope>,
}

impl Row {
    /// Whether the command could write anywhere in this scope.
    pub fn could_write(&self, scope: &Scope) -> bool {
        self.writes.as_ref().is_none_or(|writes| minke_policy::overlaps_write(writes, scope).is_some())
    }
}

#[derive(Default)]
pub(super) struct Table(Mutex<Rows>);

#[derive(Default)]
struct Rows {
    alive: BTreeMap<String, Row>,
    background: BTreeMap<String, Arc<Background>>,
    /// Background commands that have ended, the oldest first.
    ended: VecDeque<String>,
}

impl Table {
    /// Takes a place in the table, if there is one.
    pub(super) fn enter(self: &Arc<Table>, row: Row) -> Result<Entered, CommandError> {
        let mut rows = self.rows();
        if rows.alive.contains_key(&row.id) || rows.background.contains_key(&row.id) {
            return Err(CommandError::Taken { id: row.id });
        }
        let beside = rows.alive.values().filter(|other| other.background).count();
        if row.background && beside >= BACKGROUND_MOST {
            return Err(CommandError::TooMany { most: BACKGROUND_MOST, running: rows.in_background() });
        }
        let id = row.id.clone();
        rows.alive.insert(id.clone(), row);
        Ok(Entered { table: Arc::clone(self), id, remember: false })
    }

    /// The fence of a command is decided.
    pub(super) fn held_to(&self, id: &str, writes: Option<Scope>) {
        if let Some(row) = self.rows().alive.get_mut(id) {
            row.writes = writes;
        }
    }

    pub(super) fn add(&self, background: &Arc<Background>) {
        self.rows().background.insert(background.row.id.clone(), Arc::clone(background));
    }

    pub(super) fn find(&self, id: &str) -> Result<Arc<Background>, CommandError> {
        let rows = self.rows();
        rows.background.get(id).cloned().ok_or_else(|| {
            let running = rows.in_background();
            let known = if running.is_empty() {
                "none runs now".to_owned()
            } else {
                format!("those that run are {running}")
            };
            CommandError::Unknown { id: beginning(id), known }
        })
    }

    pub(super) fn background(&self) -> Vec<Arc<Background>> {
        self.rows().background.values().cloned().collect()
    }

    /// Every command that runs, the oldest first.
    pub(super) fn alive(&self) -> Vec<Row> {
        let mut alive: Vec<Row> = self.rows().alive.values().cloned().collect();
        alive.sort_by_key(|row| row.since);
        alive
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rows {
    /// Those that run in the background, in words.
    fn in_background(&self) -> String {
        let mut running: Vec<&Row> = self.alive.values().filter(|row| row.background).collect();
        running.sort_by_key(|row| row.since);
        let words: Vec<String> =
            running.iter().map(|row| format!("{}: {}", row.id, beginning(&row.command))).collect();
        words.join("; ")
    }
}

/// A place in the table, given back when it is dropped.
pub(super) struct Entered {
    table: Arc<Table>,
    id: String,
    remember: bool,
}

impl Entered {
    /// Gives the place back and keeps the command for those who look.
    pub(super) fn remember(mut self) {
        self.remember = true;
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut rows = self.table.rows();
        rows.alive.remove(&self.id);
        if self.remember {
            rows.ended.push_back(self.id.clone());
        } else {
            rows.background.remove(&self.id);
        }
        if rows.ended.len() > REMEMBERED_MOST
            && let Some(oldest) = rows.ended.pop_front()
        {
            rows.background.remove(&oldest);
        }
    }
}

/// The first line of a text, or what of it fits into a list.
fn beginning(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let mut shown: String = line.chars().take(LISTED_CHARS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_could_write_where_its_fence_lets_it_and_anywhere_without_one() {
        let row = |writes| Row {
            id: "a-1".to_owned(),
            command: "true".to_owned(),
            since: Instant::now(),
            background: true,
            writes,
        };
        let loan = Scope::write("/p/lib");
        assert!(row(None).could_write(&loan), "nothing is known of it");
        assert!(row(Some(Scope::write("/p"))).could_write(&loan));
        assert!(row(Some(Scope::write("/p/lib/deep"))).could_write(&loan));
        assert!(!row(Some(Scope::write("/p/rest"))).could_write(&loan));
        assert!(!row(Some(Scope::default())).could_write(&loan), "read-only");
        let narrowed = minke_policy::subtract(&Scope::write("/p"), &loan);
        assert!(!row(Some(narrowed)).could_write(&loan), "it was lent out when the command began");
    }
}
