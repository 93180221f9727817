//! Torn, flipped and mutated logs: a session always opens with its good prefix, and the loss is reported exactly.

use std::ops::ControlFlow;

use minke_record::line;
use minke_session::{
    AppendError, Disk, FileStore, ScanEnd, SessionStore, StoreError, salvage_entries, survey_damage,
    verify_session,
};
use proptest::prelude::*;

use crate::disk::SimDisk;
use crate::support::{alert, all, file, id, lines, make, reopen, step, store, whole_steps};
use crate::world::{CASES, FLIP_BYTES, MUTATIONS, STRIDE};

fn env_number(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Returns a disk with one session that has only this log.
fn store_with_log(log: &[u8]) -> (SimDisk, FileStore) {
    let disk = SimDisk::new();
    let store = store(&disk);
    make(&store, id(1), 0);
    disk.overwrite(&file(id(1), "log.jsonl"), log).unwrap();
    (disk, store)
}

/// Replaces the log of an existing session, and removes files that an opening created.
fn replace_log(disk: &SimDisk, log: &[u8]) {
    disk.overwrite(&file(id(1), "log.jsonl"), log).unwrap();
    for name in disk.read_dir(&file(id(1), "")).unwrap() {
        if name.starts_with("cut-") || name == "head" {
            disk.remove_file(&file(id(1), &name)).unwrap();
        }
    }
}

fn sample_log(steps: u64) -> Vec<u8> {
    let disk = SimDisk::new();
    make(&store(&disk), id(1), steps);
    disk.file_content(&file(id(1), "log.jsonl")).unwrap()
}

#[test]
fn a_log_torn_at_every_byte_opens_with_its_good_prefix() {
    let log = sample_log(6);
    let (disk, store) = store_with_log(&log);
    for cut in (0..=log.len()).step_by(STRIDE) {
        replace_log(&disk, &log[..cut]);
        let (good, entries) = whole_steps(&log, cut);
        let open = reopen(&store, id(1));
        assert_eq!(open.replay.len(), entries, "cut at {cut}");
        assert!(open.damaged.is_none());
        assert_eq!(disk.file_content(&file(id(1), "log.jsonl")).unwrap(), &log[..good]);
        let cut_files = disk.file_content(&file(id(1), &format!("cut-{good}")));
        if cut == good {
            assert!(open.alerts.is_empty() && cut_files.is_none(), "cut at {cut}: {:?}", open.alerts);
        } else {
            assert_eq!(cut_files.as_deref(), Some(&log[good..cut]), "cut at {cut}");
            let told = format!("{} bytes at the end of log.jsonl, from byte {good}", cut - good);
            assert!(open.alerts[0].starts_with(&told), "{:?}", open.alerts);
        }
        drop(open);
        let mut again = reopen(&store, id(1));
        assert!(again.alerts.is_empty());
        if entries > 0 {
            let next = again.writer.next_seq();
            again.writer.append(step(next, vec![alert("on we go")]), Vec::new()).unwrap();
            assert!(verify_session(&store, id(1), &mut |_| {}).unwrap().is_intact());
        }
    }
}

#[test]
fn a_second_tail_at_the_same_offset_is_kept_beside_the_first() {
    let log = sample_log(2);
    let (disk, store) = store_with_log(&log);
    for tail in [&b"one"[..], b"two", b"two"] {
        let torn = [&log[..], tail].concat();
        disk.overwrite(&file(id(1), "log.jsonl"), &torn).unwrap();
        drop(reopen(&store, id(1)));
    }
    let cut_files = |name: String| disk.file_content(&file(id(1), &name));
    assert_eq!(cut_files(format!("cut-{}", log.len())).as_deref(), Some(&b"one"[..]));
    assert_eq!(cut_files(format!("cut-{}.1", log.len())).as_deref(), Some(&b"two"[..]));
    assert_eq!(cut_files(format!("cut-{}.2", log.len())), None);
}

#[test]
fn a_bad_line_in_the_middle_is_damage_and_nothing_is_cut() {
    let log = sample_log(9);
    let ends: Vec<usize> =
        log.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at + 1).collect();
    for bad in [3, 7, 12] {
        let mut damaged = log.clone();
        let offset = ends[bad - 1];
        damaged[offset + 20] ^= 1;
        let (disk, store) = store_with_log(&damaged);
        let (_, entries) = whole_steps(&log, offset);
        let mut open = reopen(&store, id(1));
        assert_eq!(open.replay.len(), entries);
        let damage = open.damaged.clone().unwrap();
        assert_eq!(
            (damage.file.as_str(), damage.line, damage.offset),
            ("log.jsonl", bad as u64 + 1, offset as u64)
        );
        assert_eq!(damage.seq, entries as u64);
        assert!(open.alerts.iter().any(|alert| alert.contains("log.jsonl is damaged at line")));
        let refused = open.writer.append(step(entries as u64, vec![alert("x")]), Vec::new());
        assert!(matches!(refused, Err(AppendError::Damaged(_))));
        drop(open);
        assert_eq!(disk.file_content(&file(id(1), "log.jsonl")).unwrap(), damaged, "nothing was changed");

        // The entries after it can be surveyed and salvaged, byte for byte.
        let mut seen = Vec::new();
        let verification =
            survey_damage(&store, id(1), &mut |_, text| seen.push(text.to_owned())).unwrap().unwrap();
        assert_eq!(verification.damage, damage);
        assert_eq!(verification.good, entries as u64);
        let after: Vec<String> =
            String::from_utf8_lossy(&log).lines().skip(bad + 1).map(str::to_owned).collect();
        assert!(seen.ends_with(&after), "{seen:?}");
        let to = std::path::Path::new("/salvaged.jsonl");
        assert_eq!(salvage_entries(&store, id(1), to).unwrap().unwrap(), verification);
        let salvaged = String::from_utf8(disk.file_content(to).unwrap()).unwrap();
        assert_eq!(salvaged.lines().collect::<Vec<_>>(), seen);
        assert!(salvage_entries(&store, id(1), to).is_err(), "an existing file is not overwritten");
    }
}

