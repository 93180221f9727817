//! Benchmarks of the log: append without sync, group commit, open + verify + read of a large log, open from the last
//! carry. Runs on a real disk; the time inside `fdatasync` is subtracted and printed separately.
//!
//! Each figure is the median of the printed samples. A missed goal is printed as missed.

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
    Actor, AssistantItem, Carry, Draft, Durability, History, Item, Kind, LOG_FORMAT, Large, Scope,
    SegmentReason, SegmentStart, SessionFacts, SessionId, SessionStart,
};
use minke_session::{
    Disk, DiskFile, FileMeta, FileStore, OpenMode, RealDisk, SessionStore, Writer, verify_session,
};
use serde_json::json;

const ENTRY_COUNT: u64 = 100_000;
const ENTRIES_PER_STEP: u64 = 16;
const SAMPLE_COUNT: usize = 9;

fn main() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let disk = Arc::new(TimedDisk::default());
    println!("append, open and verify on {}", home.path().display());
    bench_append(&disk, home.path());
    bench_group_commit(&disk, home.path());
    bench_read_all(&disk, home.path());
    bench_resume(&disk, home.path(), 2_000, 20);
    bench_resume(&disk, home.path(), 10_000, 60);
}

fn bench_append(disk: &Arc<TimedDisk>, home: &Path) {
    let store = FileStore::new(disk.clone(), home.join("append"));
    let (mut rates, mut spent, mut total) = (Vec::new(), Duration::ZERO, 0);
    for n in 0..SAMPLE_COUNT as u64 {
        let mut writer = create_session(&store, n);
        let steps: Vec<Vec<Draft>> = prepared_steps(writer.next_seq(), 40_000).collect();
        let (entries, synced) = (40_000 / ENTRIES_PER_STEP * ENTRIES_PER_STEP, disk.sync_nanos());
        let (started, worked) = (Instant::now(), cpu_time());
        for step in steps {
            writer.append(step, Vec::new()).expect("room on the disk");
        }
        let took = started.elapsed().saturating_sub(Duration::from_nanos(disk.sync_nanos() - synced));
        rates.push(entries as f64 / took.as_secs_f64());
        spent += cpu_time() - worked;
        total += entries;
        drop(writer);
        store.delete(session_id(n)).expect("the lease is free");
    }
    let rate = median(&mut rates);
    report_goal(
        "append of 1 KiB entries in steps of 16, per second",
        rate,
        rate >= 300_000.0,
        ">= 300000",
        &rates,
    );
    println!("  by CPU time: {:.0} per second", total as f64 / spent.as_secs_f64());
}

/// The writer appends while another thread syncs, so that several steps share one sync.
fn bench_group_commit(disk: &Arc<TimedDisk>, home: &Path) {
    let store = FileStore::new(disk.clone(), home.join("commit"));
    let mut writer = create_session(&store, 1);
    let syncer = writer.syncer();
    let (before, count) = (Instant::now(), disk.sync_count());
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while done.load(Ordering::Acquire) == 0 {
                syncer.sync().expect("a disk that syncs");
            }
        });
        for step in prepared_steps(writer.next_seq(), 4_000) {
            writer.append(step, Vec::new()).expect("room on the disk");
        }
        done.store(1, Ordering::Release);
    });
    syncer.sync().expect("a disk that syncs");
    let took = before.elapsed();
    let syncs = disk.sync_count() - count;
    println!(
        "group commit: 4000 entries in {:.1} ms with {syncs} syncs, {:.2} ms each, {:.0} durable entries per second",
        to_millis(took),
        to_millis(took) / syncs as f64,
        4_000.0 / took.as_secs_f64(),
    );
}

