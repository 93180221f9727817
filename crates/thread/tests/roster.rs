//! The job plan.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use minke_record::SessionId;
use minke_thread::{JobCandidate, JobCapacity, JobNeed, JobPlan, SessionSummary, plan_jobs};

fn session_id(number: u32) -> SessionId {
    format!("01970000-0000-7000-8000-{number:012}").parse().unwrap()
}

fn queued_job(number: u32, tree: u32) -> JobCandidate {
    JobCandidate {
        session: session_id(number),
        need: JobNeed::Start,
        is_held: false,
        since: u64::from(number),
        provider: "p".to_owned(),
        workspace: format!("/{}", number % 3),
        tree: session_id(tree),
    }
}

const UNLIMITED: JobCapacity = JobCapacity { running: 100, per_provider: 100, per_workspace: 100 };

#[test]
fn jobs_share_the_room() {
    // The tree with many jobs came first; another tree has two.
    let mut jobs: Vec<JobCandidate> = (0..20).map(|number| queued_job(number, 1_000)).collect();
    jobs.extend((20..22).map(|number| queued_job(number, 2_000)));
    let room = JobCapacity { running: 4, ..UNLIMITED };
    let JobPlan { start, has_waiting, .. } = plan_jobs(&jobs, room, 0);
    assert_eq!(start, [session_id(0), session_id(20), session_id(1), session_id(21)], "they take turns");
    assert!(has_waiting);
    // Running jobs count; jobs that wait for a person do not.
    for session in &start {
        let job = jobs.iter_mut().find(|job| job.session == *session).unwrap();
        (job.is_held, job.need) = (true, JobNeed::Resume);
    }
    assert_eq!(plan_jobs(&jobs, room, 0).start, []);
    jobs[0].need = JobNeed::Start;
    assert_eq!(plan_jobs(&jobs, room, 0).start, [], "a held job that has not started is about to start");
    jobs[0].need = JobNeed::Nothing;
    assert_eq!(plan_jobs(&jobs, room, 0).start, [session_id(2)]);
}

#[test]
fn every_limit_holds() {
    let jobs: Vec<JobCandidate> = (0..30).map(|number| queued_job(number, number)).collect();
    assert_eq!(plan_jobs(&jobs, JobCapacity { per_provider: 5, ..UNLIMITED }, 0).start.len(), 5);
    let by_place = plan_jobs(&jobs, JobCapacity { per_workspace: 2, ..UNLIMITED }, 0).start;
    assert_eq!(by_place.len(), 6, "three workspaces");
    assert_eq!(
        plan_jobs(&jobs, JobCapacity { running: 0, ..UNLIMITED }, 0),
        JobPlan { has_waiting: true, ..JobPlan::default() }
    );
}

#[test]
fn times_are_waited_for_and_ends_need_no_room() {
    let mut jobs: Vec<JobCandidate> = (0..4).map(|number| queued_job(number, number)).collect();
    jobs[0].need = JobNeed::StartAt(500);
    jobs[1].need = JobNeed::StartAt(900);
    jobs[2].need = JobNeed::Finish;
    jobs[3].need = JobNeed::Nothing;
    let none = JobCapacity { running: 0, ..UNLIMITED };
    assert_eq!(
        plan_jobs(&jobs, none, 499),
        JobPlan { start: vec![session_id(2)], next_check: Some(500), has_waiting: false }
    );
    assert_eq!(
        plan_jobs(&jobs, UNLIMITED, 600),
        JobPlan { start: vec![session_id(2), session_id(0)], next_check: Some(900), has_waiting: false }
    );
}

#[test]
fn a_job_whose_log_is_damaged_is_never_begun() {
    let mandate = serde_json::json!({ "objective": "x" });
    let mut summary = SessionSummary::default();
    summary.session = Some(session_id(1));
    summary.job = minke_thread::job_fold::job_from_mandate(Some(&mandate), 0, 0);
    summary.origin.mandate = Some(mandate);
    assert_eq!(summary.job_candidate(false, 0).unwrap().need, JobNeed::Start);
    summary.damaged = Some("line 3".to_owned());
    assert_eq!(summary.job_candidate(false, 0).unwrap().need, JobNeed::Nothing);
}
