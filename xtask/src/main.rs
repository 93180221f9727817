//! `cargo xtask`: development commands. One line each here, the work in its own file.
//!
//! Here: selecting the command. Elsewhere: the rules (`lib.rs`), running programs (`run`), the commands (`commands`),
//! benchmarks (`bench`).
#![expect(clippy::print_stdout, reason = "this is a command-line tool; its answers go to stdout")]

mod bench;
mod commands;
mod long;
mod pictures;
mod process;
mod run;
mod terminal_stage;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask COMMAND

  test [ARGS…]     all tests (cargo-nextest if it is there, else cargo test); ARGS go to the runner
  check            format, clippy, arrows, labels, purity, promises, figures, commits, golden files
  figures [ARGS…]  measure names, phrases and structure; --places NAME lists places, --tighten stores better limits
  schema           write the golden files of the wire and its schema anew, then look at `git diff`
  bench [NAME…]    build in release and measure; raw samples go to bench-results/
  sim [ARGS…]      the simulators: --tree, --long, --seed N
  mutate [--long]  100,000 mutations of a log, every byte of a 2 MiB log flipped; --long: a million mutations
  faults           every point of the fault sweep on the real binary
  long [NAME…]     the suites that are too long for every change; --list names them
  pictures         take the pictures in docs/images anew, from the running program
  deny             licences, advisories and bans (needs cargo-deny)
";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let command = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    let outcome = match command.as_str() {
        "test" => commands::run_tests(&rest),
        "check" => commands::run_checks(),
        "figures" => commands::print_figures(&rest),
        "schema" => commands::write_schema(),
        "bench" => bench::run_benchmarks(&rest),
        "sim" => commands::run_simulation(&rest),
        "mutate" => commands::run_mutations(&rest),
        "faults" => commands::run_faults(),
        "long" => long::run_long_suites(&rest),
        "pictures" => pictures::take_pictures(),
        "deny" => commands::run_deny(),
        "" | "help" | "--help" | "-h" => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        other => Err(format!("there is no `cargo xtask {other}`\n\n{HELP}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}
