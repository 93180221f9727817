//! Comparing an entry of the log with the one that came instead: equal, or the first field that is not.
//!
//! Times are not compared: a replay has none of its own. Ids that a mind makes (of runs, queued inputs and questions)
//! are others each time; they are paired where they are made, and must stay paired wherever they are named.
//! Invariant: everything else must be the same (`one_changed_field_is_found`).

use std::collections::HashMap;

use minke_record::{Draft, Entry, Kind};
use serde_json::Value;
use uuid::Uuid;

/// Fields that hold times.
const TIMES: &[&str] = &["ts", "until", "expires", "created", "last_ts", "resumes", "waits_until"];
/// Characters of a value that a difference shows.
const SHOWN_CHARS: usize = 240;
/// Of these, characters before the first one that differs.
const BEFORE_CHARS: usize = 40;

/// How long an id is when it is written.
const ID_CHARS: usize = 36;

/// An id of the log and the one here that stands for it.
type Pair = (Uuid, Uuid);

/// Ids of the log and those that stand for them here.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    here: HashMap<Uuid, Uuid>,
    log: HashMap<Uuid, Uuid>,
    /// Words of the log that cannot be made again, and those that stand for them here.
    words: HashMap<String, String>,
}

impl Pairs {
    /// The id here that stands for one of the log; an id that no mind made stands for itself.
    pub(crate) fn here(&self, log: Uuid) -> Uuid {
        self.here.get(&log).copied().unwrap_or(log)
    }

    pub(crate) fn learn(&mut self, new: New) {
        for (log, here) in new.ids {
            self.here.insert(log, here);
            self.log.insert(here, log);
        }
        self.words.extend(new.words);
    }
}

/// What one comparison has learnt.
#[derive(Debug, Default)]
pub(crate) struct New {
    ids: Vec<Pair>,
    words: Vec<(String, String)>,
}

/// Where two entries part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mismatch {
    pub(crate) field: String,
    pub(crate) log: String,
    pub(crate) here: String,
}

/// One comparison of a step; what it learns holds if the whole step is the same.
pub(crate) struct Comparison<'a> {
    pairs: &'a Pairs,
    pub(crate) new: New,
    /// A field that is not compared, because what it is made from is not in the log.
    unknowable: Option<&'a str>,
}

