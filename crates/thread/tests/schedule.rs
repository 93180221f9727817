//! Times of schedules, including clock changes, and the resulting job logs.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use minke_record::{ChainHash, Entry, JobState, SessionId, StateChange};
use minke_thread::schedule::{MAX_COUNTED_TIMES, format_time};
use minke_thread::schedule_firing::{
    FiringCheck, created_change, created_job_mandate, due_change, first_time_change, resume_changes,
};
use minke_thread::{Mandate, Schedule, SessionSummary};
use proptest::prelude::*;
use serde_json::{Value, json};

const SESSION: &str = "01970000-0000-7000-8000-000000000001";
const MINUTE: u64 = 60_000;

fn millis_of(text: &str) -> u64 {
    let time: jiff::Timestamp = text.parse().unwrap();
    u64::try_from(time.as_millisecond()).unwrap()
}

fn cron_schedule(expression: &str, zone: &str) -> Schedule {
    Schedule::Cron { cron: expression.to_owned(), tz: Some(zone.to_owned()) }
}

/// Returns the next times as UTC.
fn next_times(schedule: &Schedule, from: &str, count: usize) -> Vec<String> {
    let times = schedule.times(0).unwrap();
    let mut at = millis_of(from);
    let mut found = Vec::new();
    for _ in 0..count {
        at = times.next_after(at).unwrap();
        found.push(format_time(at));
    }
    found
}

#[test]
fn a_clock_that_goes_forward_skips_no_firing_and_one_that_goes_back_doubles_none() {
    // Berlin 2026: 29 March 02:00 becomes 03:00, 25 October 03:00 becomes 02:00.
    let daily = cron_schedule("30 2 * * *", "Europe/Berlin");
    assert_eq!(
        next_times(&daily, "2026-03-28T00:00:00Z", 3),
        ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"],
        "half past two does not exist on the 29th: it fires when the gap ends"
    );
    assert_eq!(
        next_times(&daily, "2026-10-24T12:00:00Z", 2),
        ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"],
        "half past two comes twice on the 25th: it fires the first time"
    );
    let often = cron_schedule("*/30 * * * *", "Europe/Berlin");
    assert_eq!(
        next_times(&often, "2026-10-25T00:00:00Z", 4),
        ["2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:00:00Z"],
        "what fires every half hour does so in both hours"
    );
    assert_eq!(
        next_times(&often, "2026-03-29T00:30:00Z", 2),
        ["2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"],
        "and does not stop for an hour that is not there"
    );
    assert_eq!(
        next_times(&cron_schedule("@daily", "UTC"), "2026-03-29T00:30:00Z", 1),
        ["2026-03-30T00:00:00Z"]
    );
}

#[test]
fn a_schedule_that_cannot_be_kept_is_refused_with_its_place() {
    let refused = |schedule: Value| {
        Mandate::from_request(&json!({ "objective": "x", "schedule": schedule })).unwrap_err()
    };
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
    let why = Mandate::from_request(
        &json!({ "objective": "x", "restart": "always", "schedule": { "every_s": 60 } }),
    );
    assert!(why.unwrap_err().contains("schedule"));
    for taken in [json!({ "cron": "0 3 * * 1-5", "tz": "America/New_York" }), json!({ "every_s": 1 })] {
        Mandate::from_request(&json!({ "objective": "x", "schedule": taken })).unwrap();
    }
}

#[test]
fn a_deadline_is_seconds_or_a_time_with_its_offset() {
    let deadline = |written: Value| Mandate::from_request(&json!({ "objective": "x", "deadline": written }));
    for written in
        [json!(1_798_131_600_u64), json!("2026-12-24T17:00:00Z"), json!("2026-12-24T18:00:00+01:00")]
    {
        assert_eq!(deadline(written.clone()).unwrap().deadline_ms(), Some(1_798_131_600_000), "{written}");
    }
    for bad in
        [json!("2026-12-24"), json!("2026-12-24T18:00:00"), json!("soon"), json!(-1), json!(1.5), json!(true)]
    {
        let why = deadline(bad.clone()).unwrap_err();
        assert!(why.contains("deadline") && why.contains("Unix seconds"), "{bad}: {why}");
    }
    assert!(deadline(json!("1969-12-31T00:00:00Z")).unwrap_err().contains("1970"));
    assert_eq!(deadline(Value::Null).unwrap().deadline_ms(), None);
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
        let schedule = cron_schedule(&format!("{minute} {hour} {day} {month} {weekday}"), zone);
        if schedule.validate().is_ok() {
            let times = schedule.times(0).unwrap();
            let next = times.next_after(from).unwrap();
            prop_assert!(next > from);
            prop_assert_eq!(times.last_up_to(next), Some(next));
            prop_assert!(times.next_after(next).unwrap() > next);
            prop_assert_eq!(times.count_between(from + 1, next), 1);
        }
    }

    #[test]
    fn no_text_makes_it_fall_over(cron in ".{0,40}", tz in ".{0,20}") {
        let _ = Schedule::Cron { cron, tz: Some(tz) }.validate();
    }
}

