//! Benchmarks of undo: the first capture and an unchanged one, over 10,000 files in 1,000 directories.
//!
//! Every figure is the median of the samples printed with it; a missed goal is printed as missed. The CPU
//! time of the calling thread is printed too, because other programs hardly affect it; a capture also uses
//! other threads. The baseline is a single-threaded listing of the same directories with metadata, using the
//! standard library.

#![expect(clippy::print_stdout, reason = "the figures are the output")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use minke_files::{FilesConfig, ScopedFiles};
use minke_policy::secret_paths;
use minke_record::{Scope, SnapshotWhen};
use minke_undo::{CaptureLimits, ScopeCapture};

const DIRECTORIES: usize = 1_000;
const FILES: usize = 10;
const SAMPLES: usize = 21;
const GOAL: Duration = Duration::from_millis(50);
/// After this time the files are old enough to be trusted.
const SETTLE_TIME: Duration = Duration::from_millis(2_100);

fn main() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let root = temp.path().canonicalize().expect("it exists").join("w");
    for directory in 0..DIRECTORIES {
        let path = root.join(format!("part{}/module{directory}", directory % 20));
        fs::create_dir_all(&path).expect("a directory");
        for file in 0..FILES {
            let content = format!("file {file} of {directory}\n").repeat(100);
            fs::write(path.join(format!("source_file_{file}.rs")), content).expect("a file");
        }
    }
    fs::write(root.join(".gitignore"), "target/\n*.o\n*.log\n/build\nnode_modules\n").expect("a file");
    std::thread::sleep(SETTLE_TIME);

    let scope = Scope::writable(root.to_str().expect("a text"));
    let masked = secret_paths("/home/somebody").into_iter().map(Into::into).collect();
    let files =
        ScopedFiles::new(FilesConfig { scope, masked, ..FilesConfig::default() }).expect("it can be held");
    let mut capture = ScopeCapture::new(CaptureLimits::default());
    let mut bytes = 0;
    let mut store_blob = |blob: Vec<u8>| {
        bytes += blob.len();
        Ok(format!("blob-{bytes}"))
    };
    let first =
        capture.capture_scope(&files, &SnapshotWhen::Before, &mut store_blob).expect("it is not too much");
    println!("first capture: {} paths, {} read, {:?}", first.scanned, first.files_read, first.elapsed);

    let (took, cpu) = measure_work(&mut || {
        let report =
            capture.capture_scope(&files, &SnapshotWhen::Before, &mut store_blob).expect("as before");
        assert_eq!((report.files_read, report.files.len()), (0, 0), "nothing has changed");
    });
    let goal = if took <= GOAL { "met" } else { "MISSED" };
    println!("unchanged: {took:?}, CPU {cpu:?} (medians of {SAMPLES}); goal {GOAL:?}: {goal}");
    let (took, cpu) = measure_work(&mut || assert!(count_entries(&root) > DIRECTORIES * FILES));
    println!("listing alone: {took:?}, CPU {cpu:?} (medians of {SAMPLES})");
}

/// Time and CPU time of a piece of work.
fn measure_work(work: &mut dyn FnMut()) -> (Duration, Duration) {
    let (mut took, mut cpu) = (Vec::new(), Vec::new());
    for _ in 0..SAMPLES {
        let (began, used) = (Instant::now(), thread_time());
        work();
        took.push(began.elapsed());
        cpu.push(thread_time() - used);
    }
    (median_of(&mut took), median_of(&mut cpu))
}

fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

fn median_of(samples: &mut [Duration]) -> Duration {
    samples.sort();
    samples.get(samples.len() / 2).copied().unwrap_or_default()
}

fn count_entries(directory: &Path) -> usize {
    let entries = fs::read_dir(directory).expect("a directory");
    entries
        .map(|entry| {
            let entry = entry.expect("an entry");
            let meta = entry.metadata().expect("metadata");
            1 + if meta.is_dir() { count_entries(&entry.path()) } else { 0 }
        })
        .sum()
}
