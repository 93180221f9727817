//! Schedules: at which times a job is begun again and again.
//!
//! Zones are those that are built in, so that the same log says the same times on every machine. Elsewhere: what is written
//! when such a time has come (`firing`), who looks (`host`).
//! Invariant: what `Schedule::check` lets pass has a next time, and one after that
//! (`a_schedule_that_is_taken_goes_on`).

use std::sync::LazyLock;

use croner::Cron;
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, Zoned};
use minke_record::Millis;
use serde::{Deserialize, Serialize};

/// The longest expression, in bytes.
const CRON_BYTES: usize = 256;
/// The longest interval: a year.
const EVERY_MOST_S: u64 = 366 * 24 * 3_600;
/// Times that are counted one by one.
pub const COUNTED: u64 = 1_000;
/// Whether an expression has any time at all is looked at from here on: 2000-01-01.
const EPOCH: Millis = 946_684_800_000;

static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// When a job is begun again and again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, try_from = "Written")]
pub enum Schedule {
    Every {
        every_s: u64,
    },
    Cron {
        cron: String,
        /// The name of a zone; UTC if none was written down.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tz: Option<String>,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a `schedule`, which is {cron, tz?} or {every_s}")]
struct Written {
    every_s: Option<u64>,
    cron: Option<String>,
    tz: Option<String>,
}

impl TryFrom<Written> for Schedule {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Schedule, &'static str> {
        match written {
            Written { every_s: Some(every_s), cron: None, tz: None } => Ok(Schedule::Every { every_s }),
            Written { every_s: None, cron: Some(cron), tz } => Ok(Schedule::Cron { cron, tz }),
            Written { every_s: Some(_), cron: None, tz: Some(_) } => {
                Err("`tz` belongs to `cron`, not to `every_s`")
            }
            _ => Err("`schedule` is either {cron, tz?} or {every_s}"),
        }
    }
}

/// A schedule that was understood.
#[derive(Debug)]
pub enum Times {
    Every { ms: u64, begun: Millis },
    Cron { cron: Box<Cron>, zone: TimeZone },
}

impl Schedule {
    /// Whether it can be kept, or what is wrong with which part of it.
    pub fn check(&self) -> Result<(), String> {
        let times = self.times(EPOCH)?;
        match times.after(EPOCH).and_then(|first| times.after(first)) {
            Some(_) => Ok(()),
            None => Err("schedule.cron: there is no such time, ever".to_owned()),
        }
    }

    /// Its times, for a job that was begun then.
    pub fn times(&self, begun: Millis) -> Result<Times, String> {
        match self {
            Schedule::Every { every_s } if (1..=EVERY_MOST_S).contains(every_s) => {
                Ok(Times::Every { ms: every_s * 1_000, begun })
            }
            Schedule::Every { every_s } => {
                Err(format!("schedule.every_s: is {every_s}; it can be 1 to {EVERY_MOST_S} seconds"))
            }
            Schedule::Cron { cron, tz } => {
                let zone = zone(tz.as_deref().unwrap_or("UTC"))?;
                Ok(Times::Cron { cron: Box::new(expression(cron)?), zone })
            }
        }
    }
}

/// A zone by its name.
pub fn zone(name: &str) -> Result<TimeZone, String> {
    ZONES.get(name).map_err(|_| {
        let name: String = name.chars().take(80).collect();
        format!("schedule.tz: there is no zone `{name}`; they are named like Europe/Berlin or UTC")
    })
}

fn expression(text: &str) -> Result<Cron, String> {
    if text.len() > CRON_BYTES {
        return Err(format!("schedule.cron: has {} bytes; at most {CRON_BYTES} are possible", text.len()));
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
            "schedule.cron: `{text}` is none ({why}); it is `minute hour day month weekday`, such as `30 3 * * 1-5`"
        )
    })
}

impl Times {
    /// The next time after one.
    pub fn after(&self, at: Millis) -> Option<Millis> {
        match self {
            Times::Every { ms, begun } => {
                let passed = at.saturating_sub(*begun) / ms;
                begun.checked_add(passed.checked_add(1)?.checked_mul(*ms)?)
            }
            Times::Cron { cron, zone } => {
                millis(&cron.find_next_occurrence(&zoned(at, zone)?, false).ok()?).filter(|next| *next > at)
            }
        }
    }

    /// The last time up to one, itself included.
    pub fn up_to(&self, at: Millis) -> Option<Millis> {
        match self {
            Times::Every { ms, begun } => {
                let passed = at.checked_sub(*begun)? / ms;
                (passed > 0).then(|| begun.saturating_add(passed.saturating_mul(*ms)))
            }
            Times::Cron { cron, zone } => {
                millis(&cron.find_previous_occurrence(&zoned(at, zone)?, true).ok()?)
            }
        }
    }

    /// How many there are from one to another, both included; `COUNTED` are at least so many.
    pub fn count(&self, from: Millis, to: Millis) -> u64 {
        match self {
            Times::Every { ms, begun } => {
                let passed = |at: Millis| at.saturating_sub(*begun) / ms;
                passed(to).saturating_sub(passed(from.saturating_sub(1))).min(COUNTED)
            }
            Times::Cron { .. } => {
                let (mut count, mut at) = (0, from.saturating_sub(1));
                while let Some(next) = self.after(at).filter(|next| *next <= to && count < COUNTED) {
                    (count, at) = (count + 1, next);
                }
                count
            }
        }
    }
}

/// Whole seconds: no expression knows less.
fn zoned(at: Millis, zone: &TimeZone) -> Option<Zoned> {
    let seconds = i64::try_from(at / 1_000).ok()?;
    Some(Timestamp::from_second(seconds).ok()?.to_zoned(zone.clone()))
}

fn millis(at: &Zoned) -> Option<Millis> {
    Millis::try_from(at.timestamp().as_millisecond()).ok()
}

/// A time as people read it.
pub fn shown(at: Millis) -> String {
    let time = i64::try_from(at / 1_000).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.map_or_else(|| format!("{at} ms"), |time| time.to_string())
}
