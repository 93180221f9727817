//! Schedules: the times at which a job is created repeatedly.
//!
//! Time zones come from the built-in database, so that the same log has the same times on every machine.
//! Elsewhere: the entries of a due time (`schedule_firing`), checking for due times (`host`).
//! Invariant: a schedule that passes `Schedule::validate` has a next time, and one after it
//! (`a_schedule_that_is_taken_goes_on`).

use std::sync::LazyLock;

use croner::Cron;
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, Zoned};
use minke_record::Millis;
use serde::{Deserialize, Serialize};

/// Maximum size of a cron expression.
const MAX_CRON_BYTES: usize = 256;
/// Maximum interval: one year.
const MAX_EVERY_S: u64 = 366 * 24 * 3_600;
/// Maximum number of counted times.
pub const MAX_COUNTED_TIMES: u64 = 1_000;
/// The reference time for validation: 2000-01-01.
const CHECK_EPOCH: Millis = 946_684_800_000;

static TIME_ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// When a job is created repeatedly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, try_from = "ScheduleConfig")]
pub enum Schedule {
    Every {
        every_s: u64,
    },
    Cron {
        cron: String,
        /// The time zone name; UTC if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tz: Option<String>,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a `schedule`, which is {cron, tz?} or {every_s}")]
struct ScheduleConfig {
    every_s: Option<u64>,
    cron: Option<String>,
    tz: Option<String>,
}

impl TryFrom<ScheduleConfig> for Schedule {
    type Error = &'static str;

    fn try_from(config: ScheduleConfig) -> Result<Schedule, &'static str> {
        match config {
            ScheduleConfig { every_s: Some(every_s), cron: None, tz: None } => {
                Ok(Schedule::Every { every_s })
            }
            ScheduleConfig { every_s: None, cron: Some(cron), tz } => Ok(Schedule::Cron { cron, tz }),
            ScheduleConfig { every_s: Some(_), cron: None, tz: Some(_) } => {
                Err("`tz` belongs to `cron`, not to `every_s`")
            }
            _ => Err("`schedule` is either {cron, tz?} or {every_s}"),
        }
    }
}

/// A parsed schedule.
#[derive(Debug)]
pub enum ScheduleTimes {
    Every { ms: u64, created: Millis },
    Cron { cron: Box<Cron>, zone: TimeZone },
}

impl Schedule {
    /// Checks the schedule. The error names the invalid part.
    pub fn validate(&self) -> Result<(), String> {
        let times = self.times(CHECK_EPOCH)?;
        match times.next_after(CHECK_EPOCH).and_then(|first| times.next_after(first)) {
            Some(_) => Ok(()),
            None => Err("schedule.cron: there is no such time".to_owned()),
        }
    }

    /// Returns the times for a job created at this time.
    pub fn times(&self, created: Millis) -> Result<ScheduleTimes, String> {
        match self {
            Schedule::Every { every_s } if (1..=MAX_EVERY_S).contains(every_s) => {
                Ok(ScheduleTimes::Every { ms: every_s * 1_000, created })
            }
            Schedule::Every { every_s } => {
                Err(format!("schedule.every_s: is {every_s}; expected 1 to {MAX_EVERY_S} seconds"))
            }
            Schedule::Cron { cron, tz } => {
                let zone = find_time_zone(tz.as_deref().unwrap_or("UTC"))?;
                Ok(ScheduleTimes::Cron { cron: Box::new(parse_cron(cron)?), zone })
            }
        }
    }
}

/// Finds a time zone by name.
pub fn find_time_zone(name: &str) -> Result<TimeZone, String> {
    TIME_ZONES.get(name).map_err(|_| {
        let name: String = name.chars().take(80).collect();
        format!("schedule.tz: there is no time zone `{name}`; use a name such as Europe/Berlin or UTC")
    })
}

fn parse_cron(text: &str) -> Result<Cron, String> {
    if text.len() > MAX_CRON_BYTES {
        return Err(format!("schedule.cron: has {} bytes; the limit is {MAX_CRON_BYTES}", text.len()));
    }
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    parser.parse(text).map_err(|why| {
        let why = match why {
            CronError::EmptyPattern => "it is empty".to_owned(),
            CronError::InvalidPattern(why)
            | CronError::IllegalCharacters(why)
            | CronError::ComponentError(why) => why,
            other => other.to_string(),
        };
        format!(
            "schedule.cron: `{text}` is invalid ({why}); expected `minute hour day month weekday`, such as `30 3 * * 1-5`"
        )
    })
}

impl ScheduleTimes {
    /// Returns the next time after `at`.
    pub fn next_after(&self, at: Millis) -> Option<Millis> {
        match self {
            ScheduleTimes::Every { ms, created } => {
                let passed = at.saturating_sub(*created) / ms;
                created.checked_add(passed.checked_add(1)?.checked_mul(*ms)?)
            }
            ScheduleTimes::Cron { cron, zone } => {
                to_millis(&cron.find_next_occurrence(&to_zoned(at, zone)?, false).ok()?)
                    .filter(|next| *next > at)
            }
        }
    }

    /// Returns the last time up to and including `at`.
    pub fn last_up_to(&self, at: Millis) -> Option<Millis> {
        match self {
            ScheduleTimes::Every { ms, created } => {
                let passed = at.checked_sub(*created)? / ms;
                (passed > 0).then(|| created.saturating_add(passed.saturating_mul(*ms)))
            }
            ScheduleTimes::Cron { cron, zone } => {
                to_millis(&cron.find_previous_occurrence(&to_zoned(at, zone)?, true).ok()?)
            }
        }
    }

    /// Returns the number of times between both, inclusive; `MAX_COUNTED_TIMES` means at least that many.
    pub fn count_between(&self, from: Millis, to: Millis) -> u64 {
        match self {
            ScheduleTimes::Every { ms, created } => {
                let passed = |at: Millis| at.saturating_sub(*created) / ms;
                passed(to).saturating_sub(passed(from.saturating_sub(1))).min(MAX_COUNTED_TIMES)
            }
            ScheduleTimes::Cron { .. } => {
                let (mut count, mut at) = (0, from.saturating_sub(1));
                while let Some(next) =
                    self.next_after(at).filter(|next| *next <= to && count < MAX_COUNTED_TIMES)
                {
                    (count, at) = (count + 1, next);
                }
                count
            }
        }
    }
}

/// Truncates to seconds; no expression is more precise.
fn to_zoned(at: Millis, zone: &TimeZone) -> Option<Zoned> {
    let seconds = i64::try_from(at / 1_000).ok()?;
    Some(Timestamp::from_second(seconds).ok()?.to_zoned(zone.clone()))
}

fn to_millis(at: &Zoned) -> Option<Millis> {
    Millis::try_from(at.timestamp().as_millisecond()).ok()
}

/// Formats a time for people.
pub fn format_time(at: Millis) -> String {
    let time = i64::try_from(at / 1_000).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.map_or_else(|| format!("{at} ms"), |time| time.to_string())
}
