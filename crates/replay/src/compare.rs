//! Compares a logged entry with the replayed one: equal, or the first different field.
//!
//! Times are not compared, because a replay has no clock. Ids that the pod creates (of runs, queued inputs
//! and asks) differ each time; they are paired where they are created and must stay paired wherever they
//! appear.
//! Invariant: everything else must be equal (`one_changed_field_is_found`).

use std::collections::HashMap;

use minke_record::{Draft, Entry, Kind};
use serde_json::Value;
use uuid::Uuid;

use crate::compat::rename_old_fields;

/// Fields that contain times.
const TIME_FIELDS: &[&str] = &["ts", "until", "expires", "created", "last_ts", "resumes", "waits_until"];
/// The maximum length of a value in a difference.
const MAX_SHOWN_CHARS: usize = 240;
/// The part of it before the first different character.
const LEADING_CHARS: usize = 40;

/// The length of a formatted id.
const ID_CHARS: usize = 36;

/// An id in the log and its replayed counterpart.
type IdPair = (Uuid, Uuid);

/// The pairs of logged and replayed ids.
#[derive(Debug, Default)]
pub(crate) struct IdMap {
    local_by_log: HashMap<Uuid, Uuid>,
    log_by_local: HashMap<Uuid, Uuid>,
    /// Texts of the log that cannot be reproduced, with their replayed counterparts.
    local_texts: HashMap<String, String>,
}

impl IdMap {
    /// The counterpart of a logged id; an id that was not created by the pod has itself as counterpart.
    pub(crate) fn local_id(&self, log: Uuid) -> Uuid {
        self.local_by_log.get(&log).copied().unwrap_or(log)
    }

    pub(crate) fn add_learned(&mut self, new: LearnedPairs) {
        for (log, replayed) in new.ids {
            self.local_by_log.insert(log, replayed);
            self.log_by_local.insert(replayed, log);
        }
        self.local_texts.extend(new.texts);
    }
}

/// The pairs found by one comparison.
#[derive(Debug, Default)]
pub(crate) struct LearnedPairs {
    ids: Vec<IdPair>,
    texts: Vec<(String, String)>,
}

/// The first different field of two entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldMismatch {
    pub(crate) field: String,
    pub(crate) log: String,
    pub(crate) here: String,
}

/// The comparison of one step; its pairs are accepted if the whole step is equal.
pub(crate) struct StepComparison<'a> {
    pairs: &'a IdMap,
    pub(crate) learned: LearnedPairs,
    /// A field that is not compared, because its source is not in the log.
    unknowable: Option<&'a str>,
}

