//! `cargo xtask long [NAME…]`: the suites that take too long for every change, one after the other.
//!
//! Here: the table of suites: name, description, `cargo` arguments, and the variables that set the count.
//! Elsewhere: the short versions, which every test run contains.

use crate::run::{cargo_command, run_command};

/// A long suite: existing tests with a larger count.
struct LongSuite {
    name: &'static str,
    description: &'static str,
    /// The arguments of `cargo`.
    args: &'static [&'static str],
    counts: &'static [(&'static str, &'static str)],
}

const LONG_ENV: (&str, &str) = ("MINKE_LONG", "1");

/// A new long suite is a row here.
const SUITES: &[LongSuite] = &[
    LongSuite {
        name: "power",
        description: "1,000 power cuts of the real program on loop-mounted images, and a control without fsync; needs root",
        args: &["test", "--release", "-p", "minke-cli", "--test", "power", "--", "--nocapture"],
        counts: &[("MINKE_POWER_CUTS", "1000")],
    },
    LongSuite {
        name: "full",
        description: "a home on disks of 200 kB to 6 MiB that fill up",
        args: &["test", "--release", "-p", "minke-cli", "--test", "cli", "full_disk::", "--", "--nocapture"],
        counts: &[LONG_ENV],
    },
    LongSuite {
        name: "sim",
        description: "the simulator of pods and clients",
        args: &["test", "--release", "-p", "minke-testkit", "--test", "sim", "--", "--nocapture"],
        counts: &[("MINKE_SIM_LONG", "1")],
    },
    LongSuite {
        name: "tree",
        description: "the simulated tree",
        args: &["test", "-p", "minke-testkit", "--test", "tree", "--", "--nocapture"],
        counts: &[LONG_ENV],
    },
    LongSuite {
        name: "mutate",
        description: "a million mutations of a log, every byte of a 2 MiB log flipped",
        args: &["test", "--release", "-p", "minke-session", "--test", "log", "damage", "--", "--nocapture"],
        counts: &[("MINKE_MUTATIONS", "1000000"), ("MINKE_FLIP_BYTES", "2097152")],
    },
    LongSuite {
        name: "faults",
        description: "a fault at every file operation of the real program",
        args: &["test", "--release", "-p", "minke-cli", "--test", "faults", "--", "--nocapture"],
        counts: &[("MINKE_FAULTS_LONG", "1")],
    },
    LongSuite {
        name: "chaos",
        description: "fifty real pods under `kill -9`",
        args: &["test", "--release", "-p", "minke-cli", "--test", "chaos", "--", "--nocapture"],
        counts: &[LONG_ENV],
    },
    LongSuite {
        name: "pods",
        description: "1,000 idle pods: the cost of starts, lists, waiting and stops",
        args: &[
            "test",
            "--release",
            "-p",
            "minke-cli",
            "--test",
            "cli",
            "idle_pods::",
            "--",
            "--nocapture",
            "--test-threads=1",
        ],
        counts: &[LONG_ENV],
    },
    LongSuite {
        name: "git",
        description: "200 rounds of random commands against the user's git, in each backend",
        args: &[
            "test",
            "--release",
            "-p",
            "minke-exec",
            "--test",
            "command",
            "repositories::",
            "--",
            "--nocapture",
        ],
        counts: &[LONG_ENV],
    },
    LongSuite {
        name: "store",
        description: "two hosts on one PostgreSQL, a thousand jobs",
        args: &["test", "--release", "-p", "minke-cli", "--test", "store", "--", "--nocapture"],
        counts: &[LONG_ENV],
    },
];

/// Runs the named suites, or all; `--list` prints their names.
pub(crate) fn run_long_suites(names: &[String]) -> Result<(), String> {
    if names.iter().any(|name| name == "--list") {
        SUITES.iter().for_each(|suite| println!("{:<8} {}", suite.name, suite.description));
        return Ok(());
    }
    if let Some(unknown) = names.iter().find(|name| !SUITES.iter().any(|suite| suite.name == **name)) {
        return Err(format!("there is no long suite `{unknown}`; `cargo xtask long --list` names them"));
    }
    let chosen =
        SUITES.iter().filter(|suite| names.is_empty() || names.iter().any(|name| name == suite.name));
    let mut failed = Vec::new();
    for suite in chosen {
        println!("long: {}: {}", suite.name, suite.description);
        let mut command = cargo_command(suite.args);
        if let Err(why) = run_command(command.envs(suite.counts.iter().copied())) {
            failed.push(format!("{}: {why}", suite.name));
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}
