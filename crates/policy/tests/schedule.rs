//! Concurrent calls: a small simulator runs random lists of calls to their end.

use minke_policy::{CallSlot, CallSlotState, MAX_RUNNING_CALLS, actions_conflict, startable_calls};
use minke_record::Action;

fn read_action(path: &str) -> Action {
    Action { reads: vec![path.into()], ..Action::default() }
}

fn write_action(path: &str) -> Action {
    Action { reads: vec![path.into()], writes: vec![path.into()], side_effects: true, ..Action::default() }
}

fn command_action() -> Action {
    Action { command: Some("make".into()), side_effects: true, ..Action::default() }
}

fn fetch_action(host: &str) -> Action {
    Action { hosts: vec![host.into()], side_effects: true, ..Action::default() }
}

/// Returns an action with side effects and without declared paths.
fn opaque_action() -> Action {
    Action { side_effects: true, ..Action::default() }
}

fn pod_action(pod: &str) -> Action {
    Action { pod: Some(pod.into()), side_effects: true, ..Action::default() }
}

fn startable_indexes(actions: &[Action]) -> Vec<usize> {
    let slots: Vec<CallSlot<'_>> =
        actions.iter().map(|action| CallSlot { state: CallSlotState::Waiting, action }).collect();
    startable_calls(&slots, MAX_RUNNING_CALLS)
}

#[test]
fn which_actions_conflict() {
    let free = [
        (read_action("/w/a"), read_action("/w/a")),
        (read_action("/w"), read_action("/w/a")),
        (read_action("/w/a"), write_action("/w/b")),
        (write_action("/w/a"), write_action("/w/b")),
        (write_action("/w/a"), write_action("/w/ab")),
        (write_action("/w/a"), Action::default()),
        (fetch_action("x"), fetch_action("x")),
        (fetch_action("x"), read_action("/w/a")),
        (fetch_action("x"), write_action("/w/a")),
        (pod_action("a"), pod_action("b")),
        (Action::default(), Action::default()),
    ];
    for (a, b) in free {
        assert!(!actions_conflict(&a, &b) && !actions_conflict(&b, &a), "{a:?} {b:?}");
    }
    let apart = [
        (write_action("/w/a"), write_action("/w/a")),
        (write_action("/w/a"), read_action("/w/a")),
        (write_action("/w/a"), read_action("/w/A")),
        (write_action("/w/a/b"), read_action("/w")),
        (write_action("/w/a/b"), read_action("/")),
        (write_action("/w/a"), write_action("/w/a/b")),
        (command_action(), read_action("/w/a")),
        (command_action(), write_action("/w/a")),
        (command_action(), command_action()),
        // For example a call that reports on a command which it started.
        (command_action(), Action::default()),
        (opaque_action(), Action::default()),
        (command_action(), fetch_action("x")),
        (opaque_action(), opaque_action()),
        (opaque_action(), read_action("/w/a")),
        (pod_action("a"), pod_action("a")),
    ];
    for (a, b) in apart {
        assert!(actions_conflict(&a, &b) && actions_conflict(&b, &a), "{a:?} {b:?}");
    }
}

#[test]
fn calls_that_do_not_conflict_start_together() {
    assert_eq!(
        startable_indexes(&[
            read_action("/w/a"),
            read_action("/w/b"),
            write_action("/w/c"),
            fetch_action("x")
        ]),
        [0, 1, 2, 3]
    );
    assert_eq!(
        startable_indexes(&[write_action("/w/a"), command_action(), read_action("/w/b")]),
        [0],
        "a read after a command waits for it"
    );
    assert_eq!(
        startable_indexes(&[
            read_action("/w/a"),
            write_action("/w/a"),
            read_action("/w/a"),
            read_action("/w/b")
        ]),
        [0, 3]
    );
    assert_eq!(startable_indexes(&vec![read_action("/w/a"); 20]).len(), MAX_RUNNING_CALLS);
    assert_eq!(startable_indexes(&[]), Vec::<usize>::new());
}

