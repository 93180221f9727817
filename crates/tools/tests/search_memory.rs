//! The memory of a search does not grow with what it finds. A file of its own, because memory is a process's: no other test
//! may run beside this one.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "search/tools.rs"]
#[expect(dead_code, reason = "the other tests use the rest")]
mod tools;

use std::fs;

use serde_json::json;

use tools::{Tools, home};

/// The most memory that this process has had, in bytes, after forgetting what it had before.
fn peak_of(work: impl FnOnce()) -> u64 {
    let status = |key: &str| {
        let text = fs::read_to_string("/proc/self/status").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap().trim().to_owned();
        line.split(' ').next().unwrap().parse::<u64>().unwrap() * 1_024
    };
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS:");
    work();
    status("VmHWM:").saturating_sub(before)
}

#[test]
fn a_thousand_times_more_matches_cost_no_memory() {
    const MOST: u64 = 16 * 1024 * 1024;
    let (_home, root) = home();
    let lines: String =
        (0..240_000).map(|n| format!("hit number {n} with some more text behind it\n")).collect();
    fs::write(root.join("0"), lines).unwrap();
    fs::hard_link(root.join("0"), root.join("1")).unwrap();
    let tools = Tools::at(&root);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for arguments in [
        json!({"pattern": "hit", "output_mode": "content"}),
        json!({"pattern": "hit", "output_mode": "content", "-C": 3, "head_limit": 0, "offset": 2_000}),
    ] {
        let peak = peak_of(|| {
            let output = runtime.block_on(tools.run("Grep", arguments.clone())).unwrap();
            assert!(output.summary.starts_with("480000 "), "{}", output.summary);
        });
        assert!(peak < MOST, "{arguments}: {} MiB", peak >> 20);
    }
}
