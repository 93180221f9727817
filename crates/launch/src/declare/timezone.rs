//! Adds the machine's time zone to a mandate whose schedule has none, so that the log has the same meaning
//! everywhere.

use std::path::Path;

use jiff::tz::TimeZone;
use serde_json::{Value, json};

use crate::environment::LaunchEnv;
use crate::error::SetupRefusal;

/// The system's time zone file; without it and without `TZ`, the zone is UTC.
const LOCALTIME: &str = "/etc/localtime";

/// Returns the mandate with a time zone in its schedule.
pub(crate) fn with_zone(mut mandate: Value, env: &LaunchEnv) -> Result<Value, SetupRefusal> {
    let open = mandate.pointer("/schedule/cron").is_some()
        && mandate.pointer("/schedule/tz").is_none_or(Value::is_null);
    if let Some(schedule) = mandate.get_mut("schedule").and_then(Value::as_object_mut).filter(|_| open) {
        schedule.insert("tz".to_owned(), json!(system_zone(env)?));
    }
    Ok(mandate)
}

fn system_zone(env: &LaunchEnv) -> Result<String, SetupRefusal> {
    if env.env_var("TZ").is_none() && !Path::new(LOCALTIME).exists() {
        return Ok("UTC".to_owned());
    }
    let found = TimeZone::try_system().ok().and_then(|zone| zone.iana_name().map(str::to_owned));
    let found = found.filter(|name| minke_thread::schedule::find_time_zone(name).is_ok());
    found.ok_or_else(|| {
        SetupRefusal::invalid("could not find the name of this machine's time zone")
            .with_hint("give the zone of the schedule: --tz Europe/Berlin, or `tz` in the mandate")
    })
}