#[test]
fn an_ask_holds_only_what_conflicts_with_it() {
    let (asked, same, other) = (write_action("/w/a"), read_action("/w/a"), read_action("/w/b"));
    let slot = |state, action| CallSlot { state, action };
    let calls = [
        slot(CallSlotState::Blocked, &asked),
        slot(CallSlotState::Waiting, &same),
        slot(CallSlotState::Waiting, &other),
    ];
    assert_eq!(startable_calls(&calls, MAX_RUNNING_CALLS), [2]);
    assert_eq!(startable_calls(&calls, 0), Vec::<usize>::new());
    // A call that was let through runs; the asked call is approved now and must not run at the same time.
    let calls = [slot(CallSlotState::Waiting, &asked), slot(CallSlotState::Running, &same)];
    assert_eq!(startable_calls(&calls, MAX_RUNNING_CALLS), Vec::<usize>::new());
}

struct ScheduleRng(u64);

impl ScheduleRng {
    fn next_below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % end as u64).expect("smaller than `end`")
    }

    fn random_action(&mut self) -> Action {
        let path = ["/w", "/w/a", "/w/a/b", "/w/c", "/v"][self.next_below(5)];
        match self.next_below(12) {
            0 => command_action(),
            1 => fetch_action("x"),
            2 => opaque_action(),
            3 => Action::default(),
            4 => pod_action("a"),
            5..8 => write_action(path),
            _ => read_action(path),
        }
    }
}

/// The state of a simulated call.
#[derive(Clone, Copy, PartialEq)]
enum CallStage {
    Asking,
    Waiting,
    Running,
    Ended,
}

#[test]
fn conflicting_calls_keep_their_order_and_never_meet() {
    let mut rng = ScheduleRng(9);
    let mut most = 0;
    for round in 0..5_000 {
        let actions: Vec<Action> = (0..1 + rng.next_below(14)).map(|_| rng.random_action()).collect();
        let mut stages: Vec<CallStage> = actions
            .iter()
            .map(|_| if rng.next_below(5) == 0 { CallStage::Asking } else { CallStage::Waiting })
            .collect();
        let mut began: Vec<usize> = Vec::new();
        while stages.iter().any(|stage| *stage != CallStage::Ended) {
            let open: Vec<usize> = (0..actions.len()).filter(|i| stages[*i] != CallStage::Ended).collect();
            let slots: Vec<CallSlot<'_>> = open
                .iter()
                .map(|i| {
                    let state = match stages[*i] {
                        CallStage::Asking => CallSlotState::Blocked,
                        CallStage::Running => CallSlotState::Running,
                        _ => CallSlotState::Waiting,
                    };
                    CallSlot { state, action: &actions[*i] }
                })
                .collect();
            for place in startable_calls(&slots, MAX_RUNNING_CALLS) {
                let call = open[place];
                assert!(stages[call] == CallStage::Waiting, "{round}: only what waits is started");
                stages[call] = CallStage::Running;
                began.push(call);
            }
            let running: Vec<usize> = open.into_iter().filter(|i| stages[*i] == CallStage::Running).collect();
            most = most.max(running.len());
            assert!(running.len() <= MAX_RUNNING_CALLS);
            for (n, a) in running.iter().enumerate() {
                for b in running.iter().skip(n + 1) {
                    assert!(!actions_conflict(&actions[*a], &actions[*b]), "{round}: {a} and {b} meet");
                }
            }
            // There is always progress: a running call ends, or an approval request is answered.
            let asking: Vec<usize> = (0..actions.len()).filter(|i| stages[*i] == CallStage::Asking).collect();
            assert!(
                !running.is_empty() || !asking.is_empty(),
                "{round}: no progress is possible: {actions:?}"
            );
            if running.is_empty() || (!asking.is_empty() && rng.next_below(3) == 0) {
                stages[asking[rng.next_below(asking.len())]] = CallStage::Waiting;
            } else {
                stages[running[rng.next_below(running.len())]] = CallStage::Ended;
            }
        }
        for (n, later) in began.iter().enumerate() {
            for after in began.iter().skip(n + 1) {
                let swapped = after < later && actions_conflict(&actions[*after], &actions[*later]);
                assert!(!swapped, "{round}: {later} began before {after}: {actions:?}");
            }
        }
    }
    assert_eq!(most, MAX_RUNNING_CALLS, "the list of calls is long enough to fill the limit");
}