/// The log of a job with a schedule.
struct JobLog {
    summary: SessionSummary,
    mandate: Mandate,
    now: u64,
}

impl JobLog {
    fn start_job(schedule: &Value, now: u64) -> JobLog {
        let mandate = json!({ "objective": "look", "schedule": schedule });
        let start = json!({"kind": "session_start", "session": SESSION, "format": 1, "version": "0", "name": "job",
            "created_by": {"actor": "person", "surface": "cli"}, "cwd": "/w", "workspace": "/w", "manifest": {},
            "scope": {"allow": []}, "mandate": mandate});
        let mandate = Mandate::from_request(&mandate).unwrap();
        let mut log = JobLog { summary: SessionSummary::default(), mandate, now };
        log.append_value(&start);
        let first = first_time_change(&log.mandate, now).unwrap();
        log.append_change(&first);
        log
    }

    fn append_value(&mut self, kind: &Value) {
        let mut line = kind.clone();
        let members = line.as_object_mut().unwrap();
        members.insert("seq".to_owned(), json!(self.summary.seq.map_or(0, |seq| seq + 1)));
        members.insert("ts".to_owned(), json!(self.now));
        members.insert("h".to_owned(), json!(ChainHash::default()));
        let entry: Entry = serde_json::from_value(line).unwrap();
        self.summary.apply_entry(&entry);
    }

    fn append_change(&mut self, change: &StateChange) {
        let mut line = serde_json::to_value(change).unwrap();
        line["kind"] = json!("state");
        self.append_value(&line);
    }

    fn fire_at(&mut self, now: u64, previous_running: bool, id: u128) -> Option<StateChange> {
        self.now = now;
        let id = SessionId(uuid::Uuid::from_u128(id));
        let look = FiringCheck { now, previous_running, id };
        let change =
            due_change(self.summary.job.as_ref().unwrap(), &self.mandate, self.summary.created, look)?;
        self.append_change(&change);
        Some(change)
    }

    fn mark_created(&mut self) {
        let change = created_change(self.summary.job.as_ref().unwrap()).unwrap();
        self.append_change(&change);
    }

    fn job_object(&self) -> Value {
        serde_json::to_value(self.summary.job_object(false).unwrap()).unwrap()
    }
}

#[test]
fn a_firing_is_named_once_made_once_and_the_job_waits_on() {
    let created = millis_of("2026-11-16T12:00:00Z");
    let mut log = JobLog::start_job(&json!({ "every_s": 60 }), created);
    assert_eq!(log.job_object()["status"], "waiting");
    assert_eq!(log.job_object()["schedule"]["next_at"], (created + MINUTE) / 1_000);
    assert_eq!(log.fire_at(created + MINUTE - 1, false, 7), None, "not yet");
    let fired = log.fire_at(created + MINUTE + 5, false, 7).unwrap().firing.unwrap();
    assert_eq!((fired.due, fired.made, fired.missed), (created + MINUTE, false, None));
    assert_eq!(log.summary.job.as_ref().unwrap().pending_firing().unwrap().session, fired.session);
    assert_eq!(log.fire_at(created + 9 * MINUTE, false, 8), None, "the first is not made yet");
    log.mark_created();
    assert_eq!(
        (&log.job_object()["schedule"]["fired"], &log.job_object()["status"]),
        (&json!(1), &json!("waiting"))
    );
    // Input of users in its thread does not belong to the job.
    log.append_value(&json!({"kind": "run_completed", "run": SESSION, "result": "finished"}));
    log.append_value(&json!({"kind": "state", "state": "abandoned", "by": {"actor": "person"}}));
    assert_eq!(log.job_object()["status"], "waiting");
}

