//! Grep and Glob compared with `rg` on a large tree. `cargo bench -p minke-tools --bench search` prints a
//! table.
//!
//! The tree is created in a temporary directory and read once before the measurement, so both read from
//! memory. Rounds alternate, and the table shows the median of each; on a busy machine the mean CPU time is
//! more precise. `MINKE_BENCH_FILES`, `MINKE_BENCH_ROUNDS` and `MINKE_BENCH_ONLY` (a part of a name) change
//! the measurement.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use minke_files::{FilesConfig, ScopedFiles};
use minke_record::Scope;
use minke_tool::{CommandEventSink, Tool, ToolContext, ToolInvocation};
use serde_json::{Value, json};

const FILE_COUNT: usize = 60_000;
const FILES_PER_FOLDER: usize = 24;
const ROUNDS: usize = 15;
/// The maximum ratio that the specification allows.
const MAX_RATIO: f64 = 1.2;

fn main() {
    let number = |name: &str, otherwise| {
        std::env::var(name).ok().and_then(|text| text.parse::<usize>().ok()).unwrap_or(otherwise)
    };
    let (files, rounds) = (number("MINKE_BENCH_FILES", FILE_COUNT), number("MINKE_BENCH_ROUNDS", ROUNDS));
    let home = tempfile::tempdir().expect("a temporary directory");
    let root = home.path().canonicalize().expect("the directory exists");
    let bytes = create_tree(&root, files).expect("the tree fits on the disk");
    let rg = Command::new("rg").arg("--version").stdout(Stdio::null()).status().is_ok();
    let bench = SearchBench::new(&root, rounds, rg);
    print_line(&format!(
        "{files} files, {} MiB, {} threads, the median of {rounds} rounds\n",
        bytes / 1024 / 1024,
        std::thread::available_parallelism().map_or(1, usize::from),
    ));
    print_line(&format!(
        "{:<40} {:>10} {:>10} {:>6} {:>10} {:>10} {:>6}",
        "", "ours", "rg", "ratio", "ours, CPU", "rg, CPU", "ratio"
    ));
    if !rg {
        print_line("SKIPPED: there is no rg to compare with");
    }
    let mut worst: f64 = 0.0;
    let only = std::env::var("MINKE_BENCH_ONLY").unwrap_or_default();
    for case in search_cases().into_iter().filter(|case| case.name.contains(&only)) {
        worst = worst.max(bench.measure_case(&case));
    }
    if rg {
        let word = if worst <= MAX_RATIO { "within" } else { "NOT within" };
        print_line(&format!("\nworst ratio {worst:.2}, {word} the {MAX_RATIO} that are allowed"));
    }
}

#[expect(clippy::print_stdout, reason = "a benchmark prints a table")]
fn print_line(line: &str) {
    println!("{line}");
    std::io::stdout().flush().expect("standard output is open");
}

struct SearchCase {
    name: &'static str,
    tool: &'static str,
    ours: Value,
    theirs: &'static [&'static str],
}

fn search_cases() -> Vec<SearchCase> {
    let grep = |name, ours, theirs| SearchCase { name, tool: "Grep", ours, theirs };
    let glob = |name, ours, theirs| SearchCase { name, tool: "Glob", ours, theirs };
    vec![
        grep("Grep, nothing to find", json!({"pattern": "no_such_word"}), &["-l", "no_such_word", "./"]),
        grep("Grep, few files", json!({"pattern": "needle_word"}), &["-l", "needle_word", "./"]),
        grep("Grep, most files", json!({"pattern": "value"}), &["-l", "value", "./"]),
        grep("Grep, an expression", json!({"pattern": r"fn \w+_7\("}), &["-l", r"fn \w+_7\(", "./"]),
        grep(
            "Grep, without case",
            json!({"pattern": "NEEDLE_word", "-i": true}),
            &["-l", "-i", "NEEDLE_word", "./"],
        ),
        grep(
            "Grep, lines with numbers",
            json!({"pattern": "needle_word", "output_mode": "content"}),
            &["-n", "needle_word", "./"],
        ),
        grep(
            "Grep, many lines with context",
            json!({"pattern": "return", "output_mode": "content", "-C": 1}),
            &["-n", "-C1", "return", "./"],
        ),
        grep("Grep, counts", json!({"pattern": "value", "output_mode": "count"}), &["-c", "value", "./"]),
        grep(
            "Grep, across lines",
            json!({"pattern": r"value\n}", "multiline": true}),
            &["-l", "-U", "--multiline-dotall", r"value\n}", "./"],
        ),
        grep("Grep, one type", json!({"pattern": "value", "type": "rust"}), &["-l", "-trust", "value", "./"]),
        glob("Glob, one kind", json!({"pattern": "**/*.rs"}), &["--files", "-g", "**/*.rs", "./"]),
        // Sorting by time needs the time of every file, which `rg` reads only when it sorts.
        glob(
            "Glob, everything, both by age",
            json!({"pattern": "**"}),
            &["--files", "--sortr=modified", "./"],
        ),
        glob(
            "Glob, one kind, both by age",
            json!({"pattern": "**/*.rs"}),
            &["--files", "-g", "**/*.rs", "--sortr=modified", "./"],
        ),
    ]
}

struct SearchBench<'r> {
    root: &'r Path,
    rounds: usize,
    rg: bool,
    tools: Vec<Arc<dyn Tool>>,
    runtime: tokio::runtime::Runtime,
}

