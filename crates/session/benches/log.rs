//! The figures of the log: append without sync, group commit, open + verify + read of a large log, open from the last
//! carry. On a real disk; times inside `fdatasync` are taken out and printed beside.
//!
//! Every figure is a median over the samples printed with it. A goal that is missed is printed as missed.

#![expect(clippy::print_stdout, reason = "the figures are the output")]

use std::io::Write;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use minke_record::{
    Actor, AssistantItem, Carry, Draft, Durability, FORMAT, Facts, History, Item, Kind, Large, Scope,
    SegmentReason, SegmentStart, SessionId, SessionStart,
};
use minke_session::{Disk, DiskFile, FileStore, Meta, OpenHow, RealDisk, Store, Writer, verify};
use serde_json::json;

const ENTRIES: u64 = 100_000;
const STEP: u64 = 16;
const SAMPLES: usize = 9;

fn main() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let disk = Arc::new(Timed::default());
    println!("append, open and verify on {}", home.path().display());
    append(&disk, home.path());
    group_commit(&disk, home.path());
    read_all(&disk, home.path());
    resume(&disk, home.path(), 2_000, 20);
    resume(&disk, home.path(), 10_000, 60);
}

fn append(disk: &Arc<Timed>, home: &Path) {
    let store = FileStore::new(disk.clone(), home.join("append"));
    let (mut rates, mut spent, mut total) = (Vec::new(), Duration::ZERO, 0);
    for n in 0..SAMPLES as u64 {
        let mut writer = create(&store, n);
        let steps: Vec<Vec<Draft>> = prepared(writer.next_seq(), 40_000).collect();
        let (entries, synced) = (40_000 / STEP * STEP, disk.nanos());
        let (started, worked) = (Instant::now(), busy());
        for step in steps {
            writer.append(step, Vec::new()).expect("room on the disk");
        }
        let took = started.elapsed().saturating_sub(Duration::from_nanos(disk.nanos() - synced));
        rates.push(entries as f64 / took.as_secs_f64());
        spent += busy() - worked;
        total += entries;
        drop(writer);
        store.delete(id(n)).expect("nobody holds it");
    }
    let rate = median(&mut rates);
    goal("append of 1 KiB entries in steps of 16, a second", rate, rate >= 300_000.0, ">= 300000", &rates);
    println!("  by processor time: {:.0} a second", total as f64 / spent.as_secs_f64());
}

/// Four threads' worth of barriers share syncs: the writer appends while another thread syncs.
fn group_commit(disk: &Arc<Timed>, home: &Path) {
    let store = FileStore::new(disk.clone(), home.join("commit"));
    let mut writer = create(&store, 1);
    let syncer = writer.syncer();
    let (before, count) = (Instant::now(), disk.count());
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while done.load(Ordering::Acquire) == 0 {
                syncer.sync().expect("a disk that syncs");
            }
        });
        for step in prepared(writer.next_seq(), 4_000) {
            writer.append(step, Vec::new()).expect("room on the disk");
        }
        done.store(1, Ordering::Release);
    });
    syncer.sync().expect("a disk that syncs");
    let took = before.elapsed();
    let syncs = disk.count() - count;
    println!(
        "group commit: 4000 entries in {:.1} ms with {syncs} syncs, {:.2} ms each, {:.0} durable entries a second",
        millis(took),
        millis(took) / syncs as f64,
        4_000.0 / took.as_secs_f64(),
    );
}