#[test]
fn a_missing_log_file_is_damage() {
    let disk = SimDisk::new();
    let store = store(&disk).with_file_bytes(700);
    let entries = make(&store, id(1), 12);
    minke_session::Disk::remove_file(&disk, &file(id(1), "log.0002.jsonl")).unwrap();
    let open = reopen(&store, id(1));
    let damage = open.damaged.clone().unwrap();
    assert!(damage.reason.contains("log.0002.jsonl is missing"), "{damage}");
    assert!(!open.replay.is_empty() && open.replay.len() < entries.len());
    assert_eq!(lines(&open.replay), lines(&entries[..open.replay.len()]));
    drop(open);
    disk.remove_file(&file(id(1), "log.jsonl")).unwrap();
    let error = store.open(id(1)).map(drop).unwrap_err();
    assert!(
        matches!(&error, StoreError::Damaged { damage, .. } if damage.reason.contains("missing")),
        "{error}"
    );
}

#[test]
fn every_flipped_bit_of_a_log_is_found() {
    let size = usize::try_from(env_number("MINKE_FLIP_BYTES", FLIP_BYTES as u64)).unwrap();
    let disk = SimDisk::new();
    let plain = store(&disk).without_sync();
    let mut writer = plain.create(id(1), step(0, vec![crate::support::start(id(1))]), Vec::new()).unwrap();
    let mut bytes = 0;
    while bytes < size {
        let message = "x".repeat((bytes / 7) % 900);
        let kinds = (0..=bytes % 3).map(|_| alert(&message)).collect();
        let written = writer.append(step(writer.next_seq(), kinds), Vec::new()).unwrap();
        bytes += written.iter().map(|sealed| sealed.line.len() + 1).sum::<usize>();
    }
    drop(writer);
    let log = disk.file_content(&file(id(1), "log.jsonl")).unwrap();
    let (disk, store) = store_with_log(&log);
    assert!(verify_session(&store, id(1), &mut |_| {}).unwrap().is_intact());
    let reader = store.open_reader(id(1)).unwrap();
    let path = file(id(1), "log.jsonl");
    let mut line = 0u64;
    for (at, byte) in log.iter().enumerate() {
        let bits = 1 << (at % 8);
        disk.flip_bits(&path, at, bits);
        // Reading from the previous line on suffices, and is the only way to test every byte of a long log.
        let end = reader.scan_entries(line.saturating_sub(1), &mut |_| ControlFlow::Continue(())).unwrap();
        assert_ne!(end, ScanEnd::Clean { tail: 0 }, "a flip in byte {at} was not found");
        if size <= FLIP_BYTES || at % 10_007 == 0 {
            let verification = verify_session(&store, id(1), &mut |_| {}).unwrap();
            assert!(!verification.is_intact(), "a flip in byte {at} was not found by verify");
        }
        disk.flip_bits(&path, at, bits);
        line += u64::from(*byte == b'\n');
    }
}

#[test]
fn random_mutations_always_open_with_the_good_prefix() {
    mutations_open_with_the_good_prefix(0x5eed);
}

#[test]
fn other_random_mutations_always_open() {
    mutations_open_with_the_good_prefix(0xbeef);
}

#[test]
fn more_random_mutations_always_open() {
    mutations_open_with_the_good_prefix(0xcafe);
}

#[test]
fn the_last_random_mutations_always_open() {
    mutations_open_with_the_good_prefix(0xf00d);
}