impl SearchBench<'_> {
    fn new(root: &Path, rounds: usize, rg: bool) -> SearchBench<'_> {
        let scope = Scope::writable(root.to_string_lossy());
        // As many masked paths as a home directory has.
        let masked = (0..24).map(|n| root.join(format!(".secret-{n}"))).collect();
        let files = ScopedFiles::new(FilesConfig { scope, masked, ..FilesConfig::default() })
            .expect("the scope is valid");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        SearchBench { root, rounds, rg, tools: minke_tools::search_tools(&Arc::new(files)), runtime }
    }

    fn measure_case(&self, case: &SearchCase) -> f64 {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let (mut our_cpu, mut their_cpu) = (Duration::ZERO, Duration::ZERO);
        for round in 0..=self.rounds {
            let before = process_cpu_time();
            let took = self.run_ours(case);
            let cpu = process_cpu_time().saturating_sub(before);
            let before = child_cpu_time();
            let took_theirs = if self.rg { self.run_rg(case) } else { Duration::MAX };
            // The first round is a warm-up.
            if round > 0 {
                ours.push(took);
                theirs.push(took_theirs);
                our_cpu += cpu;
                their_cpu += child_cpu_time().saturating_sub(before);
            }
        }
        let (ours, theirs) = (median(&mut ours), median(&mut theirs));
        let rounds = u32::try_from(self.rounds).expect("the number of rounds is small");
        let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1_000.0);
        let ratio = |a: Duration, b: Duration| a.as_secs_f64() / b.as_secs_f64();
        let (wall, cpu) = (ratio(ours, theirs), ratio(our_cpu, their_cpu));
        let (our_cpu, their_cpu) = (ms(our_cpu / rounds), ms(their_cpu / rounds));
        let (ours, theirs) = (ms(ours), if self.rg { ms(theirs) } else { "-".to_owned() });
        let name = case.name;
        print_line(&format!(
            "{name:<40} {ours:>10} {theirs:>10} {wall:>6.2} {our_cpu:>10} {their_cpu:>10} {cpu:>6.2}"
        ));
        wall
    }

    fn run_ours(&self, case: &SearchCase) -> Duration {
        let tool = self.tools.iter().find(|tool| tool.spec().name == case.tool).expect("it is a search tool");
        let place =
            ToolContext { cwd: self.root.to_owned(), scope: Scope::writable(self.root.to_string_lossy()) };
        let call = ToolInvocation::new("bench", place, CommandEventSink::discard());
        let arguments = case.ours.to_string();
        let start = Instant::now();
        let output = self.runtime.block_on(tool.execute(&arguments, &call)).expect("the search succeeds");
        let took = start.elapsed();
        assert!(!output.summary.is_empty());
        took
    }

    fn run_rg(&self, case: &SearchCase) -> Duration {
        let mut rg = Command::new("rg");
        rg.args(["--no-config", "--color=never"]).args(case.theirs).current_dir(self.root);
        rg.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let start = Instant::now();
        let status = rg.status().expect("rg was there before");
        let took = start.elapsed();
        assert!(status.code().is_some_and(|code| code < 2), "{status}");
        took
    }
}

/// Returns the CPU time of this process.
fn process_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).expect("CPU time is not negative")
}

/// Returns the CPU time of the children that have exited, in ticks of the kernel; zero where it is not
/// available.
fn child_cpu_time() -> Duration {
    /// Ticks per second, the same on every Linux.
    const TICKS_PER_SECOND: u64 = 100;
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The program name may contain any character, so count the fields after its end.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_ascii_whitespace();
    let ticks: u64 = fields.skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND)
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Creates a repository with sources, ignore files and ignored files.
fn create_tree(root: &Path, files: usize) -> std::io::Result<u64> {
    fs::create_dir_all(root.join(".git/info"))?;
    fs::write(root.join(".gitignore"), "target/\n*.log\n/out\n")?;
    let mut bytes = 0;
    for n in 0..files {
        let folder_number = n / FILES_PER_FOLDER;
        let folder = root.join(format!(
            "part-{}/module-{}/unit-{folder_number}",
            folder_number % 7,
            folder_number % 41
        ));
        if n.is_multiple_of(FILES_PER_FOLDER) {
            fs::create_dir_all(&folder)?;
            if folder_number.is_multiple_of(20) {
                fs::write(folder.join(".gitignore"), "*.tmp\n!keep.tmp\n")?;
            }
        }
        let ending = ["rs", "rs", "py", "md", "json", "rs", "log", "tmp"][n % 8];
        let content = source_text(n);
        bytes += content.len() as u64;
        fs::write(folder.join(format!("file_{n}.{ending}")), content)?;
    }
    Ok(bytes)
}

fn source_text(n: usize) -> String {
    let mut text = String::new();
    for line in 0..10 + (n * 7919) % 120 {
        match (n + line) % 6 {
            0 => text.push_str(&format!("fn handle_{}(input: &str) -> usize {{\n", (n * 31 + line) % 9_973)),
            1 => text.push_str("    let value = input.len() + 1; // keeps the count\n"),
            2 => text.push_str("    if value > 80 {\n        return value\n    }\n"),
            3 => text.push_str("    value\n}\n"),
            4 => text.push('\n'),
            _ => text
                .push_str(&format!("const NAME_{line}: &str = \"some text that is here for its length\";\n")),
        }
    }
    if n.is_multiple_of(1_999) {
        text.push_str("// a needle_word lies here\n");
    }
    text
}