fn read_all(disk: &Arc<Timed>, home: &Path) {
    let store = FileStore::new(disk.clone(), home.join("read"));
    let mut writer = create(&store, 1);
    let mut count = 0;
    for step in prepared(writer.next_seq(), ENTRIES) {
        count += step.len() as u64;
        writer.append(step, Vec::new()).expect("room on the disk");
    }
    drop(writer);
    let mut scans = Vec::new();
    let mut verified = Vec::new();
    let mut bytes = 0u64;
    let mut cpu = Duration::ZERO;
    for _ in 0..SAMPLES {
        let (started, worked) = (Instant::now(), busy());
        let reader = store.reader(id(1)).expect("the session is there");
        bytes = 0;
        reader
            .scan(0, &mut |sealed| {
                bytes += sealed.line.len() as u64;
                ControlFlow::Continue(())
            })
            .expect("a good log");
        scans.push(millis(started.elapsed()));
        cpu += busy() - worked;
        let started = Instant::now();
        assert!(verify(&store, id(1), &mut |_| {}).expect("a good log").is_ok());
        verified.push(millis(started.elapsed()));
    }
    let size = bytes as f64 / 1e6;
    let (scan, verify) = (median(&mut scans), median(&mut verified));
    goal(
        &format!("read {count} entries ({size:.0} MB), chain checked, ms"),
        scan,
        scan <= 500.0,
        "<= 500",
        &scans,
    );
    println!("  by processor time: {:.1} ms", millis(cpu) / SAMPLES as f64);
    goal("the same with verify (blobs, epochs, lineage), ms", verify, verify <= 500.0, "<= 500", &verified);
    println!("peak memory so far: {} KiB", peak_kib());
}

fn resume(disk: &Arc<Timed>, home: &Path, after: u64, limit: u64) {
    let store = FileStore::new(disk.clone(), home.join(format!("resume-{after}")));
    let mut writer = create(&store, 1);
    for step in prepared(writer.next_seq(), ENTRIES / 2) {
        writer.append(step, Vec::new()).expect("room on the disk");
    }
    let carry = Carry {
        segment: 0,
        start: 1,
        history: History::Here((0..200).map(|n| Item::user(format!("{n} {}", "x".repeat(500)))).collect()),
        carry: Large::Here(Box::new(Facts::default())),
    };
    let seq = writer.next_seq();
    writer.append(vec![draft(seq, carry.into())], Vec::new()).expect("room on the disk");
    for step in prepared(writer.next_seq(), after) {
        writer.append(step, Vec::new()).expect("room on the disk");
    }
    writer.syncer().sync().expect("a disk that syncs");
    drop(writer);
    let (mut times, mut cpu) = (Vec::new(), Duration::ZERO);
    for _ in 0..SAMPLES {
        let synced = disk.nanos();
        let (started, worked) = (Instant::now(), busy());
        let open = store.open(id(1)).expect("a good log");
        let took = started.elapsed().saturating_sub(Duration::from_nanos(disk.nanos() - synced));
        assert!(open.replay.len() as u64 >= after && open.alerts.is_empty());
        times.push(millis(took));
        cpu += busy() - worked;
    }
    let time = median(&mut times);
    let what = format!("open for resume with {after} entries after the last carry, ms");
    goal(&what, time, time <= limit as f64, &format!("<= {limit}"), &times);
    println!("  by processor time: {:.1} ms", millis(cpu) / SAMPLES as f64);
}

fn goal(what: &str, value: f64, met: bool, wanted: &str, samples: &[f64]) {
    let (low, high) = (samples.first().copied().unwrap_or(0.0), samples.last().copied().unwrap_or(0.0));
    let word = if met { "met" } else { "MISSED" };
    println!("{what}: {value:.1} (goal {wanted}: {word}; {} samples, {low:.1} to {high:.1})", samples.len());
    keep(&json!({ "name": what, "goal": wanted, "samples": samples }));
}

/// Raw samples, one object a line, where `cargo xtask bench` asks for them.
fn keep(figure: &serde_json::Value) {
    let Some(path) = std::env::var_os("MINKE_BENCH_SAMPLES") else { return };
    let mut file = std::fs::File::options().append(true).create(true).open(path).expect("a file for samples");
    writeln!(file, "{figure}").expect("room for samples");
}

fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// What this process has spent on a processor so far, ended threads too: on a shared machine the truer figure. The
/// kernel counts it in hundredths of a second, so it is taken over all samples together.
fn busy() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 =
        after_name.split(' ').skip(12).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// The kernel's own count of the most memory this process had.
fn peak_kib() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or("unknown".to_owned(), |line| line.trim().trim_end_matches(" kB").to_owned())
}

