//! When schedules fire, over changes of the clock too, and what their jobs' logs say then.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use minke_record::{Chain, Entry, JobState, SessionId, StateChange};
use minke_thread::firing::{Look, fire, first, made_from, resumed, stands};
use minke_thread::schedule::{COUNTED, shown};
use minke_thread::{Mandate, Schedule, Summary};
use proptest::prelude::*;
use serde_json::{Value, json};

const SESSION: &str = "01970000-0000-7000-8000-000000000001";
const MINUTE: u64 = 60_000;

fn at(text: &str) -> u64 {
    let time: jiff::Timestamp = text.parse().unwrap();
    u64::try_from(time.as_millisecond()).unwrap()
}

fn cron(expression: &str, zone: &str) -> Schedule {
    Schedule::Cron { cron: expression.to_owned(), tz: Some(zone.to_owned()) }
}

/// The next few times, as UTC.
fn times(schedule: &Schedule, from: &str, count: usize) -> Vec<String> {
    let times = schedule.times(0).unwrap();
    let mut at = at(from);
    let mut found = Vec::new();
    for _ in 0..count {
        at = times.after(at).unwrap();
        found.push(shown(at));
    }
    found
}

#[test]
fn a_clock_that_goes_forward_skips_no_firing_and_one_that_goes_back_doubles_none() {
    // Berlin 2026: 29 March 02:00 becomes 03:00, 25 October 03:00 becomes 02:00.
    let daily = cron("30 2 * * *", "Europe/Berlin");
    assert_eq!(
        times(&daily, "2026-03-28T00:00:00Z", 3),
        ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"],
        "half past two does not exist on the 29th: it fires when the gap ends"
    );
    assert_eq!(
        times(&daily, "2026-10-24T12:00:00Z", 2),
        ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"],
        "half past two comes twice on the 25th: it fires the first time"
    );
    let often = cron("*/30 * * * *", "Europe/Berlin");
    assert_eq!(
        times(&often, "2026-10-25T00:00:00Z", 4),
        ["2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:00:00Z"],
        "what fires every half hour does so in both hours"
    );
    assert_eq!(
        times(&often, "2026-03-29T00:30:00Z", 2),
        ["2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"],
        "and does not stop for an hour that is not there"
    );
    assert_eq!(times(&cron("@daily", "UTC"), "2026-03-29T00:30:00Z", 1), ["2026-03-30T00:00:00Z"]);
}

#[test]
fn a_schedule_that_cannot_be_kept_is_refused_with_its_place() {
    let refused =
        |schedule: Value| Mandate::asked(&json!({ "objective": "x", "schedule": schedule })).unwrap_err();
    for (schedule, words) in [
        (json!({ "cron": "0 3 * * *", "tz": "Europe/Nowhere" }), "schedule.tz"),
        (json!({ "cron": "0 3 * *" }), "schedule.cron"),
        (json!({ "cron": "" }), "empty"),
        (json!({ "cron": "61 * * * *" }), "schedule.cron"),
        (json!({ "cron": "* * * * * *" }), "5 fields"),
        (json!({ "cron": "0 0 30 2 *" }), "no such time"),
        (json!({ "cron": "0 ".repeat(300) }), "bytes"),
        (json!({ "every_s": 0 }), "schedule.every_s"),
        (json!({ "every_s": u64::MAX }), "schedule.every_s"),
        (json!({ "every_s": 60, "tz": "UTC" }), "`tz` belongs to `cron`"),
        (json!({ "every_s": 60, "cron": "* * * * *" }), "either"),
        (json!({}), "either"),
        (json!({ "evry_s": 60 }), "evry_s"),
        (json!("hourly"), "schedule"),
    ] {
        let why = refused(schedule.clone());
        assert!(why.contains(words), "{schedule}: {why}");
    }
    let why =
        Mandate::asked(&json!({ "objective": "x", "restart": "always", "schedule": { "every_s": 60 } }));
    assert!(why.unwrap_err().contains("schedule"));
    for taken in [json!({ "cron": "0 3 * * 1-5", "tz": "America/New_York" }), json!({ "every_s": 1 })] {
        Mandate::asked(&json!({ "objective": "x", "schedule": taken })).unwrap();
    }
}

#[test]
fn a_deadline_is_seconds_or_a_time_with_its_offset() {
    let deadline = |written: Value| Mandate::asked(&json!({ "objective": "x", "deadline": written }));
    for written in
        [json!(1_798_131_600_u64), json!("2026-12-24T17:00:00Z"), json!("2026-12-24T18:00:00+01:00")]
    {
        assert_eq!(deadline(written.clone()).unwrap().deadline(), Some(1_798_131_600_000), "{written}");
    }
    for bad in
        [json!("2026-12-24"), json!("2026-12-24T18:00:00"), json!("soon"), json!(-1), json!(1.5), json!(true)]
    {
        let why = deadline(bad.clone()).unwrap_err();
        assert!(why.contains("deadline") && why.contains("Unix seconds"), "{bad}: {why}");
    }
    assert!(deadline(json!("1969-12-31T00:00:00Z")).unwrap_err().contains("1970"));
    assert_eq!(deadline(Value::Null).unwrap().deadline(), None);
}

