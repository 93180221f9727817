//! The test kit: the story language, the scripted world and its checker, kill-everywhere, simulators,
//! fixtures. Only for tests.

mod approvals;
mod assertions;
mod checker;
mod describe;
pub mod disk;
mod fixtures;
mod kill_everywhere;
mod memory_log;
mod process;
mod random;
mod scene;
mod scripted;
mod sim;
mod story;
mod tree;
mod user_lines;
mod world;

pub use approvals::{ApprovalMutant, InterleavingStats, run_interleaving};
pub use fixtures::{fixture_dir, fixtures_dir, report_skipped, workspace_root};
pub use kill_everywhere::{KillStats, StoryFailure, kill_everywhere, run_story};
pub use memory_log::{DeathKind, MemoryLog};
pub use process::{ListenError, TestHome, TestListener, TestProcess, was_killed};
pub use scene::SYSTEM_PROMPT as STORY_PROMPT;
pub use scripted::tools::{ScriptedTools, tool_specs as story_tools};
pub use sim::{SimulationResult, simulate, simulated_logs};
pub use story::log::{ReplyAttempt, StoryLog, StreamRecorder, run_for_log, run_killed_for_logs};
pub use story::{Story, StoryParseError, StoryScene};
pub use tree::{PodKind, TreeFlaw, TreeResult, simulate_tree};
pub use world::{RuleBreak, StoryStop, StoryWorld, SyncTiming};

/// Runs a story; a failed one panics with its transcript.
#[track_caller]
pub fn check_story(text: &str) {
    let story = match Story::parse("told here", text) {
        Ok(story) => story,
        Err(bad) => panic!("{bad}"),
    };
    for sync_when in [SyncTiming::Immediate, SyncTiming::Late] {
        if let Err(failure) = run_story(&story, sync_when) {
            panic!("{failure}");
        }
    }
}

/// Kills a story everywhere; panics with the transcript of a failed run.
#[track_caller]
pub fn check_story_killed(story: &Story) -> KillStats {
    let mut all = KillStats::default();
    for sync_when in [SyncTiming::Immediate, SyncTiming::Late] {
        match kill_everywhere(story, sync_when, None) {
            Ok(deaths) => all += deaths,
            Err(failure) => panic!("{failure}"),
        }
    }
    all
}
