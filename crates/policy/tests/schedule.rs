//! Calls beside each other: random lists of calls, run to their end by a small simulator that starts what it may.

use minke_policy::{AT_ONCE, Slot, SlotState, conflicts, startable};
use minke_record::Action;

fn read(path: &str) -> Action {
    Action { reads: vec![path.into()], ..Action::default() }
}

fn write(path: &str) -> Action {
    Action { reads: vec![path.into()], writes: vec![path.into()], side_effects: true, ..Action::default() }
}

fn command() -> Action {
    Action { command: Some("make".into()), side_effects: true, ..Action::default() }
}

fn fetch(host: &str) -> Action {
    Action { hosts: vec![host.into()], side_effects: true, ..Action::default() }
}

/// Something with side effects that does not say where.
fn opaque() -> Action {
    Action { side_effects: true, ..Action::default() }
}

fn tells(pod: &str) -> Action {
    Action { pod: Some(pod.into()), side_effects: true, ..Action::default() }
}

fn starts(actions: &[Action]) -> Vec<usize> {
    let slots: Vec<Slot<'_>> =
        actions.iter().map(|action| Slot { state: SlotState::Waiting, action }).collect();
    startable(&slots, AT_ONCE)
}

#[test]
fn which_actions_conflict() {
    let free = [
        (read("/w/a"), read("/w/a")),
        (read("/w"), read("/w/a")),
        (read("/w/a"), write("/w/b")),
        (write("/w/a"), write("/w/b")),
        (write("/w/a"), write("/w/ab")),
        (write("/w/a"), Action::default()),
        (fetch("x"), fetch("x")),
        (fetch("x"), read("/w/a")),
        (fetch("x"), write("/w/a")),
        (tells("a"), tells("b")),
        (Action::default(), Action::default()),
    ];
    for (a, b) in free {
        assert!(!conflicts(&a, &b) && !conflicts(&b, &a), "{a:?} {b:?}");
    }
    let apart = [
        (write("/w/a"), write("/w/a")),
        (write("/w/a"), read("/w/a")),
        (write("/w/a"), read("/w/A")),
        (write("/w/a/b"), read("/w")),
        (write("/w/a/b"), read("/")),
        (write("/w/a"), write("/w/a/b")),
        (command(), read("/w/a")),
        (command(), write("/w/a")),
        (command(), command()),
        // What another call says of a command it started.
        (command(), Action::default()),
        (opaque(), Action::default()),
        (command(), fetch("x")),
        (opaque(), opaque()),
        (opaque(), read("/w/a")),
        (tells("a"), tells("a")),
    ];
    for (a, b) in apart {
        assert!(conflicts(&a, &b) && conflicts(&b, &a), "{a:?} {b:?}");
    }
}

#[test]
fn calls_that_do_not_conflict_start_together() {
    assert_eq!(starts(&[read("/w/a"), read("/w/b"), write("/w/c"), fetch("x")]), [0, 1, 2, 3]);
    assert_eq!(
        starts(&[write("/w/a"), command(), read("/w/b")]),
        [0],
        "a read behind a command waits for it"
    );
    assert_eq!(starts(&[read("/w/a"), write("/w/a"), read("/w/a"), read("/w/b")]), [0, 3]);
    assert_eq!(starts(&vec![read("/w/a"); 20]).len(), AT_ONCE);
    assert_eq!(starts(&[]), Vec::<usize>::new());
}

#[test]
fn an_ask_holds_only_what_conflicts_with_it() {
    let (asked, same, other) = (write("/w/a"), read("/w/a"), read("/w/b"));
    let slot = |state, action| Slot { state, action };
    let calls =
        [slot(SlotState::Blocked, &asked), slot(SlotState::Waiting, &same), slot(SlotState::Waiting, &other)];
    assert_eq!(startable(&calls, AT_ONCE), [2]);
    assert_eq!(startable(&calls, 0), Vec::<usize>::new());
    // One that was let through runs; the asked one, now approved, must not meet it.
    let calls = [slot(SlotState::Waiting, &asked), slot(SlotState::Running, &same)];
    assert_eq!(startable(&calls, AT_ONCE), Vec::<usize>::new());
}

struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % end as u64).expect("smaller than `end`")
    }

    fn action(&mut self) -> Action {
        let path = ["/w", "/w/a", "/w/a/b", "/w/c", "/v"][self.below(5)];
        match self.below(12) {
            0 => command(),
            1 => fetch("x"),
            2 => opaque(),
            3 => Action::default(),
            4 => tells("a"),
            5..8 => write(path),
            _ => read(path),
        }
    }
}

/// How far a simulated call is.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Asking,
    Waiting,
    Running,
    Ended,
}

#[test]
fn conflicting_calls_keep_their_order_and_never_meet() {
    let mut chance = Chance(9);
    let mut most = 0;
    for round in 0..5_000 {
        let actions: Vec<Action> = (0..1 + chance.below(14)).map(|_| chance.action()).collect();
        let mut stages: Vec<Stage> = actions
            .iter()
            .map(|_| if chance.below(5) == 0 { Stage::Asking } else { Stage::Waiting })
            .collect();
        let mut began: Vec<usize> = Vec::new();
        while stages.iter().any(|stage| *stage != Stage::Ended) {
            let open: Vec<usize> = (0..actions.len()).filter(|i| stages[*i] != Stage::Ended).collect();
            let slots: Vec<Slot<'_>> = open
                .iter()
                .map(|i| {
                    let state = match stages[*i] {
                        Stage::Asking => SlotState::Blocked,
                        Stage::Running => SlotState::Running,
                        _ => SlotState::Waiting,
                    };
                    Slot { state, action: &actions[*i] }
                })
                .collect();
            for place in startable(&slots, AT_ONCE) {
                let call = open[place];
                assert!(stages[call] == Stage::Waiting, "{round}: only what waits is started");
                stages[call] = Stage::Running;
                began.push(call);
            }
            let running: Vec<usize> = open.into_iter().filter(|i| stages[*i] == Stage::Running).collect();
            most = most.max(running.len());
            assert!(running.len() <= AT_ONCE);
            for (n, a) in running.iter().enumerate() {
                for b in running.iter().skip(n + 1) {
                    assert!(!conflicts(&actions[*a], &actions[*b]), "{round}: {a} and {b} meet");
                }
            }
            // Somebody always gets on: a running call ends, or a question is answered.
            let asking: Vec<usize> = (0..actions.len()).filter(|i| stages[*i] == Stage::Asking).collect();
            assert!(!running.is_empty() || !asking.is_empty(), "{round}: nothing can go on: {actions:?}");
            if running.is_empty() || (!asking.is_empty() && chance.below(3) == 0) {
                stages[asking[chance.below(asking.len())]] = Stage::Waiting;
            } else {
                stages[running[chance.below(running.len())]] = Stage::Ended;
            }
        }
        for (n, later) in began.iter().enumerate() {
            for after in began.iter().skip(n + 1) {
                let swapped = after < later && conflicts(&actions[*after], &actions[*later]);
                assert!(!swapped, "{round}: {later} began before {after}: {actions:?}");
            }
        }
    }
    assert_eq!(most, AT_ONCE, "the list of calls is long enough to fill the limit");
}