proptest! {
    #[test]
    fn a_schedule_that_is_taken_goes_on(
        minute in "(\\*|[0-9]{1,2}|\\*/[0-9]{1,2}|[0-9]{1,2}-[0-9]{1,2})",
        hour in "(\\*|[0-9]{1,2}|\\*/[0-9]{1,2})",
        day in "(\\*|[0-9]{1,2}|L|[0-9]{1,2}W)",
        month in "(\\*|[0-9]{1,2}|JAN|feb)",
        weekday in "(\\*|[0-7]|MON-FRI|[1-5]#[1-5])",
        zone in prop::sample::select(vec!["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]),
        from in 946_684_800_000_u64..4_102_444_800_000,
    ) {
        let schedule = cron(&format!("{minute} {hour} {day} {month} {weekday}"), zone);
        if schedule.check().is_ok() {
            let times = schedule.times(0).unwrap();
            let next = times.after(from).unwrap();
            prop_assert!(next > from);
            prop_assert_eq!(times.up_to(next), Some(next));
            prop_assert!(times.after(next).unwrap() > next);
            prop_assert_eq!(times.count(from + 1, next), 1);
        }
    }

    #[test]
    fn no_text_makes_it_fall_over(cron in ".{0,40}", tz in ".{0,20}") {
        let _ = Schedule::Cron { cron, tz: Some(tz) }.check();
    }
}

/// A job with a schedule, told entry by entry.
struct Told {
    summary: Summary,
    mandate: Mandate,
    now: u64,
}

impl Told {
    fn begin(schedule: &Value, now: u64) -> Told {
        let mandate = json!({ "objective": "look", "schedule": schedule });
        let start = json!({"kind": "session_start", "session": SESSION, "format": 1, "version": "0", "name": "job",
            "created_by": {"actor": "person", "surface": "cli"}, "cwd": "/w", "workspace": "/w", "manifest": {},
            "scope": {"allow": []}, "mandate": mandate});
        let mandate = Mandate::asked(&mandate).unwrap();
        let mut told = Told { summary: Summary::default(), mandate, now };
        told.apply(&start);
        let first = first(&told.mandate, now).unwrap();
        told.write(&first);
        told
    }

    fn apply(&mut self, kind: &Value) {
        let mut line = kind.clone();
        let members = line.as_object_mut().unwrap();
        members.insert("seq".to_owned(), json!(self.summary.seq.map_or(0, |seq| seq + 1)));
        members.insert("ts".to_owned(), json!(self.now));
        members.insert("h".to_owned(), json!(Chain::default()));
        let entry: Entry = serde_json::from_value(line).unwrap();
        self.summary.apply(&entry);
    }

    fn write(&mut self, change: &StateChange) {
        let mut line = serde_json::to_value(change).unwrap();
        line["kind"] = json!("state");
        self.apply(&line);
    }

    fn fire(&mut self, now: u64, last_goes_on: bool, id: u128) -> Option<StateChange> {
        self.now = now;
        let id = SessionId(uuid::Uuid::from_u128(id));
        let look = Look { now, last_goes_on, id };
        let change = fire(self.summary.job.as_ref().unwrap(), &self.mandate, self.summary.created, look)?;
        self.write(&change);
        Some(change)
    }

    fn stands(&mut self) {
        let change = stands(self.summary.job.as_ref().unwrap()).unwrap();
        self.write(&change);
    }

    fn job(&self) -> Value {
        serde_json::to_value(self.summary.job_object(false).unwrap()).unwrap()
    }
}

#[test]
fn a_firing_is_named_once_made_once_and_the_job_waits_on() {
    let begun = at("2026-11-16T12:00:00Z");
    let mut told = Told::begin(&json!({ "every_s": 60 }), begun);
    assert_eq!(told.job()["status"], "waiting");
    assert_eq!(told.job()["schedule"]["next_at"], (begun + MINUTE) / 1_000);
    assert_eq!(told.fire(begun + MINUTE - 1, false, 7), None, "not yet");
    let fired = told.fire(begun + MINUTE + 5, false, 7).unwrap().firing.unwrap();
    assert_eq!((fired.due, fired.made, fired.missed), (begun + MINUTE, false, None));
    assert_eq!(told.summary.job.as_ref().unwrap().to_be_made().unwrap().session, fired.session);
    assert_eq!(told.fire(begun + 9 * MINUTE, false, 8), None, "the first is not made yet");
    told.stands();
    assert_eq!((&told.job()["schedule"]["fired"], &told.job()["status"]), (&json!(1), &json!("waiting")));
    // What people say in its thread is not the job.
    told.apply(&json!({"kind": "run_completed", "run": SESSION, "result": "finished"}));
    told.apply(&json!({"kind": "state", "state": "abandoned", "by": {"actor": "person"}}));
    assert_eq!(told.job()["status"], "waiting");
}

#[test]
fn what_was_missed_is_named_and_run_once_and_what_goes_on_is_not_begun_again() {
    let begun = at("2026-11-16T12:00:30Z");
    let mut told = Told::begin(&json!({ "cron": "0 * * * *", "tz": "UTC" }), begun);
    let fired = told.fire(at("2026-11-16T16:20:00Z"), false, 7).unwrap();
    let firing = fired.firing.unwrap();
    let missed = firing.missed.unwrap();
    assert_eq!(firing.due, at("2026-11-16T16:00:00Z"));
    assert_eq!((missed.count, missed.first), (3, at("2026-11-16T13:00:00Z")));
    assert_eq!(missed.last, at("2026-11-16T15:00:00Z"));
    let said = fired.reason.unwrap();
    assert!(said.contains("3 before it were missed") && said.contains("2026-11-16T13:00:00Z"), "{said}");
    told.stands();
    let skipped = told.fire(at("2026-11-16T17:00:01Z"), true, 8).unwrap();
    assert_eq!(skipped.firing.unwrap().session, None);
    assert!(skipped.reason.unwrap().contains("is not over"), "that is said");
    assert_eq!(told.job()["schedule"]["last"], format!("s_{}", firing.session.unwrap()));
    assert_eq!(told.job()["schedule"]["fired"], 1);
    assert!(told.fire(at("2026-11-16T18:00:01Z"), false, 9).unwrap().firing.unwrap().session.is_some());
    told.stands();
    // Years later: counted as far as counting goes.
    let late = told.fire(at("2030-01-01T00:00:01Z"), false, 10).unwrap();
    assert_eq!(late.firing.unwrap().missed.unwrap().count, COUNTED - 1);
    assert!(late.reason.unwrap().contains("or more"));
    let one = Told::begin(&json!({ "every_s": 3600 }), begun).fire(begun + 90 * MINUTE, false, 1).unwrap();
    assert!(
        one.firing.unwrap().missed.is_none() && one.reason.unwrap().contains("was due at"),
        "one is late"
    );
}

#[test]
fn a_schedule_is_paused_resumed_and_cancelled() {
    let begun = at("2026-11-16T12:00:00Z");
    let mut told = Told::begin(&json!({ "every_s": 60 }), begun);
    let say = |told: &mut Told, state: &str| {
        told.apply(&json!({"kind": "state", "state": state, "on": "time", "reason": "so", "by": {"actor": "person"}}));
    };
    say(&mut told, "paused");
    assert_eq!(told.job()["status"], "paused");
    assert_eq!(told.job()["schedule"].get("next_at"), None);
    assert_eq!(told.fire(begun + 5 * MINUTE, false, 7), None, "nothing is made while it is paused");
    let facts = told.summary.job.clone().unwrap();
    for change in resumed(&facts, &told.mandate, begun, begun + 5 * MINUTE + 1) {
        told.write(&change);
    }
    assert_eq!(told.job()["status"], "waiting");
    assert_eq!(
        told.job()["schedule"]["next_at"],
        (begun + 6 * MINUTE) / 1_000,
        "what fell into the pause is gone"
    );
    // Somebody does not want to wait.
    let facts = told.summary.job.clone().unwrap();
    for change in resumed(&facts, &told.mandate, begun, begun + 5 * MINUTE + 2) {
        told.write(&change);
    }
    let fired = told.fire(begun + 5 * MINUTE + 2, false, 7).unwrap();
    assert_eq!((fired.firing.unwrap().missed, fired.until), (None, Some(begun + 6 * MINUTE)));
    told.stands();
    say(&mut told, "abandoned");
    assert_eq!(told.summary.job.as_ref().unwrap().state, JobState::Cancelled);
    assert_eq!(told.fire(begun + 60 * MINUTE, false, 8), None);
}

#[test]
fn the_mandate_of_what_is_made_lacks_the_schedule_and_names_the_job() {
    let written = json!({ "objective": "look", "schedule": { "every_s": 60 }, "acceptance": "true" });
    let made = made_from(&written, SESSION.parse().unwrap());
    assert_eq!(made, json!({ "objective": "look", "acceptance": "true", "of": format!("s_{SESSION}") }));
    Mandate::asked(&made).unwrap();
}
