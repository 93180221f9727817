//! Logs that pods have really written: the simulator's, with deaths, pauses, questions, children and carries in them.

use minke_record::{Entry, Kind};
use minke_testkit::simulated_logs;
use minke_view::{Block, Body, Conversation, Prepended, Standing};

use crate::chance::Chance;
use crate::pages::{folded, plain};
use crate::same::sent;

const SEEDS: u64 = 6;
const ACTS: usize = 600;

fn logs() -> Vec<Vec<Entry>> {
    let of = |seed| simulated_logs(seed, ACTS).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    let logs: Vec<Vec<Entry>> = (0..SEEDS).flat_map(of).collect();
    assert!(logs.iter().map(Vec::len).sum::<usize>() > 500, "the logs say too little");
    logs
}

/// What is told live of a call that still runs, or stands in no log, is not compared.
fn settled(conversation: &Conversation) -> Vec<Block> {
    let mut blocks = plain(conversation);
    blocks.retain(|block| !block.id.live);
    for block in &mut blocks {
        if let Body::Call(call) = &mut block.body
            && !matches!(call.state, minke_view::CallState::Ended(_))
        {
            call.output = minke_view::Tail::default();
            call.exit = None;
        }
    }
    blocks
}

/// What both must know. Where a fold begins in the middle, cards of children and the last request are not there.
fn open(standing: &Standing) -> Standing {
    let mut open = standing.clone();
    open.asks.sort_unstable();
    open.tokens.context = 0;
    open.children.sort_by_key(|child| child.session);
    for child in &mut open.children {
        child.told.clear();
    }
    open.model.clear();
    open.progress = None;
    open.waiting = None;
    open.status = None;
    open
}

/// Says where two conversations differ, not everything that they say.
fn alike(a: &[Block], b: &[Block], which: &str) {
    for at in 0..a.len().max(b.len()) {
        assert_eq!(a.get(at), b.get(at), "{which}, block {at}");
    }
}

#[test]
fn watched_logs_are_read_logs() {
    for (at, log) in logs().iter().enumerate() {
        let replayed = folded(log);
        for seed in 0..4 {
            let mut watched = Conversation::new();
            let mut chance = Chance::new(seed * 31 + at as u64);
            for frame in sent(log, &mut chance) {
                watched.frame(&frame, 5);
            }
            alike(&settled(&watched), &settled(&replayed), &format!("log {at}"));
            assert_eq!(open(watched.standing()), open(replayed.standing()), "log {at}");
        }
    }
}

/// A client that joins and gets these entries in its snapshot.
fn joined(entries: &[Entry]) -> Conversation {
    let greeting = serde_json::json!({ "pod_name": "p", "cwd": "/project" });
    let head = entries.last().expect("there are some");
    let snapshot = minke_protocol::Snapshot {
        entries: entries.to_vec(),
        greeting: serde_json::from_value(greeting).expect("it is one"),
        status: minke_protocol::Status::Idle,
        activity: None,
        waiting: None,
        head: minke_record::Position { seq: head.seq, h: head.h },
        in_flight: minke_protocol::InFlight::default(),
        older: true,
    };
    let mut conversation = Conversation::new();
    conversation.frame(&minke_protocol::Frame::one(minke_protocol::Event::Snapshot(Box::new(snapshot))), 1);
    conversation
}

#[test]
fn logs_in_pages_are_whole_logs() {
    let mut pages = 0;
    for (at, log) in logs().iter().enumerate() {
        let whole = folded(log);
        for seed in 0..6 {
            let mut chance = Chance::new(seed * 77 + at as u64);
            let mut from = chance.below(log.len());
            let mut paged = joined(&log[from..]);
            while from > 0 {
                let before = from - 1 - chance.below(from.min(60));
                let taken = paged.prepend(&log[before..from]);
                assert!(matches!(taken, Prepended::Taken { .. }), "{taken:?}");
                from = before;
                pages += 1;
            }
            alike(&plain(&paged), &plain(&whole), &format!("log {at}, seed {seed}"));
        }
    }
    assert!(pages > 200, "{pages}");
}

/// Whoever begins at a segment knows from its carry what is open.
#[test]
fn a_carry_tells_the_standing() {
    let mut begun = 0;
    for (at, log) in logs().iter().enumerate() {
        let whole = folded(log);
        let starts = log.iter().enumerate().skip(3);
        for (from, _) in
            starts.filter(|(_, entry)| matches!(entry.kind, Kind::SegmentStart(_) | Kind::Carry(_)))
        {
            let later = folded(&log[from..]);
            assert_eq!(open(later.standing()), open(whole.standing()), "log {at} from {from}");
            let asks = |conversation: &Conversation| {
                let blocks = conversation.blocks().iter();
                let mut open: Vec<_> = blocks
                    .filter_map(|block| match &block.body {
                        Body::Ask(card) if !card.closed => Some(card.ask.id),
                        _ => None,
                    })
                    .collect();
                open.sort_unstable();
                open
            };
            assert_eq!(asks(&later), asks(&whole), "log {at} from {from}");
            begun += 1;
        }
    }
    println!("{begun} carries");
    assert!(begun > 5, "{begun}");
}
