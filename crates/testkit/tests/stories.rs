//! Runs every story once, and again killed everywhere. A story is one file in `stories/` with its name in the
//! list below.

use std::collections::BTreeSet;
use std::path::Path;

use minke_testkit::{Story, SyncTiming, check_story_killed, run_story};

macro_rules! stories {
    ($($name:ident),+ $(,)?) => {
        const NAMES: &[&str] = &[$(stringify!($name)),+];

        fn text(name: &str) -> &'static str {
            match name {
                $(stringify!($name) => include_str!(concat!("stories/", stringify!($name), ".story")),)+
                other => panic!("there is no story `{other}`"),
            }
        }

        $(mod $name {
            #[test]
            fn told() {
                super::told(stringify!($name));
            }

            #[test]
            fn killed_everywhere() {
                super::killed(stringify!($name));
            }
        })+
    };
}

fn story(name: &str) -> Story {
    Story::parse(name, text(name)).unwrap_or_else(|bad| panic!("{bad}"))
}

fn told(name: &str) {
    for sync_when in [SyncTiming::Immediate, SyncTiming::Late] {
        if let Err(failure) = run_story(&story(name), sync_when) {
            panic!("{failure}");
        }
    }
}

fn killed(name: &str) {
    let deaths = check_story_killed(&story(name));
    assert!(deaths.kills * 2 >= deaths.points && deaths.points > 0, "{deaths:?}");
    eprintln!("{name}: {} points, {} deaths, {} compared", deaths.points, deaths.kills, deaths.compared);
}