/// Tests a quarter of the mutations, selected by the seed.
fn mutations_open_with_the_good_prefix(seed: u64) {
    let count = env_number("MINKE_MUTATIONS", MUTATIONS).div_ceil(4);
    let log = sample_log(7);
    let mut chance = MutationRandom(seed);
    let (disk, store) = store_with_log(&log);
    for round in 0..count {
        let (mutated, first) = mutate(&log, &mut chance);
        replace_log(&disk, &mutated);
        let (good, _) = whole_steps(&log, first.min(log.len()));
        let expected = all_lines(&log[..good]);
        let open = store.open(id(1)).unwrap_or_else(|e| panic!("round {round}: {e}"));
        let verification = lines(&open.replay);
        assert!(
            verification.len() >= expected.len() && verification[..expected.len()] == expected[..],
            "round {round}"
        );
        // Nothing is lost: removed bytes are in the cut file, or the log is unchanged.
        let left = disk.file_content(&file(id(1), "log.jsonl")).unwrap();
        if open.damaged.is_some() {
            assert_eq!(left, mutated, "round {round}");
        } else {
            let cut = disk.file_content(&file(id(1), &format!("cut-{}", left.len()))).unwrap_or_default();
            assert_eq!([left, cut].concat(), mutated, "round {round}");
        }
        // All returned entries form an unbroken chain.
        let mut prev = minke_record::ChainHash::ZERO;
        for text in verification {
            prev = line::check_link(prev, text.as_bytes()).unwrap_or_else(|e| panic!("round {round}: {e}"));
        }
    }
    eprintln!("{count} mutations opened with their good prefix");
}

fn all_lines(log: &[u8]) -> Vec<&str> {
    std::str::from_utf8(log).unwrap().lines().collect()
}

struct MutationRandom(u64);

impl MutationRandom {
    fn random_below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound.max(1) as u64).unwrap()
    }
}

/// Makes one to three random changes, and returns the first changed byte.
fn mutate(log: &[u8], chance: &mut MutationRandom) -> (Vec<u8>, usize) {
    let mut out = log.to_vec();
    let mut first = usize::MAX;
    for _ in 0..=chance.random_below(3) {
        let at = chance.random_below(out.len());
        let to = at + chance.random_below((out.len() - at).min(200));
        first = first.min(at);
        match chance.random_below(8) {
            0 => out[at] ^= 1 << chance.random_below(8),
            1 => out.truncate(at),
            2 => drop(out.drain(at..to)),
            3 => out.insert(at, b'\n'),
            4 => out[at..to].fill(0),
            5 => {
                let copy = out[at..to].to_vec();
                let into = chance.random_below(out.len());
                first = first.min(into);
                out.splice(into..into, copy);
            }
            6 => out.extend((0..chance.random_below(90)).map(|n| u8::try_from(n).unwrap())),
            _ => {
                let ends: Vec<usize> =
                    out.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at + 1).collect();
                if let [.., end] = ends[..] {
                    let from = ends[chance.random_below(ends.len())].min(end);
                    first = first.min(from);
                    out.drain(from..end);
                }
            }
        }
        if out.is_empty() {
            break;
        }
    }
    (out, first)
}

/// Reads any bytes with every reading function; none may panic, and returned entries must be chained.
pub(crate) fn read_anything(log: &[u8], head: &[u8]) {
    let (disk, store) = store_with_log(log);
    disk.overwrite(&file(id(1), "head"), head).unwrap();
    let reader = store.open_reader(id(1)).unwrap();
    let mut prev = minke_record::ChainHash::ZERO;
    let end = reader
        .scan_entries(0, &mut |sealed| {
            prev = line::check_link(prev, sealed.line.as_bytes()).expect("only chained lines are given");
            ControlFlow::Continue(())
        })
        .unwrap();
    let head = reader.head_position().unwrap();
    if matches!(end, ScanEnd::Clean { .. }) {
        assert_eq!(head.map(|head| head.h).unwrap_or_default(), prev);
    }
    reader.read_page(1, 10, 1_000).map(drop).unwrap_or_default();
    reader.position_of(2).unwrap();
    let verification = verify_session(&store, id(1), &mut |_| {}).unwrap();
    let open = store.open(id(1)).map(|open| (open.replay.len(), open.damaged));
    if let (true, Ok((_, damaged))) = (verification.is_intact(), &open) {
        assert_eq!(damaged, &None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        read_anything(&bytes, &bytes);
    }

    #[test]
    fn pieces_of_lines_are_read_without_panic(
        pieces in proptest::collection::vec((0usize..14, 0usize..400, 0usize..400), 0..12),
    ) {
        let log = sample_log(6);
        let mut bytes = Vec::new();
        for (line, from, length) in pieces {
            let line = log.split_inclusive(|b| *b == b'\n').nth(line).unwrap_or_default();
            let from = if from > 300 { 0 } else { from.min(line.len()) };
            let to = if length > 200 { line.len() } else { (from + length).min(line.len()) };
            bytes.extend_from_slice(&line[from.min(to)..to]);
        }
        read_anything(&bytes, b"");
    }
}

#[test]
fn a_line_without_end_is_bounded() {
    let mut log = sample_log(2);
    let good = log.len();
    log.resize(good + (5 << 20), b'x');
    let (disk, store) = store_with_log(&log);
    let open = reopen(&store, id(1));
    assert_eq!(disk.file_content(&file(id(1), "log.jsonl")).unwrap().len(), good);
    assert_eq!(disk.file_content(&file(id(1), &format!("cut-{good}"))).unwrap().len(), 5 << 20);
    assert_eq!(open.replay.len(), all(&store, id(1)).len());
}
