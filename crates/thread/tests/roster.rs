//! Which jobs are started.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use minke_record::SessionId;
use minke_thread::{Candidate, Need, Plan, Room, Summary, plan};

fn id(number: u32) -> SessionId {
    format!("01970000-0000-7000-8000-{number:012}").parse().unwrap()
}

fn one(number: u32, tree: u32) -> Candidate {
    Candidate {
        session: id(number),
        need: Need::Begin,
        held: false,
        since: u64::from(number),
        provider: "p".to_owned(),
        workspace: format!("/{}", number % 3),
        tree: id(tree),
    }
}

const WIDE: Room = Room { running: 100, per_provider: 100, per_workspace: 100 };

#[test]
fn jobs_share_the_room() {
    // A tree with many jobs was there first; another has two.
    let mut jobs: Vec<Candidate> = (0..20).map(|number| one(number, 1_000)).collect();
    jobs.extend((20..22).map(|number| one(number, 2_000)));
    let room = Room { running: 4, ..WIDE };
    let Plan { start, crowded, .. } = plan(&jobs, room, 0);
    assert_eq!(start, [id(0), id(20), id(1), id(21)], "they take turns");
    assert!(crowded);
    // Those at work count, those that wait for somebody do not.
    for session in &start {
        let job = jobs.iter_mut().find(|job| job.session == *session).unwrap();
        (job.held, job.need) = (true, Need::Work);
    }
    assert_eq!(plan(&jobs, room, 0).start, []);
    jobs[0].need = Need::Begin;
    assert_eq!(plan(&jobs, room, 0).start, [], "who has a pod and has not begun is about to");
    jobs[0].need = Need::Nothing;
    assert_eq!(plan(&jobs, room, 0).start, [id(2)]);
}

#[test]
fn every_limit_holds() {
    let jobs: Vec<Candidate> = (0..30).map(|number| one(number, number)).collect();
    assert_eq!(plan(&jobs, Room { per_provider: 5, ..WIDE }, 0).start.len(), 5);
    let by_place = plan(&jobs, Room { per_workspace: 2, ..WIDE }, 0).start;
    assert_eq!(by_place.len(), 6, "three workspaces");
    assert_eq!(plan(&jobs, Room { running: 0, ..WIDE }, 0), Plan { crowded: true, ..Plan::default() });
}

#[test]
fn times_are_waited_for_and_ends_need_no_room() {
    let mut jobs: Vec<Candidate> = (0..4).map(|number| one(number, number)).collect();
    jobs[0].need = Need::At(500);
    jobs[1].need = Need::At(900);
    jobs[2].need = Need::End;
    jobs[3].need = Need::Nothing;
    let none = Room { running: 0, ..WIDE };
    assert_eq!(plan(&jobs, none, 499), Plan { start: vec![id(2)], next: Some(500), crowded: false });
    assert_eq!(plan(&jobs, WIDE, 600), Plan { start: vec![id(2), id(0)], next: Some(900), crowded: false });
}

#[test]
fn a_job_whose_log_is_damaged_is_never_begun() {
    let mandate = serde_json::json!({ "objective": "x" });
    let mut summary = Summary::default();
    summary.session = Some(id(1));
    summary.job = minke_thread::work::of(Some(&mandate), 0, 0);
    summary.mandate = Some(mandate);
    assert_eq!(summary.candidate(false, 0).unwrap().need, Need::Begin);
    summary.damaged = Some("line 3".to_owned());
    assert_eq!(summary.candidate(false, 0).unwrap().need, Need::Nothing);
}