#[test]
fn what_was_missed_is_named_and_run_once_and_what_goes_on_is_not_begun_again() {
    let created = millis_of("2026-11-16T12:00:30Z");
    let mut told = JobLog::start_job(&json!({ "cron": "0 * * * *", "tz": "UTC" }), created);
    let fired = told.fire_at(millis_of("2026-11-16T16:20:00Z"), false, 7).unwrap();
    let firing = fired.firing.unwrap();
    let missed = firing.missed.unwrap();
    assert_eq!(firing.due, millis_of("2026-11-16T16:00:00Z"));
    assert_eq!((missed.count, missed.first), (3, millis_of("2026-11-16T13:00:00Z")));
    assert_eq!(missed.last, millis_of("2026-11-16T15:00:00Z"));
    let reason = fired.reason.unwrap();
    assert!(
        reason.contains("3 before it were missed") && reason.contains("2026-11-16T13:00:00Z"),
        "{reason}"
    );
    told.mark_created();
    let skipped = told.fire_at(millis_of("2026-11-16T17:00:01Z"), true, 8).unwrap();
    assert_eq!(skipped.firing.unwrap().session, None);
    assert!(skipped.reason.unwrap().contains("has not ended"), "the reason says so");
    assert_eq!(told.job_object()["schedule"]["last"], format!("s_{}", firing.session.unwrap()));
    assert_eq!(told.job_object()["schedule"]["fired"], 1);
    assert!(
        told.fire_at(millis_of("2026-11-16T18:00:01Z"), false, 9).unwrap().firing.unwrap().session.is_some()
    );
    told.mark_created();
    // Years later: the count is limited.
    let late = told.fire_at(millis_of("2030-01-01T00:00:01Z"), false, 10).unwrap();
    assert_eq!(late.firing.unwrap().missed.unwrap().count, MAX_COUNTED_TIMES - 1);
    assert!(late.reason.unwrap().contains("or more"));
    let one = JobLog::start_job(&json!({ "every_s": 3600 }), created)
        .fire_at(created + 90 * MINUTE, false, 1)
        .unwrap();
    assert!(
        one.firing.unwrap().missed.is_none() && one.reason.unwrap().contains("was due at"),
        "one is late"
    );
}

#[test]
fn a_schedule_is_paused_resumed_and_cancelled() {
    let created = millis_of("2026-11-16T12:00:00Z");
    let mut log = JobLog::start_job(&json!({ "every_s": 60 }), created);
    let say = |told: &mut JobLog, state: &str| {
        told.append_value(&json!({"kind": "state", "state": state, "on": "time", "reason": "so", "by": {"actor": "person"}}));
    };
    say(&mut log, "paused");
    assert_eq!(log.job_object()["status"], "paused");
    assert_eq!(log.job_object()["schedule"].get("next_at"), None);
    assert_eq!(log.fire_at(created + 5 * MINUTE, false, 7), None, "nothing is made while it is paused");
    let facts = log.summary.job.clone().unwrap();
    for change in resume_changes(&facts, &log.mandate, created, created + 5 * MINUTE + 1) {
        log.append_change(&change);
    }
    assert_eq!(log.job_object()["status"], "waiting");
    assert_eq!(
        log.job_object()["schedule"]["next_at"],
        (created + 6 * MINUTE) / 1_000,
        "what fell into the pause is gone"
    );
    // A user skips the wait.
    let facts = log.summary.job.clone().unwrap();
    for change in resume_changes(&facts, &log.mandate, created, created + 5 * MINUTE + 2) {
        log.append_change(&change);
    }
    let fired = log.fire_at(created + 5 * MINUTE + 2, false, 7).unwrap();
    assert_eq!((fired.firing.unwrap().missed, fired.until), (None, Some(created + 6 * MINUTE)));
    log.mark_created();
    say(&mut log, "abandoned");
    assert_eq!(log.summary.job.as_ref().unwrap().state, JobState::Cancelled);
    assert_eq!(log.fire_at(created + 60 * MINUTE, false, 8), None);
}

#[test]
fn the_mandate_of_what_is_made_lacks_the_schedule_and_names_the_job() {
    let written = json!({ "objective": "look", "schedule": { "every_s": 60 }, "acceptance": "true" });
    let made = created_job_mandate(&written, SESSION.parse().unwrap());
    assert_eq!(made, json!({ "objective": "look", "acceptance": "true", "of": format!("s_{SESSION}") }));
    Mandate::from_request(&made).unwrap();
}