impl<'a> StepComparison<'a> {
    pub(crate) fn new(id_map: &'a IdMap, unknowable: Option<&'a str>) -> StepComparison<'a> {
        StepComparison { pairs: id_map, learned: LearnedPairs::default(), unknowable }
    }

    pub(crate) fn compare_entry(&mut self, log: &Entry, replayed: &Draft) -> Result<(), FieldMismatch> {
        if log.kind.name() != replayed.kind.name() {
            return Err(FieldMismatch {
                field: "kind".to_owned(),
                log: log.kind.name().to_owned(),
                here: replayed.kind.name().to_owned(),
            });
        }
        match (log.run, replayed.run) {
            (Some(theirs), Some(ours)) => {
                self.compare_id("run", theirs.0, ours.0, matches!(log.kind, Kind::Invoke(_)))?;
            }
            (None, None) => {}
            (theirs, ours) => {
                let show = |run: Option<minke_record::RunId>| {
                    run.map_or_else(|| "none".to_owned(), |run| run.to_string())
                };
                return Err(FieldMismatch { field: "run".to_owned(), log: show(theirs), here: show(ours) });
            }
        }
        match (&log.kind, &replayed.kind) {
            (Kind::QueuedInput(theirs), Kind::QueuedInput(ours)) => {
                self.compare_id("id", theirs.id.0, ours.id.0, true)?;
            }
            (Kind::Ask(theirs), Kind::Ask(ours)) => self.compare_id("id", theirs.id.0, ours.id.0, true)?,
            (Kind::Child(theirs), Kind::Child(ours)) => {
                self.compare_id("session", theirs.session.0, ours.session.0, true)?;
            }
            _ => {}
        }
        let plain = |kind: &Kind| serde_json::to_value(kind).expect("an entry is plain data");
        let mut logged = plain(&log.kind);
        rename_old_fields(&mut logged);
        self.compare_value(&mut Vec::new(), &logged, &plain(&replayed.kind))
    }

    /// Pairs two ids. `made`: the pod creates the id in this field.
    fn compare_id(&mut self, field: &str, log: Uuid, here: Uuid, made: bool) -> Result<(), FieldMismatch> {
        if self.is_paired(log, here) {
            return Ok(());
        }
        let known = |id: Uuid, side: &HashMap<Uuid, Uuid>| side.contains_key(&id);
        let fresh = !known(log, &self.pairs.local_by_log)
            && !known(here, &self.pairs.log_by_local)
            && !self.learned.ids.iter().any(|(a, b)| *a == log || *b == here);
        if made && fresh {
            self.learned.ids.push((log, here));
            return Ok(());
        }
        Err(FieldMismatch { field: field.to_owned(), log: log.to_string(), here: here.to_string() })
    }

    fn is_paired(&self, log: Uuid, replayed: Uuid) -> bool {
        let new = || self.learned.ids.contains(&(log, replayed));
        self.pairs
            .local_by_log
            .get(&log)
            .map_or_else(|| log == replayed || new(), |paired| *paired == replayed)
    }

    /// A text of the log with all ids replaced by their counterparts.
    fn translate_text(&self, text: &str) -> String {
        let mut made = String::new();
        let mut rest = text;
        while let Some(next) = rest.chars().next() {
            let id = rest.get(..ID_CHARS).and_then(|part| Uuid::parse_str(part).ok());
            let known = id.and_then(|id| {
                let new = self.learned.ids.iter().find(|(log, _)| *log == id).map(|(_, replayed)| *replayed);
                self.pairs.local_by_log.get(&id).copied().or(new)
            });
            let snapshot = match known {
                Some(here) => {
                    made.push_str(&here.to_string());
                    ID_CHARS
                }
                None => {
                    made.push(next);
                    next.len_utf8()
                }
            };
            rest = rest.get(snapshot..).unwrap_or_default();
        }
        made
    }

    fn compare_value(
        &mut self,
        path: &mut Vec<String>,
        log: &Value,
        replayed: &Value,
    ) -> Result<(), FieldMismatch> {
        match (log, replayed) {
            (Value::Object(theirs), Value::Object(ours)) => {
                // Facts about other pods are keyed by session.
                let named =
                    |key: &str| if key.len() == ID_CHARS { self.translate_text(key) } else { key.to_owned() };
                let theirs: Vec<(String, &Value)> =
                    theirs.iter().map(|(key, value)| (named(key), value)).collect();
                let get = |key: &str| theirs.iter().find(|(name, _)| name == key).map(|(_, value)| *value);
                let more = ours.keys().filter(|key| get(key.as_str()).is_none()).cloned();
                let keys: Vec<String> = theirs.iter().map(|(key, _)| key.clone()).chain(more).collect();
                for key in &keys {
                    if TIME_FIELDS.contains(&key.as_str()) {
                        continue;
                    }
                    path.push(key.clone());
                    match (get(key), ours.get(key)) {
                        (Some(a), Some(b)) => self.compare_value(path, a, b)?,
                        (a, b) => return Err(self.new_mismatch(path, a, b)),
                    }
                    path.pop();
                }
                Ok(())
            }
            (Value::Array(theirs), Value::Array(ours)) => {
                for at in 0..theirs.len().max(ours.len()) {
                    path.push(at.to_string());
                    match (theirs.get(at), ours.get(at)) {
                        (Some(a), Some(b)) => self.compare_value(path, a, b)?,
                        (a, b) => return Err(self.new_mismatch(path, a, b)),
                    }
                    path.pop();
                }
                Ok(())
            }
            (Value::String(theirs), Value::String(ours)) if theirs != ours => {
                let ids = (Uuid::parse_str(theirs), Uuid::parse_str(ours));
                let paired = matches!(ids, (Ok(a), Ok(b)) if self.is_paired(a, b));
                if paired
                    || self.pairs.local_texts.get(theirs) == Some(ours)
                    || self.translate_text(theirs) == *ours
                {
                    return Ok(());
                }
                if self.unknowable.is_some_and(|field| path.join(".") == field) {
                    self.learned.texts.push((theirs.clone(), ours.clone()));
                    return Ok(());
                }
                Err(self.new_mismatch(path, Some(log), Some(replayed)))
            }
            _ if log == replayed => Ok(()),
            _ => Err(self.new_mismatch(path, Some(log), Some(replayed))),
        }
    }

    fn new_mismatch(&self, path: &[String], log: Option<&Value>, here: Option<&Value>) -> FieldMismatch {
        let text = |value: Option<&Value>| match value {
            None => "nothing".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        let (log, replayed) = excerpts(&text(log), &text(here));
        FieldMismatch { field: path.join("."), log, here: replayed }
    }
}

/// Excerpts of both texts around the first different character.
fn excerpts(log: &str, here: &str) -> (String, String) {
    let same = log.chars().zip(here.chars()).take_while(|(a, b)| a == b).count();
    let from = same.saturating_sub(LEADING_CHARS);
    (excerpt(log, from), excerpt(here, from))
}