impl<'a> Comparison<'a> {
    pub(crate) fn new(pairs: &'a Pairs, unknowable: Option<&'a str>) -> Comparison<'a> {
        Comparison { pairs, new: New::default(), unknowable }
    }

    pub(crate) fn entry(&mut self, log: &Entry, here: &Draft) -> Result<(), Mismatch> {
        if log.kind.name() != here.kind.name() {
            return Err(Mismatch {
                field: "kind".to_owned(),
                log: log.kind.name().to_owned(),
                here: here.kind.name().to_owned(),
            });
        }
        match (log.run, here.run) {
            (Some(theirs), Some(ours)) => {
                self.id("run", theirs.0, ours.0, matches!(log.kind, Kind::Invoke(_)))?;
            }
            (None, None) => {}
            (theirs, ours) => {
                let show = |run: Option<minke_record::RunId>| {
                    run.map_or_else(|| "none".to_owned(), |run| run.to_string())
                };
                return Err(Mismatch { field: "run".to_owned(), log: show(theirs), here: show(ours) });
            }
        }
        match (&log.kind, &here.kind) {
            (Kind::QueuedInput(theirs), Kind::QueuedInput(ours)) => {
                self.id("id", theirs.id.0, ours.id.0, true)?;
            }
            (Kind::Ask(theirs), Kind::Ask(ours)) => self.id("id", theirs.id.0, ours.id.0, true)?,
            (Kind::Child(theirs), Kind::Child(ours)) => {
                self.id("session", theirs.session.0, ours.session.0, true)?;
            }
            _ => {}
        }
        let plain = |kind: &Kind| serde_json::to_value(kind).expect("an entry is plain data");
        self.value(&mut Vec::new(), &plain(&log.kind), &plain(&here.kind))
    }

    /// Two ids that must stand for each other. `made`: this is where a mind makes one.
    fn id(&mut self, field: &str, log: Uuid, here: Uuid, made: bool) -> Result<(), Mismatch> {
        if self.paired(log, here) {
            return Ok(());
        }
        let known = |id: Uuid, side: &HashMap<Uuid, Uuid>| side.contains_key(&id);
        let fresh = !known(log, &self.pairs.here)
            && !known(here, &self.pairs.log)
            && !self.new.ids.iter().any(|(a, b)| *a == log || *b == here);
        if made && fresh {
            self.new.ids.push((log, here));
            return Ok(());
        }
        Err(Mismatch { field: field.to_owned(), log: log.to_string(), here: here.to_string() })
    }

    fn paired(&self, log: Uuid, here: Uuid) -> bool {
        let new = || self.new.ids.contains(&(log, here));
        self.pairs.here.get(&log).map_or_else(|| log == here || new(), |paired| *paired == here)
    }

    /// A text of the log with the ids that stand for those in it.
    fn translated(&self, text: &str) -> String {
        let mut made = String::new();
        let mut rest = text;
        while let Some(next) = rest.chars().next() {
            let id = rest.get(..ID_CHARS).and_then(|part| Uuid::parse_str(part).ok());
            let known = id.and_then(|id| {
                let new = self.new.ids.iter().find(|(log, _)| *log == id).map(|(_, here)| *here);
                self.pairs.here.get(&id).copied().or(new)
            });
            let taken = match known {
                Some(here) => {
                    made.push_str(&here.to_string());
                    ID_CHARS
                }
                None => {
                    made.push(next);
                    next.len_utf8()
                }
            };
            rest = rest.get(taken..).unwrap_or_default();
        }
        made
    }

    fn value(&mut self, path: &mut Vec<String>, log: &Value, here: &Value) -> Result<(), Mismatch> {
        match (log, here) {
            (Value::Object(theirs), Value::Object(ours)) => {
                // Facts about other pods are kept by their sessions.
                let named =
                    |key: &str| if key.len() == ID_CHARS { self.translated(key) } else { key.to_owned() };
                let theirs: Vec<(String, &Value)> =
                    theirs.iter().map(|(key, value)| (named(key), value)).collect();
                let get = |key: &str| theirs.iter().find(|(name, _)| name == key).map(|(_, value)| *value);
                let more = ours.keys().filter(|key| get(key.as_str()).is_none()).cloned();
                let keys: Vec<String> = theirs.iter().map(|(key, _)| key.clone()).chain(more).collect();
                for key in &keys {
                    if TIMES.contains(&key.as_str()) {
                        continue;
                    }
                    path.push(key.clone());
                    match (get(key), ours.get(key)) {
                        (Some(a), Some(b)) => self.value(path, a, b)?,
                        (a, b) => return Err(self.mismatch(path, a, b)),
                    }
                    path.pop();
                }
                Ok(())
            }
            (Value::Array(theirs), Value::Array(ours)) => {
                for at in 0..theirs.len().max(ours.len()) {
                    path.push(at.to_string());
                    match (theirs.get(at), ours.get(at)) {
                        (Some(a), Some(b)) => self.value(path, a, b)?,
                        (a, b) => return Err(self.mismatch(path, a, b)),
                    }
                    path.pop();
                }
                Ok(())
            }
            (Value::String(theirs), Value::String(ours)) if theirs != ours => {
                let ids = (Uuid::parse_str(theirs), Uuid::parse_str(ours));
                let paired = matches!(ids, (Ok(a), Ok(b)) if self.paired(a, b));
                if paired || self.pairs.words.get(theirs) == Some(ours) || self.translated(theirs) == *ours {
                    return Ok(());
                }
                if self.unknowable.is_some_and(|field| path.join(".") == field) {
                    self.new.words.push((theirs.clone(), ours.clone()));
                    return Ok(());
                }
                Err(self.mismatch(path, Some(log), Some(here)))
            }
            _ if log == here => Ok(()),
            _ => Err(self.mismatch(path, Some(log), Some(here))),
        }
    }

    fn mismatch(&self, path: &[String], log: Option<&Value>, here: Option<&Value>) -> Mismatch {
        let text = |value: Option<&Value>| match value {
            None => "nothing".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        let (log, here) = excerpts(&text(log), &text(here));
        Mismatch { field: path.join("."), log, here }
    }
}

/// Both texts around the first character that differs.
fn excerpts(log: &str, here: &str) -> (String, String) {
    let same = log.chars().zip(here.chars()).take_while(|(a, b)| a == b).count();
    let from = same.saturating_sub(BEFORE_CHARS);
    (excerpt(log, from), excerpt(here, from))
}

