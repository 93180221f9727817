//! Testkit: how we know that it works. Only for tests.
//!
//! Here: the story language, the scripted world and its checker, kill-everywhere, fixtures. Elsewhere: the product.

mod approvals;
mod chance;
mod checker;
pub mod disk;
mod fixtures;
mod hands;
mod kill;
mod kin;
mod left;
mod memlog;
mod musts;
mod person;
mod process;
mod scene;
mod scripted;
mod show;
mod sim;
mod story;
mod tell;
mod tree;
mod world;

pub use approvals::{Interleaved, Mutant, interleave};
pub use fixtures::{fixture, fixtures, skipped, workspace_root};
pub use hands::{Hands, specs as story_tools};
pub use kill::{Deaths, Failure, kill_everywhere, tell};
pub use left::{Left, Recorder, Said, left, left_killed};
pub use memlog::{Death, MemLog};
pub use process::{Deaf, Home, Listener, Process, was_killed};
pub use scene::SYSTEM_PROMPT as STORY_PROMPT;
pub use sim::{Simulated, simulate, simulated_logs};
pub use story::{BadStory, Scene, Story};
pub use tree::{Flaw, Grown, Minds, grow};
pub use world::{Break, Stop, SyncWhen, World};

/// Tells a story; a story that does not hold panics with its whole transcript.
#[track_caller]
pub fn check(text: &str) {
    let story = match Story::read("told here", text) {
        Ok(story) => story,
        Err(bad) => panic!("{bad}"),
    };
    for sync_when in [SyncWhen::AtOnce, SyncWhen::Late] {
        if let Err(failure) = tell(&story, sync_when) {
            panic!("{failure}");
        }
    }
}

/// Kills a story everywhere; panics with the transcript of the telling that broke a promise.
#[track_caller]
pub fn check_killed(story: &Story) -> Deaths {
    let mut all = Deaths::default();
    for sync_when in [SyncWhen::AtOnce, SyncWhen::Late] {
        match kill_everywhere(story, sync_when, None) {
            Ok(deaths) => all += deaths,
            Err(failure) => panic!("{failure}"),
        }
    }
    all
}