fn excerpt(text: &str, from: usize) -> String {
    let mut shown = String::new();
    if from > 0 {
        shown.push('…');
    }
    let mut rest = text.chars().skip(from);
    shown.extend(rest.by_ref().take(MAX_SHOWN_CHARS).map(|c| if c.is_control() { ' ' } else { c }));
    if rest.next().is_some() {
        shown.push('…');
    }
    shown
}

/// A kind in one line, for a difference of whole entries.
pub(crate) fn describe_kind(kind: &Kind) -> String {
    let text = serde_json::to_string(kind).expect("an entry is plain data");
    excerpt(&text, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use minke_record::{
        Actor, ChainHash, Durability, InputSegment, Invoke, QueueId, QueueMode, QueuedInput, RunId, Trigger,
    };

    fn queued_input(id: u128, text: &str) -> Kind {
        QueuedInput {
            id: QueueId(Uuid::from_u128(id)),
            segments: vec![InputSegment::from_text(text)],
            op_id: None,
            from: Actor::from_person("here"),
            mode: QueueMode::Queue,
            attached: Vec::new(),
        }
        .into()
    }

    fn log_entry(kind: Kind, run: Option<u128>) -> Entry {
        let run = run.map(|run| RunId(Uuid::from_u128(run)));
        Entry { seq: 1, ts: 7, run, more: false, kind, h: ChainHash::ZERO }
    }

    fn new_draft(kind: Kind, run: Option<u128>) -> Draft {
        let run = run.map(|run| RunId(Uuid::from_u128(run)));
        Draft { seq: 1, ts: 8, run, kind, durability: Durability::Lazy }
    }

    fn compare_entries(id_map: &mut IdMap, log: &Entry, replayed: &Draft) -> Result<(), String> {
        let mut comparison = StepComparison::new(id_map, None);
        let result = comparison.compare_entry(log, replayed).map_err(|mismatch| mismatch.field);
        let new = comparison.learned;
        if result.is_ok() {
            id_map.add_learned(new);
        }
        result
    }

    #[test]
    fn one_changed_field_is_found() {
        let mut pairs = IdMap::default();
        let same = compare_entries(
            &mut pairs,
            &log_entry(queued_input(1, "a"), None),
            &new_draft(queued_input(2, "a"), None),
        );
        assert_eq!(same, Ok(()));
        let other = compare_entries(
            &mut pairs,
            &log_entry(queued_input(1, "a"), None),
            &new_draft(queued_input(2, "b"), None),
        );
        assert_eq!(other, Err("segments.0.content".to_owned()));
        // One logged id cannot have two counterparts.
        let two = compare_entries(
            &mut pairs,
            &log_entry(queued_input(1, "a"), None),
            &new_draft(queued_input(3, "a"), None),
        );
        assert_eq!(two, Err("id".to_owned()));
    }

    #[test]
    fn a_run_is_paired_where_it_opens_and_nowhere_else() {
        let mut id_map = IdMap::default();
        let invoke: Kind =
            Invoke { trigger: Trigger::Notify, by: Actor::from_minke(), attempt: 1, continues: None }.into();
        let alert: Kind = minke_record::TurnEnd {
            turn: 0,
            result: minke_record::TurnResult::Finished,
            stop_reason: "end_turn".into(),
        }
        .into();
        let early = compare_entries(
            &mut id_map,
            &log_entry(alert.clone(), Some(1)),
            &new_draft(alert.clone(), Some(2)),
        );
        assert_eq!(early, Err("run".to_owned()));
        assert_eq!(
            compare_entries(&mut id_map, &log_entry(invoke.clone(), Some(1)), &new_draft(invoke, Some(2))),
            Ok(())
        );
        assert_eq!(
            compare_entries(
                &mut id_map,
                &log_entry(alert.clone(), Some(1)),
                &new_draft(alert.clone(), Some(2))
            ),
            Ok(())
        );
        let wrong =
            compare_entries(&mut id_map, &log_entry(alert.clone(), Some(1)), &new_draft(alert, Some(3)));
        assert_eq!(wrong, Err("run".to_owned()));
    }

    #[test]
    fn a_difference_in_a_long_text_is_shown_where_it_is() {
        let a = format!("{}x{}", "a".repeat(5_000), "b".repeat(5_000));
        let b = format!("{}y{}", "a".repeat(5_000), "b".repeat(5_000));
        let (log, replayed) = excerpts(&a, &b);
        assert!(log.contains("axb") && replayed.contains("ayb"), "{log} {replayed}");
        assert!(log.chars().count() <= MAX_SHOWN_CHARS + 2);
    }
}
