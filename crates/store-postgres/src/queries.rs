//! Queries about many sessions: their logs, their availability, and claims.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use minke_record::{Millis, SessionId};
use minke_session::LogStamp;

use crate::server_link::{LinkError, ServerLink, durable_transaction};

/// Returns the name of a permanent session.
pub(crate) fn session_name(id: SessionId) -> String {
    format!("sessions/{id}")
}

fn parse_session_id(name: &str) -> Option<SessionId> {
    name.strip_prefix("sessions/")?.parse().ok()
}

/// Returns the stamp of one session, or of all: the newest file of each log.
pub(crate) fn log_stamps(
    link: &Arc<ServerLink>,
    one: Option<SessionId>,
) -> io::Result<BTreeMap<SessionId, LogStamp>> {
    let one = one.map(session_name);
    link.run_work(move |at| {
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
            // An unfinished session has no id yet.
            if let Some(id) = parse_session_id(session) {
                let stamp =
                    LogStamp { file, bytes: bytes.cast_unsigned(), modified: Some(modified.cast_unsigned()) };
                stamps.insert(id, stamp);
            }
        }
        Ok(stamps)
    })
}

/// The owner of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseOwner {
    /// This home, if one of its processes is live.
    ThisHome,
    /// Another home, and the lease has not expired.
    OtherHome,
}

/// The workspace and the lease of a session.
pub(crate) struct LeaseRow {
    pub(crate) label: String,
    pub(crate) owner: Option<LeaseOwner>,
    pub(crate) holder: String,
    pub(crate) since: Option<Millis>,
}

pub(crate) fn lease_rows(
    link: &Arc<ServerLink>,
    ids: &[SessionId],
) -> io::Result<BTreeMap<SessionId, LeaseRow>> {
    let (names, owner): (Vec<String>, _) = (ids.iter().copied().map(session_name).collect(), link.owner);
    link.run_work(move |at| {
        let rows = at.client.query(
            "select s.name, s.label, l.owner = $2, l.expires > clock_timestamp(), coalesce(l.holder, ''),
                    (extract(epoch from l.since) * 1000)::bigint
             from minke.session s left join minke.lease l on l.session = s.key and l.name = 'lease'
             where s.name = any($1)",
            &[&names, &owner],
        )?;
        let mut rows_by_session = BTreeMap::new();
        for row in &rows {
            let (ours, valid): (Option<bool>, Option<bool>) = (row.try_get(2)?, row.try_get(3)?);
            let lease_owner = match (ours, valid) {
                (Some(true), _) => Some(LeaseOwner::ThisHome),
                (Some(false), Some(true)) => Some(LeaseOwner::OtherHome),
                _ => None,
            };
            let since: Option<i64> = row.try_get(5)?;
            let (label, holder) = (row.try_get(1)?, row.try_get(4)?);
            if let Some(id) = parse_session_id(row.try_get(0)?) {
                rows_by_session.insert(
                    id,
                    LeaseRow { label, owner: lease_owner, holder, since: since.map(i64::cast_unsigned) },
                );
            }
        }
        Ok(rows_by_session)
    })
}

/// Claims the right to start these sessions' pods: of those whose workspace is here, whose lease is free, and that no
/// other host is about to start. A claim that is not used or renewed expires like a lease.
pub(crate) fn claim_sessions(
    link: &Arc<ServerLink>,
    label: &str,
    ids: &[SessionId],
) -> io::Result<Vec<SessionId>> {
    let names: Vec<String> = ids.iter().copied().map(session_name).collect();
    let (owner, label, lease_ms) = (link.owner, label.to_owned(), link.times.lease_ms());
    link.run_work(move |at| {
        let mut change = durable_transaction(at.client)?;
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
            .map(|row| Ok(parse_session_id(row.try_get(0)?)))
            .collect::<Result<Vec<Option<SessionId>>, LinkError>>()?;
        change.commit()?;
        Ok(claimed.into_iter().flatten().collect())
    })
}
