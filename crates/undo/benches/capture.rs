//! The figures of undo: what a capture costs, first and when nothing has changed, over 10,000 files in 1,000 directories.
//!
//! Every figure is a median over the samples printed with it; a goal that is missed is printed as missed. Beside the time
//! stands the CPU time of the calling thread, which another program on the same machine hardly lengthens; a capture has
//! others beside it. The floor is listing the same directories and asking for every file's metadata, in one thread, with
//! the standard library.

#![expect(clippy::print_stdout, reason = "the figures are the output")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use minke_files::{Files, FilesConfig};
use minke_policy::secrets;
use minke_record::{Scope, SnapshotWhen};
use minke_undo::{Capture, Limits};

const DIRECTORIES: usize = 1_000;
const FILES: usize = 10;
const SAMPLES: usize = 21;
const GOAL: Duration = Duration::from_millis(50);
/// After this time the files are old enough to be trusted.
const SETTLED: Duration = Duration::from_millis(2_100);

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
    std::thread::sleep(SETTLED);

    let scope = Scope::write(root.to_str().expect("a text"));
    let masked = secrets("/home/somebody").into_iter().map(Into::into).collect();
    let files = Files::new(FilesConfig { scope, masked, ..FilesConfig::default() }).expect("it can be held");
    let mut capture = Capture::new(Limits::default());
    let mut bytes = 0;
    let mut keep = |blob: Vec<u8>| {
        bytes += blob.len();
        Ok(format!("blob-{bytes}"))
    };
    let first = capture.capture(&files, &SnapshotWhen::Before, &mut keep).expect("it is not too much");
    println!("first capture: {} paths, {} read, {:?}", first.scanned, first.read, first.took);

    let (took, cpu) = measure(&mut || {
        let taken = capture.capture(&files, &SnapshotWhen::Before, &mut keep).expect("as before");
        assert_eq!((taken.read, taken.files.len()), (0, 0), "nothing has changed");
    });
    let goal = if took <= GOAL { "met" } else { "MISSED" };
    println!("unchanged: {took:?}, CPU {cpu:?} (medians of {SAMPLES}); goal {GOAL:?}: {goal}");
    let (took, cpu) = measure(&mut || assert!(count(&root) > DIRECTORIES * FILES));
    println!("listing alone: {took:?}, CPU {cpu:?} (medians of {SAMPLES})");
}

/// Time and CPU time of a piece of work.
fn measure(work: &mut dyn FnMut()) -> (Duration, Duration) {
    let (mut took, mut cpu) = (Vec::new(), Vec::new());
    for _ in 0..SAMPLES {
        let (began, used) = (Instant::now(), thread_time());
        work();
        took.push(began.elapsed());
        cpu.push(thread_time() - used);
    }
    (median(&mut took), median(&mut cpu))
}

fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

fn median(samples: &mut [Duration]) -> Duration {
    samples.sort();
    samples.get(samples.len() / 2).copied().unwrap_or_default()
}

fn count(directory: &Path) -> usize {
    let entries = fs::read_dir(directory).expect("a directory");
    entries
        .map(|entry| {
            let entry = entry.expect("an entry");
            let meta = entry.metadata().expect("metadata");
            1 + if meta.is_dir() { count(&entry.path()) } else { 0 }
        })
        .sum()
}
