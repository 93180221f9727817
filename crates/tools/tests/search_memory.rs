//! The memory of a search does not grow with its results. A separate file, because memory is measured per
//! process and no other test may run concurrently.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

#[path = "search/tools.rs"]
#[expect(dead_code, reason = "the other tests use the rest")]
mod tools;

use std::fs;

use serde_json::json;

use tools::{Tools, home};

/// Returns by how many bytes the peak memory of this process grows during `work`.
fn peak_memory(work: impl FnOnce()) -> u64 {
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
    const MAX_PEAK_BYTES: u64 = 16 * 1024 * 1024;
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
        let peak = peak_memory(|| {
            let output = runtime.block_on(tools.run("Grep", arguments.clone())).unwrap();
            assert!(output.summary.starts_with("480000 "), "{}", output.summary);
        });
        assert!(peak < MAX_PEAK_BYTES, "{arguments}: {} MiB", peak >> 20);
    }
}