stories! {
    spawn_and_report,
    a_failed_spawn_frees_its_name,
    a_loan_is_not_written,
    bad_spawns,
    waits_for_any,
    a_wait_ends_in_time,
    a_wait_outlives_the_process,
    a_child_crashes,
    children_outlive_their_parent,
    a_spawn_that_waits,
    a_child_asks,
    a_pod_answers,
    reports_go_up,
    a_stop_waits_for_reports,
    a_budget_is_divided,
    a_budget_is_spent,
    turns_are_spent,
    the_wall_ends_a_run,
    a_loop_is_broken,
    loans_are_passed_on,
    a_long_wait_is_cancelled,
    a_long_wait_is_cut_short,
    a_long_wait_is_visible,
    a_long_wait_outlives_the_process,
    a_parents_run_resumes_by_itself,
    abandoned_by_a_visit,
    aborted,
    an_ask_does_not_hold_the_process,
    an_ask_holds_only_its_own_call,
    answer_after_a_crash_resumes,
    answer_by_a_visit,
    approved,
    bad_arguments,
    broken_after_a_whole_call,
    broken_inside_arguments,
    refused,
    filtered,
    refused_after_a_call,
    refused_by_the_request,
    cut_before_any_text,
    ended_for_an_unknown_reason,
    broken_inside_thinking,
    broken_inside_the_only_call,
    broken_after_a_whole_thought,
    broken_three_times_inside_thinking,
    broken_four_times_inside_thinking,
    broken_stream_continued,
    broken_too_often,
    busy_provider,
    call_of_a_client,
    call_of_a_client_and_a_crash,
    call_of_a_client_that_is_asked,
    cancel_after_words,
    cancel_beats_pause,
    cancel_before_anything_was_said,
    cancel_closes_asks,
    cancel_when_paused_abandons,
    cancel_while_a_tool_runs,
    cancel_while_the_model_is_busy,
    changes_and_checkpoints,
    checkpoint_in_a_run,
    crash_in_mid_stream,
    crash_in_mid_tool,
    crash_then_run,
    crash_while_the_model_is_busy,
    cut_by_the_output_limit,
    denied_with_a_word,
    dequeue,
    disk_full,
    disk_full_while_a_client_calls,
    disk_full_while_a_tool_runs,
    disk_full_while_asked,
    disk_wholly_full,
    failing_tool,
    fallback_continues_a_broken_reply,
    fallback_ends,
    fallback_takes_over,
    fork,
    fork_closes_open_calls,
    idle_exit,
    interrupt,
    max_turns,
    no_model,
    note_in_a_run,
    note_wakes_an_idle_pod,
    note_while_paused,
    nothing_to_stop,
    once_calls_keep_their_order,
    owner_gone,
    pause_drops_pure_calls,
    pause_in_mid_stream,
    pause_in_mid_tool,
    pause_twice,
    pause_waits_ten_seconds,
    plain_answer,
    posture_deny_asks_nobody,
    posture_full_asks_nobody,
    power_cut,
    power_cut_in_mid_tool,
    provider_refuses,
    pure_call_runs_again_after_a_crash,
    pure_calls_in_parallel,
    queue_is_full,
    queue_is_held_after_a_cancel,
    queue_is_held_after_a_pause,
    queue_is_held_after_an_error,
    queue_opens_runs_in_order,
    queued_before_the_stop_runs_after_boot,
    quiet_note_waits,
    refused_by_scope,
    report_of_a_child_comes_once,
    rewind,
    rewind_is_refused_in_a_run,
    rollback_returns_notes,
    run_after_pause,
    shutdown_after_the_run,
    shutdown_beats_pause,
    shutdown_now,
    shutdown_while_paused,
    signal_interrupts,
    steer_joins_the_run,
    steer_that_misses_the_last_request,
    steer_while_paused,
    words_that_steer_refer,
    words_refer_to_files,
    words_left_behind_are_read_at_the_boot,
    the_queue_outlives_the_process,
    the_same_op_id_twice,
    the_task_of_a_creator,
    thinking_is_kept,
    timed_out_tool,
    too_many_notes,
    tool_round,
    two_questions,
    a_stop_waits_for_the_capture,
    tasks,
    task_numbers_are_not_used_again,
    a_question_of_the_model,
    a_question_nobody_wants_to_answer,
    a_question_outlives_the_process,
    a_command_in_a_fence_is_not_asked_about,
    two_runs,
    undo_compact_yield,
    unknown_block,
    unknown_tool,
    verifiable_call,
    verifiable_call_after_a_crash,
    visits_while_nobody_lives,
    waiting_for_a_question,
    waiting_for_idle,
    a_clients_question_expires,
    a_deny_beats_a_grant,
    a_deny_beats_an_answer,
    a_grant_is_handed_over,
    a_hook_adds_context,
    a_hook_asks,
    a_hook_asks_about_a_clients_call,
    a_hook_blocks_an_input,
    a_hook_denies_a_call,
    a_hook_rewords_an_input,
    a_hook_rewrites_a_call,
    a_job_has_a_deadline,
    a_job_is_interrupted_and_goes_on,
    a_job_is_tried_again,
    a_job_must_be_accepted,
    a_job_runs,
    a_job_that_cannot_work_fails,
    a_job_that_is_never_accepted_fails,
    a_job_that_is_not_restarted_rests,
    a_job_that_waits_is_paused,
    a_paused_job_is_not_begun_by_who_looks_at_it,
    a_job_without_a_model_rests,
    the_waits_of_a_job_double,
    a_schedule_runs_nothing_itself,
    a_parent_limits_its_child,
    a_question_expires,
    a_question_expires_while_nobody_lives,
    a_question_goes_on_to_expire_after_a_crash,
    a_question_of_the_model_expires,
    a_rewritten_call_is_asked_about,
    a_rewritten_call_that_cannot_be_made,
    a_rewritten_pure_call_runs_again_after_a_crash,
    a_sleeping_job_is_paused_and_cancelled,
    aborted_by_a_visit,
    an_input_that_nobody_heard_is_shown_to_hooks,
    an_input_waits_for_hooks_and_is_cancelled,
    an_interrupted_run_is_aborted,
    an_open_question_keeps_its_place_after_a_crash,
    approved_for_the_session,
    hooks_cannot_keep_a_run_for_ever,
    hooks_hang_and_the_pod_is_stopped,
    hooks_hang_and_the_run_is_cancelled,
    hooks_hang_and_the_run_is_paused,
    hooks_hang_at_the_end_of_a_run,
    hooks_keep_a_run_going,
    limits_that_cannot_be_read_allow_nothing,
    problems_of_hooks_are_told,
    the_file_changed_after_the_question,
    the_file_changed_before_a_clients_answer,
    the_first_answer_wins,
    what_was_not_offered_is_refused,
    a_granted_call_is_this_very_call,
    approved_as_a_rule,
    approved_as_a_rule_by_a_visit,
    rules_change_while_a_question_is_open,
}

/// Every story in the directory runs, and there are enough of them.
#[test]
fn every_story_is_told() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stories");
    let files: BTreeSet<String> = std::fs::read_dir(place)
        .unwrap()
        .filter_map(|file| {
            file.unwrap().file_name().into_string().unwrap().strip_suffix(".story").map(Into::into)
        })
        .collect();
    let named: BTreeSet<String> = NAMES.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(files, named);
    assert!(named.len() >= 40, "{}", named.len());
}