fn bench_read_all(disk: &Arc<TimedDisk>, home: &Path) {
    let store = FileStore::new(disk.clone(), home.join("read"));
    let mut writer = create_session(&store, 1);
    let mut count = 0;
    for step in prepared_steps(writer.next_seq(), ENTRY_COUNT) {
        count += step.len() as u64;
        writer.append(step, Vec::new()).expect("room on the disk");
    }
    drop(writer);
    let mut scans = Vec::new();
    let mut verified = Vec::new();
    let mut bytes = 0u64;
    let mut cpu = Duration::ZERO;
    for _ in 0..SAMPLE_COUNT {
        let (started, worked) = (Instant::now(), cpu_time());
        let reader = store.open_reader(session_id(1)).expect("the session exists");
        bytes = 0;
        reader
            .scan_entries(0, &mut |sealed| {
                bytes += sealed.line.len() as u64;
                ControlFlow::Continue(())
            })
            .expect("an intact log");
        scans.push(to_millis(started.elapsed()));
        cpu += cpu_time() - worked;
        let started = Instant::now();
        assert!(verify_session(&store, session_id(1), &mut |_| {}).expect("an intact log").is_intact());
        verified.push(to_millis(started.elapsed()));
    }
    let size = bytes as f64 / 1e6;
    let (scan, verify) = (median(&mut scans), median(&mut verified));
    report_goal(
        &format!("read {count} entries ({size:.0} MB) with chain check, ms"),
        scan,
        scan <= 500.0,
        "<= 500",
        &scans,
    );
    println!("  by CPU time: {:.1} ms", to_millis(cpu) / SAMPLE_COUNT as f64);
    report_goal(
        "the same with verify (blobs, epochs, lineage), ms",
        verify,
        verify <= 500.0,
        "<= 500",
        &verified,
    );
    println!("peak memory so far: {} KiB", peak_kib());
}

fn bench_resume(disk: &Arc<TimedDisk>, home: &Path, after: u64, limit: u64) {
    let store = FileStore::new(disk.clone(), home.join(format!("resume-{after}")));
    let mut writer = create_session(&store, 1);
    for step in prepared_steps(writer.next_seq(), ENTRY_COUNT / 2) {
        writer.append(step, Vec::new()).expect("room on the disk");
    }
    let carry = Carry {
        segment: 0,
        start: 1,
        history: History::Here(
            (0..200).map(|n| Item::user_message(format!("{n} {}", "x".repeat(500)))).collect(),
        ),
        carry: Large::Here(Box::new(SessionFacts::default())),
    };
    let seq = writer.next_seq();
    writer.append(vec![entry_draft(seq, carry.into())], Vec::new()).expect("room on the disk");
    for step in prepared_steps(writer.next_seq(), after) {
        writer.append(step, Vec::new()).expect("room on the disk");
    }
    writer.syncer().sync().expect("a disk that syncs");
    drop(writer);
    let (mut times, mut cpu) = (Vec::new(), Duration::ZERO);
    for _ in 0..SAMPLE_COUNT {
        let synced = disk.sync_nanos();
        let (started, worked) = (Instant::now(), cpu_time());
        let open = store.open(session_id(1)).expect("an intact log");
        let took = started.elapsed().saturating_sub(Duration::from_nanos(disk.sync_nanos() - synced));
        assert!(open.replay.len() as u64 >= after && open.alerts.is_empty());
        times.push(to_millis(took));
        cpu += cpu_time() - worked;
    }
    let time = median(&mut times);
    let what = format!("open for resume with {after} entries after the last carry, ms");
    report_goal(&what, time, time <= limit as f64, &format!("<= {limit}"), &times);
    println!("  by CPU time: {:.1} ms", to_millis(cpu) / SAMPLE_COUNT as f64);
}

fn report_goal(what: &str, value: f64, met: bool, wanted: &str, samples: &[f64]) {
    let (low, high) = (samples.first().copied().unwrap_or(0.0), samples.last().copied().unwrap_or(0.0));
    let word = if met { "met" } else { "MISSED" };
    println!("{what}: {value:.1} (goal {wanted}: {word}; {} samples, {low:.1} to {high:.1})", samples.len());
    write_samples(&json!({ "name": what, "goal": wanted, "samples": samples }));
}

/// Appends the raw samples as one JSON line to the file that `cargo xtask bench` names.
fn write_samples(figure: &serde_json::Value) {
    let Some(path) = std::env::var_os("MINKE_BENCH_SAMPLES") else { return };
    let mut file = std::fs::File::options().append(true).create(true).open(path).expect("a file for samples");
    writeln!(file, "{figure}").expect("room for samples");
}

fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn to_millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Returns the CPU time of this process so far, including ended threads. It is more stable than elapsed time on a
/// shared machine. The kernel counts hundredths of a second, so it is measured over all samples together.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 =
        after_name.split(' ').skip(12).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Returns the peak memory of this process as the kernel counts it.
fn peak_kib() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or("unknown".to_owned(), |line| line.trim().trim_end_matches(" kB").to_owned())
}

fn session_id(n: u64) -> SessionId {
    format!("01980000-0000-7000-8000-{n:012x}").parse().expect("an id")
}

fn entry_draft(seq: u64, kind: Kind) -> Draft {
    Draft { seq, ts: 1_780_000_000_000 + seq, run: None, kind, durability: Durability::Lazy }
}

/// Returns steps of 16 entries with lines of about 1 KiB.
fn prepared_steps(from: u64, entries: u64) -> impl Iterator<Item = Vec<Draft>> {
    let text = "The quick brown fox jumps over the lazy dog, and \"so\" on.\n".repeat(14);
    (0..entries / ENTRIES_PER_STEP).map(move |step| {
        let first = from + step * ENTRIES_PER_STEP;
        let entry = |seq| {
            entry_draft(seq, AssistantItem { call: seq, item: Item::user_message(text.clone()) }.into())
        };
        (first..first + ENTRIES_PER_STEP).map(entry).collect()
    })
}

fn create_session(store: &FileStore, n: u64) -> Box<dyn Writer> {
    let start = SessionStart {
        session: session_id(n),
        format: LOG_FORMAT,
        version: "bench".to_owned(),
        name: "bench".parse().expect("a name"),
        created_by: Actor::from_minke(),
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
        carry: Large::Here(Box::new(SessionFacts::default())),
        compacted_to_seq: None,
        tokens: None,
    };
    store
        .create(session_id(n), vec![entry_draft(0, start.into()), entry_draft(1, segment.into())], Vec::new())
        .expect("room on the disk")
}

/// The real disk, which measures the time of syncs.
#[derive(Debug, Default)]
struct TimedDisk {
    disk: RealDisk,
    sync_time: Arc<SyncTime>,
}

#[derive(Debug, Default)]
struct SyncTime {
    nanos: AtomicU64,
    count: AtomicU64,
}

impl SyncTime {
    fn measure<T>(&self, call: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let done = call();
        let nanos = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
        done
    }
}

impl TimedDisk {
    fn sync_nanos(&self) -> u64 {
        self.sync_time.nanos.load(Ordering::Relaxed)
    }

    fn sync_count(&self) -> u64 {
        self.sync_time.count.load(Ordering::Relaxed)
    }

    fn wrap_file(&self, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        Box::new(TimedFile { file, sync_time: self.sync_time.clone() })
    }
}

impl Disk for TimedDisk {
    fn open(&self, path: &Path, how: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        self.disk.open(path, how).map(|file| self.wrap_file(file))
    }
    fn adopt_fd(&self, fd: OwnedFd) -> io::Result<Box<dyn DiskFile>> {
        self.disk.adopt_fd(fd).map(|file| self.wrap_file(file))
    }
    fn is_file_at(&self, file: &dyn DiskFile, path: &Path) -> io::Result<bool> {
        self.disk.is_file_at(file, path)
    }
    fn metadata(&self, path: &Path) -> io::Result<Option<FileMeta>> {
        self.disk.metadata(path)
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.sync_time.measure(|| self.disk.sync_dir(path))
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
    fn pause_briefly(&self) {
        self.disk.pause_briefly();
    }
}

#[derive(Debug)]
struct TimedFile {
    file: Box<dyn DiskFile>,
    sync_time: Arc<SyncTime>,
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
        self.sync_time.measure(|| self.file.sync_data())
    }
    fn try_lock(&self) -> io::Result<bool> {
        self.file.try_lock()
    }
    fn lock(&self) -> io::Result<()> {
        self.file.lock()
    }
    fn duplicate_fd(&self) -> io::Result<OwnedFd> {
        self.file.duplicate_fd()
    }
    fn file_identity(&self) -> io::Result<(u64, u64)> {
        self.file.file_identity()
    }
}
