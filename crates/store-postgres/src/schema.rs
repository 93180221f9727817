//! The tables and their migrations, applied in order under a lock that all hosts share.

use std::io;

use postgres::Client;

use crate::server_link::LinkError;

/// The schema version of this program.
const SCHEMA_VERSION: i32 = 1;
/// The advisory lock for migrations: an arbitrary number that other programs do not use.
const ADVISORY_LOCK: i64 = 0x6d69_6e6b_6500;

/// One migration for each version.
const MIGRATIONS: [&str; 1] = [include_str!("tables.sql")];

/// Creates the tables, or checks their version.
pub(crate) fn prepare_tables(client: &mut Client) -> Result<(), LinkError> {
    if read_version(client)? == Some(SCHEMA_VERSION) {
        return Ok(());
    }
    let mut change = client.transaction()?;
    change.execute("select pg_advisory_xact_lock($1)", &[&ADVISORY_LOCK])?;
    // Another process may have created them meanwhile.
    let mut at = read_version(&mut change)?.unwrap_or(0);
    if at > SCHEMA_VERSION {
        let why = format!(
            "the tables are of version {at}; this minke supports up to {SCHEMA_VERSION}: use a newer one"
        );
        return Err(io::Error::new(io::ErrorKind::Unsupported, why).into());
    }
    for step in MIGRATIONS.iter().skip(usize::try_from(at).unwrap_or(0)) {
        change.batch_execute(step)?;
        at += 1;
    }
    change.execute("update minke.format set version = $1", &[&at])?;
    change.batch_execute("set local synchronous_commit = on")?;
    Ok(change.commit()?)
}

fn read_version(client: &mut impl postgres::GenericClient) -> Result<Option<i32>, LinkError> {
    // A query, not a reference by name: names are resolved once, possibly before the wait.
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