fn id(n: u64) -> SessionId {
    format!("01980000-0000-7000-8000-{n:012x}").parse().expect("an id")
}

fn draft(seq: u64, kind: Kind) -> Draft {
    Draft { seq, ts: 1_780_000_000_000 + seq, run: None, kind, durability: Durability::Lazy }
}

/// Steps of 16 entries whose lines are about 1 KiB long.
fn prepared(from: u64, entries: u64) -> impl Iterator<Item = Vec<Draft>> {
    let text = "The quick brown fox jumps over the lazy dog, and \"so\" on.\n".repeat(14);
    (0..entries / STEP).map(move |step| {
        let first = from + step * STEP;
        let entry = |seq| draft(seq, AssistantItem { call: seq, item: Item::user(text.clone()) }.into());
        (first..first + STEP).map(entry).collect()
    })
}

fn create(store: &FileStore, n: u64) -> Box<dyn Writer> {
    let start = SessionStart {
        session: id(n),
        format: FORMAT,
        version: "bench".to_owned(),
        name: "bench".parse().expect("a name"),
        created_by: Actor::minke(),
        cwd: "/".to_owned(),
        workspace: "/".to_owned(),
        git: None,
        manifest: json!({}),
        scope: Scope::default(),
        mandate: None,
        metadata: None,
        parent: None,
        from: None,
    };
    let segment = SegmentStart {
        segment: 0,
        reason: SegmentReason::Initial,
        system_prompt: "Be brief.".into(),
        tools: Large::Here(Vec::new()),
        config: json!({}),
        history: History::Here(Vec::new()),
        carry: Large::Here(Box::new(Facts::default())),
        compacted_to_seq: None,
        tokens: None,
    };
    store
        .create(id(n), vec![draft(0, start.into()), draft(1, segment.into())], Vec::new())
        .expect("room on the disk")
}

/// The real disk, with the time spent in syncs taken down.
#[derive(Debug, Default)]
struct Timed {
    disk: RealDisk,
    spent: Arc<Spent>,
}

#[derive(Debug, Default)]
struct Spent {
    nanos: AtomicU64,
    count: AtomicU64,
}

impl Spent {
    fn time<T>(&self, call: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let done = call();
        let nanos = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
        done
    }
}

impl Timed {
    fn nanos(&self) -> u64 {
        self.spent.nanos.load(Ordering::Relaxed)
    }

    fn count(&self) -> u64 {
        self.spent.count.load(Ordering::Relaxed)
    }

    fn timed(&self, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        Box::new(TimedFile { file, spent: self.spent.clone() })
    }
}

impl Disk for Timed {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Box<dyn DiskFile>> {
        self.disk.open(path, how).map(|file| self.timed(file))
    }
    fn adopt(&self, fd: OwnedFd) -> io::Result<Box<dyn DiskFile>> {
        self.disk.adopt(fd).map(|file| self.timed(file))
    }
    fn is_at(&self, file: &dyn DiskFile, path: &Path) -> io::Result<bool> {
        self.disk.is_at(file, path)
    }
    fn meta(&self, path: &Path) -> io::Result<Option<Meta>> {
        self.disk.meta(path)
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.spent.time(|| self.disk.sync_dir(path))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_file(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_dir(path)
    }
    fn read_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        self.disk.read_dir(path)
    }
    fn breathe(&self) {
        self.disk.breathe();
    }
}

#[derive(Debug)]
struct TimedFile {
    file: Box<dyn DiskFile>,
    spent: Arc<Spent>,
}

impl DiskFile for TimedFile {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        self.file.append(bytes)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.file.write_at(bytes, offset)
    }
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(bytes, offset)
    }
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }
    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.file.truncate(bytes)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.spent.time(|| self.file.sync_data())
    }
    fn try_lock(&self) -> io::Result<bool> {
        self.file.try_lock()
    }
    fn lock(&self) -> io::Result<()> {
        self.file.lock()
    }
    fn duplicate(&self) -> io::Result<OwnedFd> {
        self.file.duplicate()
    }
    fn identity(&self) -> io::Result<(u64, u64)> {
        self.file.identity()
    }
}
