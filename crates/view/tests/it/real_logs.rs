//! Logs from the simulator, with crashes, pauses, asks, children and carries.

use minke_record::{Entry, Kind};
use minke_testkit::simulated_logs;
use minke_view::{Block, BlockBody, Conversation, PrependResult, SessionStatus};

use crate::live_matches_log::sent_frames;
use crate::pages::{fold_entries, without_versions};
use crate::random_log::SeededRng;

const SEEDS: u64 = 6;
const MAX_ACTIONS: usize = 600;

fn real_logs() -> Vec<Vec<Entry>> {
    let of = |seed| simulated_logs(seed, MAX_ACTIONS).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    let logs: Vec<Vec<Entry>> = (0..SEEDS).flat_map(of).collect();
    assert!(logs.iter().map(Vec::len).sum::<usize>() > 500, "the logs say too little");
    logs
}

/// Removes live output of running calls and items that are not in the log, which are not compared.
fn settled_blocks(conversation: &Conversation) -> Vec<Block> {
    let mut blocks = without_versions(conversation);
    blocks.retain(|block| !block.id.live);
    for block in &mut blocks {
        if let BlockBody::CallCard(call) = &mut block.body
            && !matches!(call.state, minke_view::CallState::RunEndNotice(_))
        {
            call.output = minke_view::TextTail::default();
            call.exit = None;
        }
    }
    blocks
}

/// The part of the status that both conversations must know. A fold that begins in the middle lacks
/// children's cards and the last request.
fn open_status(status: &SessionStatus) -> SessionStatus {
    let mut open = status.clone();
    open.asks.sort_unstable();
    open.tokens.context_tokens = 0;
    open.children.sort_by_key(|child| child.session);
    for child in &mut open.children {
        child.status_text.clear();
    }
    open.model.clear();
    open.progress = None;
    open.waiting = None;
    open.status = None;
    open
}

/// Reports the first difference of two conversations instead of their full texts.
fn assert_same_blocks(a: &[Block], b: &[Block], which: &str) {
    for at in 0..a.len().max(b.len()) {
        assert_eq!(a.get(at), b.get(at), "{which}, block {at}");
    }
}

#[test]
fn watched_logs_are_read_logs() {
    for (at, log) in real_logs().iter().enumerate() {
        let replayed = fold_entries(log);
        for seed in 0..4 {
            let mut watched = Conversation::new();
            let mut rng = SeededRng::new(seed * 31 + at as u64);
            for frame in sent_frames(log, &mut rng) {
                watched.apply_frame(&frame, 5);
            }
            assert_same_blocks(&settled_blocks(&watched), &settled_blocks(&replayed), &format!("log {at}"));
            assert_eq!(open_status(watched.status()), open_status(replayed.status()), "log {at}");
        }
    }
}

/// A client that joins and receives these entries in its snapshot.
fn join_with_snapshot(entries: &[Entry]) -> Conversation {
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
    conversation.apply_frame(
        &minke_protocol::Frame::new_direct(minke_protocol::Event::Snapshot(Box::new(snapshot))),
        1,
    );
    conversation
}

#[test]
fn logs_in_pages_are_whole_logs() {
    let mut pages = 0;
    for (at, log) in real_logs().iter().enumerate() {
        let whole = fold_entries(log);
        for seed in 0..6 {
            let mut rng = SeededRng::new(seed * 77 + at as u64);
            let mut from = rng.next_below(log.len());
            let mut paged = join_with_snapshot(&log[from..]);
            while from > 0 {
                let before = from - 1 - rng.next_below(from.min(60));
                let applied = paged.prepend_page(&log[before..from]);
                assert!(matches!(applied, PrependResult::Prepended { .. }), "{applied:?}");
                from = before;
                pages += 1;
            }
            assert_same_blocks(
                &without_versions(&paged),
                &without_versions(&whole),
                &format!("log {at}, seed {seed}"),
            );
        }
    }
    assert!(pages > 200, "{pages}");
}

/// A client that starts at a segment gets the open items from the carry.
#[test]
fn a_carry_tells_the_standing() {
    let mut started = 0;
    for (at, log) in real_logs().iter().enumerate() {
        let whole = fold_entries(log);
        let starts = log.iter().enumerate().skip(3);
        for (from, _) in
            starts.filter(|(_, entry)| matches!(entry.kind, Kind::SegmentStart(_) | Kind::Carry(_)))
        {
            let later = fold_entries(&log[from..]);
            assert_eq!(open_status(later.status()), open_status(whole.status()), "log {at} from {from}");
            let asks = |conversation: &Conversation| {
                let blocks = conversation.blocks().iter();
                let mut open: Vec<_> = blocks
                    .filter_map(|block| match &block.body {
                        BlockBody::Ask(card) if !card.closed => Some(card.ask.id),
                        _ => None,
                    })
                    .collect();
                open.sort_unstable();
                open
            };
            assert_eq!(asks(&later), asks(&whole), "log {at} from {from}");
            started += 1;
        }
    }
    println!("{started} carries");
    assert!(started > 5, "{started}");
}
