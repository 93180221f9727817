//! What is asked of many sessions at once: how their logs look, how they stand, which may be started here.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use minke_record::{Millis, SessionId};
use minke_session::Stamp;

use crate::link::{Link, Trouble, durable};

/// The name of a session that is kept.
pub(crate) fn name(id: SessionId) -> String {
    format!("sessions/{id}")
}

fn id(name: &str) -> Option<SessionId> {
    name.strip_prefix("sessions/")?.parse().ok()
}

/// Of one session, or of all: the newest file of each log.
pub(crate) fn stamps(link: &Arc<Link>, one: Option<SessionId>) -> io::Result<BTreeMap<SessionId, Stamp>> {
    let one = one.map(name);
    link.ask(move |at| {
        let rows = at.client.query(
            "select s.name, f.name, f.bytes, (extract(epoch from f.modified) * 1000)::bigint
             from minke.session s
             join lateral (
                 select name, bytes, modified from minke.file
                 where session = s.key and kind = 'log' and position('/' in name) = 0
                 order by length(name) desc, name desc limit 1
             ) f on true
             where case when $1::text is null then starts_with(s.name, 'sessions/') else s.name = $1 end",
            &[&one],
        )?;
        let mut stamps = BTreeMap::new();
        for row in &rows {
            let (session, file): (&str, &str) = (row.try_get(0)?, row.try_get(1)?);
            let number = file.strip_prefix("log.").and_then(|rest| rest.strip_suffix(".jsonl"));
            let file = number.and_then(|number| number.parse().ok()).unwrap_or(0);
            let (bytes, modified): (i64, i64) = (row.try_get(2)?, row.try_get(3)?);
            // One that is being made is none yet.
            if let Some(id) = id(session) {
                let stamp =
                    Stamp { file, bytes: bytes.cast_unsigned(), modified: Some(modified.cast_unsigned()) };
                stamps.insert(id, stamp);
            }
        }
        Ok(stamps)
    })
}

/// Whose lease it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// This home's, if one of its processes lives.
    Ours,
    /// Another home's, and not expired.
    Other,
}

/// What the tables say of who may write a session.
pub(crate) struct Row {
    pub(crate) label: String,
    pub(crate) held: Option<Whose>,
    pub(crate) holder: String,
    pub(crate) since: Option<Millis>,
}

pub(crate) fn rows(link: &Arc<Link>, ids: &[SessionId]) -> io::Result<BTreeMap<SessionId, Row>> {
    let (names, owner): (Vec<String>, _) = (ids.iter().copied().map(name).collect(), link.owner);
    link.ask(move |at| {
        let rows = at.client.query(
            "select s.name, s.label, l.owner = $2, l.expires > clock_timestamp(), coalesce(l.holder, ''),
                    (extract(epoch from l.since) * 1000)::bigint
             from minke.session s left join minke.lease l on l.session = s.key and l.name = 'lease'
             where s.name = any($1)",
            &[&names, &owner],
        )?;
        let mut found = BTreeMap::new();
        for row in &rows {
            let (ours, valid): (Option<bool>, Option<bool>) = (row.try_get(2)?, row.try_get(3)?);
            let held = match (ours, valid) {
                (Some(true), _) => Some(Whose::Ours),
                (Some(false), Some(true)) => Some(Whose::Other),
                _ => None,
            };
            let since: Option<i64> = row.try_get(5)?;
            let (label, holder) = (row.try_get(1)?, row.try_get(4)?);
            if let Some(id) = id(row.try_get(0)?) {
                found.insert(id, Row { label, held, holder, since: since.map(i64::cast_unsigned) });
            }
        }
        Ok(found)
    })
}

/// Takes the right to start these sessions' pods: of those whose workspace is here, that nobody holds, and that no other
/// host is about to start. A claim that is not used or renewed expires as a lease does.
pub(crate) fn claim(link: &Arc<Link>, label: &str, ids: &[SessionId]) -> io::Result<Vec<SessionId>> {
    let names: Vec<String> = ids.iter().copied().map(name).collect();
    let (owner, label, lease_ms) = (link.owner, label.to_owned(), link.times.lease_ms());
    link.ask(move |at| {
        let mut change = durable(at.client)?;
        let rows = change.query(
            "with free as (
                 select s.key, s.name from minke.session s
                 left join minke.lease l on l.session = s.key and l.name = 'lease'
                 where s.name = any($1) and s.label = $2
                   and (l.owner is null or l.owner = $3 or l.expires <= clock_timestamp())
                 for update of s skip locked
             ), taken as (
                 insert into minke.claim as c (session, owner, expires)
                 select key, $3, clock_timestamp() + $4 * interval '1 millisecond' from free
                 on conflict (session) do update set owner = excluded.owner, expires = excluded.expires
                 where c.owner = excluded.owner or c.expires <= clock_timestamp()
                 returning session
             )
             select free.name from free join taken on taken.session = free.key",
            &[&names, &label, &owner, &lease_ms],
        )?;
        let claimed = rows
            .iter()
            .map(|row| Ok(id(row.try_get(0)?)))
            .collect::<Result<Vec<Option<SessionId>>, Trouble>>()?;
        change.commit()?;
        Ok(claimed.into_iter().flatten().collect())
    })
}
