//! Tests of the harness: a driver or pod that breaks a rule makes kill-everywhere fail, and the failure names
//! the broken promise.

use minke_testkit::{RuleBreak, Story, SyncTiming, check_story, kill_everywhere, run_story};

const TOOL_ROUND: &str = "
    user > note it
    model > Note {\"line\":\"milk\"}
    model > Noted.
    pod is idle
";

fn failure_of(how: RuleBreak) -> String {
    let story = Story::parse("a tool round", TOOL_ROUND).expect("the story is in the language");
    let failure =
        kill_everywhere(&story, SyncTiming::Immediate, Some(how)).expect_err("a broken rule must be noticed");
    failure.why
}

#[test]
fn the_story_itself_holds() {
    let story = Story::parse("a tool round", TOOL_ROUND).unwrap();
    let deaths =
        kill_everywhere(&story, SyncTiming::Immediate, None).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(deaths.points > 40 && deaths.kills >= deaths.points && deaths.compared > 20, "{deaths:?}");
}

#[test]
fn acting_before_the_write_is_caught() {
    let why = failure_of(RuleBreak::ActBeforeWrite);
    assert!(why.contains("before entry") || why.contains("not in the log"), "{why}");
}

#[test]
fn changing_state_outside_apply_is_caught() {
    let why = failure_of(RuleBreak::StateOutsideApply);
    assert!(why.contains("state differs from the state of its log"), "{why}");
}

#[test]
fn a_torn_step_is_caught() {
    let why = failure_of(RuleBreak::TearAStep);
    assert!(why.contains("inside a step"), "{why}");
}

#[test]
fn running_a_started_call_again_is_caught() {
    let why = failure_of(RuleBreak::RerunStartedCall);
    assert!(why.contains("was started 2 times"), "{why}");
}

/// Two started calls that must not run again, and one that may; the counters verify it for every kill.
#[test]
fn no_call_runs_twice_whenever_the_process_dies() {
    let text = "
        user > all of them
        tools hold
        model > Note {\"line\":\"once\"}
        model > Read {\"path\":\"/project/none\"}
        model > Put {\"path\":\"/project/x\",\"content\":\"new\"}
        tools go
        model > Done.
        pod is idle
    ";
    let story = Story::parse("one of each class", text).unwrap();
    for sync_when in [SyncTiming::Immediate, SyncTiming::Late] {
        let deaths = kill_everywhere(&story, sync_when, None).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(deaths.kills > 50, "{deaths:?}");
    }
}

/// Runs that end in every way, one after another, killed everywhere: each has one end.
#[test]
fn every_accepted_run_has_exactly_one_end() {
    let text = "
        kills differ: runs end as the kill made them end
        user > finishes
        user queue > fails
        model > Finished.

        model > fails for good no key
        user > is paused
        model > begin Wait
        person > pause
        user > is cancelled
        model > begin Stop
        person > cancel
        log … run_completed(finished) run_errored(provider_error) run_completed(paused) run_completed(cancelled)
    ";
    let story = Story::parse("ways to end", text).unwrap();
    kill_everywhere(&story, SyncTiming::Immediate, None).unwrap_or_else(|failure| panic!("{failure}"));
}

/// A story with a wrong last line fails, and its report contains the transcript.
#[test]
fn a_story_that_does_not_hold_fails_with_its_transcript() {
    let story =
        Story::parse("wrong", "user > hello\nmodel > Hi.\ncontext: user hello / assistant Bye.").unwrap();
    let failure = run_story(&story, SyncTiming::Immediate).expect_err("the model did not say this");
    assert!(failure.why.contains("assistant Hi."), "{}", failure.why);
    let report = failure.to_string();
    for part in ["user > hello", "run_completed(finished)", "ask the model"] {
        assert!(report.contains(part), "{report}");
    }
}

#[test]
fn stories_can_be_told_in_place() {
    check_story(
        "
        user   > clean the build folder
        model  > Sh {\"command\":\"rm -r build\"}
        person > deny no
        model  > left as it was
        pod is idle
        ",
    );
}
