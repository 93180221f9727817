//! The machine's time zone, written into a mandate whose schedule names none: what the log says holds wherever it is read.

use std::path::Path;

use jiff::tz::TimeZone;
use serde_json::{Value, json};

use crate::around::Surroundings;
use crate::failure::Failure;

/// Where a system keeps its zone; without it, and without `TZ`, the clock is UTC.
const LOCALTIME: &str = "/etc/localtime";

/// The same mandate with the zone of its schedule.
pub(crate) fn named(mut mandate: Value, around: &Surroundings) -> Result<Value, Failure> {
    let open = mandate.pointer("/schedule/cron").is_some()
        && mandate.pointer("/schedule/tz").is_none_or(Value::is_null);
    if let Some(schedule) = mandate.get_mut("schedule").and_then(Value::as_object_mut).filter(|_| open) {
        schedule.insert("tz".to_owned(), json!(ours(around)?));
    }
    Ok(mandate)
}

fn ours(around: &Surroundings) -> Result<String, Failure> {
    if around.variable("TZ").is_none() && !Path::new(LOCALTIME).exists() {
        return Ok("UTC".to_owned());
    }
    let found = TimeZone::try_system().ok().and_then(|zone| zone.iana_name().map(str::to_owned));
    let found = found.filter(|name| minke_thread::schedule::zone(name).is_ok());
    found.ok_or_else(|| {
        Failure::usage("the time zone of this machine has no name")
            .hint("say in which zone the schedule is meant: --tz Europe/Berlin, or `tz` in the mandate")
    })
}
