//! The figures of completions: names in a tree of 100,000 files, the first question and those that follow.
//!
//! The first question makes the index and waits a moment for it; every other one is answered from memory. Each figure is
//! the median and the longest of the samples printed with it; a goal that is missed is printed as missed.

#![expect(clippy::print_stdout, reason = "the figures are the output")]

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use minke_files::{Files, FilesConfig};
use minke_record::Scope;
use minke_references::{Places, References, Wanted};

const DIRECTORIES: usize = 2_000;
const FILES: usize = 50;
const SAMPLES: usize = 51;
const GOAL: Duration = Duration::from_millis(50);

fn main() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let root = temp.path().canonicalize().expect("it exists").join("w");
    for directory in 0..DIRECTORIES {
        let path = root.join(format!("crates/part{}/module{directory}", directory % 40));
        fs::create_dir_all(&path).expect("a directory");
        for file in 0..FILES {
            fs::write(path.join(format!("source_file_{file}.rs")), "").expect("a file");
        }
    }
    fs::write(root.join(".gitignore"), "target/\n*.o\n").expect("a file");
    let scope = Scope::write(root.to_str().expect("a text"));
    let files = Files::new(FilesConfig { scope, ..FilesConfig::default() }).expect("it can be held");
    let places = Places { cwd: root.clone(), workspace: root, ..Places::default() };
    let references = References::new(Arc::new(files), places);
    let begun = Instant::now();
    let found = references.complete(Wanted::File, "cr").len();
    tell("the first question", &[begun.elapsed()], found);
    let begun = Instant::now();
    // Until the index answers.
    while references.complete(Wanted::File, "mod1999sf49").is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the index never came");
        std::thread::yield_now();
    }
    println!("the index was there after {:?}", begun.elapsed());
    for typed in ["c", "crates/part3/", "mod1999sf49", "source", "srcfl7rs", "zzzz"] {
        let mut took = Vec::new();
        let mut found = 0;
        for _ in 0..SAMPLES {
            let begun = Instant::now();
            found = references.complete(Wanted::File, typed).len();
            took.push(begun.elapsed());
        }
        tell(&format!("`{typed}`"), &took, found);
    }
}

fn tell(what: &str, took: &[Duration], found: usize) {
    let mut took = took.to_vec();
    took.sort_unstable();
    let (median, longest) = (took[took.len() / 2], took[took.len() - 1]);
    let goal = if longest <= GOAL { "met" } else { "MISSED" };
    println!(
        "{what}: {median:?}, longest {longest:?} of {}; {found} found; goal {GOAL:?}: {goal}",
        took.len()
    );
}
