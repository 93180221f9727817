//! The tables, and how they come to be: versions one after another, under a lock that hosts share.

use std::io;

use postgres::Client;

use crate::link::Trouble;

/// What this version of minke reads and writes.
const VERSION: i32 = 1;
/// Any number that others do not use: the lock under which tables are made.
const LOCK: i64 = 0x6d69_6e6b_6500;

/// One text for each version, from the first on.
const STEPS: [&str; 1] = [include_str!("tables.sql")];

/// Makes the tables, or looks whether they are those that we know.
pub(crate) fn prepare(client: &mut Client) -> Result<(), Trouble> {
    if version(client)? == Some(VERSION) {
        return Ok(());
    }
    let mut change = client.transaction()?;
    change.execute("select pg_advisory_xact_lock($1)", &[&LOCK])?;
    // Somebody else may have made them while we waited.
    let mut at = version(&mut change)?.unwrap_or(0);
    if at > VERSION {
        let why =
            format!("the tables are of version {at}; this minke knows up to {VERSION}: use a newer one");
        return Err(io::Error::new(io::ErrorKind::Unsupported, why).into());
    }
    for step in STEPS.iter().skip(usize::try_from(at).unwrap_or(0)) {
        change.batch_execute(step)?;
        at += 1;
    }
    change.execute("update minke.format set version = $1", &[&at])?;
    change.batch_execute("set local synchronous_commit = on")?;
    Ok(change.commit()?)
}

fn version(client: &mut impl postgres::GenericClient) -> Result<Option<i32>, Trouble> {
    // By a query, not by name: what a name means is remembered, and we may have waited since.
    let there = client.query_one(
        "select exists (select 1 from pg_catalog.pg_tables where schemaname = 'minke' and tablename = 'format')",
        &[],
    )?;
    if !there.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    let row = client.query_opt("select version from minke.format", &[])?;
    row.map(|row| Ok(row.try_get(0)?)).transpose()
}