fn excerpt(text: &str, from: usize) -> String {
    let mut shown = String::new();
    if from > 0 {
        shown.push('…');
    }
    let mut rest = text.chars().skip(from);
    shown.extend(rest.by_ref().take(SHOWN_CHARS).map(|c| if c.is_control() { ' ' } else { c }));
    if rest.next().is_some() {
        shown.push('…');
    }
    shown
}

/// A kind in one line, for a difference that shows whole entries.
pub(crate) fn shown(kind: &Kind) -> String {
    let text = serde_json::to_string(kind).expect("an entry is plain data");
    excerpt(&text, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use minke_record::{
        Actor, Chain, Durability, InputSegment, Invoke, QueueId, QueueMode, QueuedInput, RunId, Trigger,
    };

    fn queued(id: u128, text: &str) -> Kind {
        QueuedInput {
            id: QueueId(Uuid::from_u128(id)),
            segments: vec![InputSegment::text(text)],
            op_id: None,
            from: Actor::person("here"),
            mode: QueueMode::Queue,
            attached: Vec::new(),
        }
        .into()
    }

    fn entry(kind: Kind, run: Option<u128>) -> Entry {
        let run = run.map(|run| RunId(Uuid::from_u128(run)));
        Entry { seq: 1, ts: 7, run, more: false, kind, h: Chain::ZERO }
    }

    fn draft(kind: Kind, run: Option<u128>) -> Draft {
        let run = run.map(|run| RunId(Uuid::from_u128(run)));
        Draft { seq: 1, ts: 8, run, kind, durability: Durability::Lazy }
    }

    fn compare(pairs: &mut Pairs, log: &Entry, here: &Draft) -> Result<(), String> {
        let mut comparison = Comparison::new(pairs, None);
        let result = comparison.entry(log, here).map_err(|mismatch| mismatch.field);
        let new = comparison.new;
        if result.is_ok() {
            pairs.learn(new);
        }
        result
    }

    #[test]
    fn one_changed_field_is_found() {
        let mut pairs = Pairs::default();
        let same = compare(&mut pairs, &entry(queued(1, "a"), None), &draft(queued(2, "a"), None));
        assert_eq!(same, Ok(()));
        let other = compare(&mut pairs, &entry(queued(1, "a"), None), &draft(queued(2, "b"), None));
        assert_eq!(other, Err("segments.0.content".to_owned()));
        // The same id of the log cannot stand for two.
        let two = compare(&mut pairs, &entry(queued(1, "a"), None), &draft(queued(3, "a"), None));
        assert_eq!(two, Err("id".to_owned()));
    }

    #[test]
    fn a_run_is_paired_where_it_opens_and_nowhere_else() {
        let mut pairs = Pairs::default();
        let invoke: Kind =
            Invoke { trigger: Trigger::Notify, by: Actor::minke(), attempt: 1, continues: None }.into();
        let alert: Kind = minke_record::TurnEnd {
            turn: 0,
            result: minke_record::TurnResult::Finished,
            stop_reason: "end_turn".into(),
        }
        .into();
        let early = compare(&mut pairs, &entry(alert.clone(), Some(1)), &draft(alert.clone(), Some(2)));
        assert_eq!(early, Err("run".to_owned()));
        assert_eq!(compare(&mut pairs, &entry(invoke.clone(), Some(1)), &draft(invoke, Some(2))), Ok(()));
        assert_eq!(
            compare(&mut pairs, &entry(alert.clone(), Some(1)), &draft(alert.clone(), Some(2))),
            Ok(())
        );
        let wrong = compare(&mut pairs, &entry(alert.clone(), Some(1)), &draft(alert, Some(3)));
        assert_eq!(wrong, Err("run".to_owned()));
    }

    #[test]
    fn a_difference_in_a_long_text_is_shown_where_it_is() {
        let a = format!("{}x{}", "a".repeat(5_000), "b".repeat(5_000));
        let b = format!("{}y{}", "a".repeat(5_000), "b".repeat(5_000));
        let (log, here) = excerpts(&a, &b);
        assert!(log.contains("axb") && here.contains("ayb"), "{log} {here}");
        assert!(log.chars().count() <= SHOWN_CHARS + 2);
    }
}
