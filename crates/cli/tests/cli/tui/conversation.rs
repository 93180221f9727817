//! The terminal UI attached to a pod, with the real binary on a pseudo-terminal.

use rustix::process::{Signal, kill_process};

use crate::support::world::{CliWorld, RunningMinke};
use crate::tui::screen::{CTRL_C, ENTER, ESC, SCREEN_SIZES, TuiTerminal, world_with_finished_run};

const ECHO_SCRIPT: &str = "loop = true\nchunk = 3\n[[turn]]\nusage = { input = 900, output = 70 }\ntext = \"You said: {{prompt}}\"\n";
const ASK_POLICY: &str = "[[rule]]\naction = \"ask\"\ntool = \"Write\"\n";
const WRITE_SCRIPT: &str = "[[turn]]\nusage = { input = 900, output = 70 }\n[[turn.call]]\ntool = \"Write\"\nargs = { file_path = \"a.txt\", content = \"a\\n\" }\n[[turn]]\nusage = { input = 950, output = 80 }\ntext = \"Said and done.\"\n";

/// Creates an idle live pod called `tale`.
fn world_with_idle_pod() -> CliWorld {
    world_with_finished_run(ECHO_SCRIPT)
}

#[test]
fn somebody_attaches_speaks_and_leaves_and_the_pod_goes_on() {
    for size in SCREEN_SIZES {
        let world = world_with_idle_pod();
        let mut tui = TuiTerminal::start_tui(&world, &["attach", "tale"], size);
        tui.wait_for_text("You said: first");
        tui.wait_for_text("idle");
        assert!(!tui.pty.is_line_mode(), "keys arrive one by one");
        tui.type_text("hello there");
        tui.send_keys(ENTER);
        let screen = tui.wait_for_text("You said: hello there");
        assert!(screen.contains("tale"), "{screen}");
        assert!(tui.leave_tui().success());
        assert_eq!(world.only_live_pod()["name"], "tale");
        assert_eq!(world.run_minke(&["read", "tale"]).out, "You said: hello there\n");
    }
}

/// Starts a pod that asks for approval of a write, and the command that waits for the pod.
fn world_with_asking_pod() -> (CliWorld, RunningMinke) {
    let world = CliWorld::with_fixed_paths();
    world.write_file("s.toml", WRITE_SCRIPT);
    std::fs::create_dir_all(world.home_dir().join("config")).unwrap();
    std::fs::write(world.home_dir().join("config/policy.toml"), ASK_POLICY).unwrap();
    let exec = ["exec", "--name", "tale", "--on-ask", "wait", "--model", "scripted:s.toml", "go"];
    let going = world.start_minke(&exec);
    while world.run_json(&["asks", "--json"]).as_array().unwrap().is_empty() {}
    (world, going)
}

#[test]
fn a_question_is_a_card_and_y_answers_it() {
    for size in SCREEN_SIZES {
        let (world, going) = world_with_asking_pod();
        let mut tui = TuiTerminal::start_tui(&world, &["attach", "tale"], size);
        tui.wait_for_text("1 open question");
        tui.wait_for_text("a.txt");
        tui.check_snapshot("question");
        if size == SCREEN_SIZES[0] {
            tui.check_colour_snapshot("question-coloured");
        }
        tui.send_keys("y");
        tui.wait_for_text("Said and done.");
        assert_eq!(world.read_file("a.txt"), "a\n");
        assert_eq!(going.wait_for_exit().code, Some(0));
        tui.wait_for_text("stopped");
        tui.check_snapshot("question-answered");
        assert!(tui.leave_tui().success());
    }
}

#[test]
fn a_question_that_somebody_else_answers_closes_here() {
    let (world, going) = world_with_asking_pod();
    let mut tui = TuiTerminal::start_tui(&world, &["attach", "tale"], SCREEN_SIZES[0]);
    tui.wait_for_text("1 open question");
    tui.send_keys("n");
    tui.wait_for_text("why not?");
    tui.check_snapshots("question-note");
    let asks = world.run_json(&["asks", "--json"]);
    let answered = world.run_minke(&["answer", asks[0]["id"].as_str().unwrap(), "approved"]);
    assert_eq!(answered.code, Some(0), "{answered:?}");
    tui.wait_for_text("Said and done.");
    tui.wait_until_gone("1 open question");
    tui.wait_until_gone("why not?");
    assert_eq!(going.wait_for_exit().code, Some(0));
    tui.wait_for_text("stopped");
    tui.wait_until_gone("answered in another client");
    tui.check_snapshots("question-answered-elsewhere");
    assert!(tui.leave_tui().success());
}

#[test]
fn a_screen_reader_is_told_of_a_question_and_its_keys() {
    let (world, going) = world_with_asking_pod();
    let mut tui = TuiTerminal::start_with_var(&world, &["attach", "tale"], ("MINKE_PLAIN", "1"));
    tui.wait_for_text("1 open question");
    tui.wait_for_text("a.txt");
    tui.check_snapshots("plain-question");
    tui.send_keys("y");
    tui.wait_for_text("Said and done.");
    assert_eq!(going.wait_for_exit().code, Some(0));
    tui.wait_for_text("stopped");
    tui.check_snapshots("plain-question-answered");
    assert!(tui.leave_tui().success());
}

#[test]
fn a_signal_gives_the_terminal_back() {
    let world = world_with_idle_pod();
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let mut tui = TuiTerminal::start_tui(&world, &["attach", "tale"], (24, 80));
        tui.wait_for_text("You said: first");
        kill_process(tui.pty.process_id(), signal).unwrap();
        assert_eq!(tui.pty.wait_for_exit().code(), Some(130));
        tui.check_restored();
    }
}

#[test]
fn on_a_pipe_minke_alone_says_what_to_do() {
    let world = CliWorld::new();
    let done = world.run_minke(&[]);
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.err.contains("not a terminal") && done.err.contains("minke exec"), "{done:?}");
}

#[test]
fn what_is_not_understood_leaves_everything_as_it_was() {
    let world = world_with_idle_pod();
    let mut tui = TuiTerminal::start_tui(&world, &["attach", "tale"], (24, 80));
    tui.wait_for_text("You said: first");
    // An unknown sequence, an unfinished one, and a lone escape.
    tui.send_keys("\x1b[99;99~");
    tui.send_keys(ESC);
    tui.wait_for_text("Esc again");
    tui.type_text("still here");
    tui.send_keys(CTRL_C);
    tui.wait_for_text("again to quit");
    tui.send_keys(CTRL_C);
    assert!(tui.pty.wait_for_exit().success());
}

/// Two hundred pieces, fifty per second.
const TRICKLE_SCRIPT: &str = "[[turn]]\nusage = { input = 900, output = 70 }\npace_ms = 20\nsteps = [{ text = \"drop \", repeat = 200 }, { text = \"The last drop.\" }]\n";
/// Waits in the middle for longer than a test; after a pause it continues.
const PAUSED_SCRIPT: &str = "[[turn]]\nusage = { input = 900, output = 70 }\nsteps = [{ text = \"The first part is here.\" }, { delay_ms = 60000 }, { text = \"never\" }]\n[[turn]]\nusage = { input = 950, output = 80 }\ntext = \"And the rest.\"\n";
/// Streams for longer than a test.
const LONG_SCRIPT: &str = "[[turn]]\nusage = { input = 900, output = 70 }\nsteps = [{ text = \"The first part is here.\\n\\n| a | b |\\n|---|---|\\n| 1 | 2 |\" }, { delay_ms = 60000 }, { text = \"never\" }]\n";

#[test]
fn a_terminal_that_is_resized_while_a_stream_goes_on_is_drawn_anew() {
    let world = CliWorld::with_fixed_paths();
    world.write_file("s.toml", TRICKLE_SCRIPT);
    let mut going = world.start_minke(&["exec", "--name", "tale", "--model", "scripted:s.toml", "go"]);
    going.wait_for_stdout("drop");
    let mut tui = TuiTerminal::start_tui(&world, &["attach", "tale"], (24, 80));
    tui.wait_for_text("drop");
    for (rows, columns) in [(12, 40), (40, 120), (24, 80)].into_iter().cycle().take(9) {
        tui.resize_terminal(rows, columns);
        let fits = |screen: &str| {
            let widest = screen.lines().map(|line| line.chars().count()).max().unwrap_or(0);
            screen.contains("drop") && widest > usize::from(columns / 2) && screen.contains("pause")
        };
        tui.wait_for_screen(&format!("{columns} columns"), fits);
    }
    assert!(!tui.screen_text().contains("The last drop."), "it continued meanwhile");
    tui.wait_for_text("The last drop.");
    tui.wait_for_text("stopped");
    tui.check_snapshots("resized-in-mid-stream");
    assert_eq!(going.wait_for_exit().code, Some(0));
    assert!(tui.leave_tui().success());
}

#[test]
fn a_key_that_comes_with_a_change_of_size_is_not_left_lying() {
    let world = world_with_idle_pod();
    let mut tui = TuiTerminal::start_tui(&world, &["attach", "tale"], (24, 80));
    tui.wait_for_text("You said: first");
    for round in 1..=20 {
        // While the first change is drawn, more changes and keys arrive.
        for (rows, columns) in [(12, 40), (40, 120), (24, 80)] {
            tui.resize_terminal(rows, columns);
            tui.send_keys("\x1b[D");
            tui.send_keys("x");
        }
        tui.wait_for_text(&format!("> {}", "x".repeat(round * 3)));
    }
    assert!(tui.leave_tui().success());
}

fn is_process_stopped(tui: &TuiTerminal) -> bool {
    let stat =
        std::fs::read_to_string(format!("/proc/{}/stat", tui.pty.process_id().as_raw_nonzero())).unwrap();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
}

#[test]
fn a_run_is_paused_and_goes_on() {
    let world = CliWorld::with_fixed_paths().with_env("MINKE_MODEL", "scripted:s.toml");
    world.write_file("s.toml", PAUSED_SCRIPT);
    let mut tui = TuiTerminal::start_tui(&world, &[], SCREEN_SIZES[0]);
    tui.wait_for_text("Describe a task");
    tui.type_text("go");
    tui.send_keys(ENTER);
    tui.wait_for_text("The first part is here.");
    tui.send_keys(ESC);
    tui.wait_for_text("paused: Enter");
    tui.check_snapshots("paused");
    tui.send_keys(ENTER);
    tui.wait_for_text("And the rest.");
    tui.wait_for_text("idle");
    tui.check_snapshots("resumed");
    assert!(tui.leave_tui().success());
}

/// Kills the terminal as soon as the typed text is on the disk.
fn kill_when_saved(world: &CliWorld, tui: &mut TuiTerminal, typed: &str) {
    let drafts = world.home_dir().join("state/tui/drafts");
    let holds = |file: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(file.unwrap().path()).is_ok_and(|text| text.contains(typed))
    };
    while !std::fs::read_dir(&drafts).is_ok_and(|mut files| files.any(holds)) {
        tui.screen_text();
    }
    kill_process(tui.pty.process_id(), Signal::KILL).unwrap();
    tui.pty.wait_for_exit();
}

/// Two halves with a delay between them.
const HALVES_SCRIPT: &str = "[[turn]]\nusage = { input = 900, output = 70 }\npace_ms = 2500\ntext = [\"The first half. \", \"The second half.\"]\n";

#[test]
fn a_terminal_that_is_killed_in_the_middle_of_a_run_finds_everything_again() {
    let world = CliWorld::with_fixed_paths().with_env("MINKE_MODEL", "scripted:s.toml");
    world.write_file("s.toml", HALVES_SCRIPT);
    let mut tui = TuiTerminal::start_tui(&world, &[], SCREEN_SIZES[0]);
    tui.wait_for_text("Describe a task");
    tui.type_text("go");
    tui.send_keys(ENTER);
    tui.wait_for_text("The first half.");
    tui.type_text("half a thought");
    kill_when_saved(&world, &mut tui, "half a thought");
    assert_eq!(world.only_live_pod()["state"], "running", "the run continues");
    let mut tui = TuiTerminal::start_tui(&world, &[], SCREEN_SIZES[0]);
    tui.wait_for_text("running");
    tui.send_keys(ENTER);
    tui.wait_for_text("The first half. The second half.");
    tui.wait_for_text("idle");
    tui.wait_for_text("> half a thought");
    tui.check_snapshots("killed-terminal");
    assert!(tui.leave_tui().success());
    world.verify_logs();
}

#[test]
fn a_terminal_that_is_killed_leaves_the_run_and_the_draft() {
    let world = world_with_idle_pod();
    let mut tui = TuiTerminal::start_tui(&world, &["attach", "tale"], (24, 80));
    tui.wait_for_text("You said: first");
    tui.type_text("half a thought");
    kill_when_saved(&world, &mut tui, "half a thought");
    assert_eq!(world.only_live_pod()["name"], "tale");
    let mut tui = TuiTerminal::start_tui(&world, &["attach", "tale"], (24, 80));
    tui.wait_for_text("> half a thought");
    tui.send_keys(ENTER);
    tui.wait_for_text("You said: half a thought");
    tui.wait_until_gone("> half a thought");
    assert!(tui.leave_tui().success());
}

#[test]
fn a_pod_that_is_killed_is_started_again_and_goes_on() {
    let world = CliWorld::with_fixed_paths();
    world.write_file("s.toml", LONG_SCRIPT);
    let mut going = world.start_minke(&["exec", "--name", "tale", "--model", "scripted:s.toml", "go"]);
    going.wait_for_stdout("first part");
    let mut tui = TuiTerminal::start_tui(&world, &["attach", "tale"], (24, 80));
    tui.wait_for_text("The first part is here.");
    crate::support::world::kill_by_pid(&world.only_live_pod()["pid"]);
    tui.wait_for_text("paused");
    assert_eq!(going.wait_for_exit().code, Some(75));
    tui.check_snapshots("killed");
    tui.send_keys(ENTER);
    tui.wait_for_text("esc pause");
    tui.wait_until_gone("paused");
    tui.check_snapshots("killed-resumed");
    assert!(tui.leave_tui().success());
}

#[test]
fn a_process_that_is_stopped_gives_the_terminal_back_and_goes_on() {
    let world = world_with_idle_pod();
    let mut tui = TuiTerminal::start_tui(&world, &["attach", "tale"], (24, 80));
    tui.wait_for_text("You said: first");
    tui.type_text("a draft");
    tui.send_keys("\x1a");
    tui.wait_until_gone("a draft");
    while !is_process_stopped(&tui) {}
    assert!(tui.pty.is_line_mode(), "the shell has the terminal");
    kill_process(tui.pty.process_id(), Signal::CONT).unwrap();
    tui.wait_for_text("> a draft");
    assert!(!tui.pty.is_line_mode());
    assert!(tui.leave_tui().success());
}

#[test]
fn minke_alone_begins_a_session_and_shows_it_the_next_time() {
    for size in SCREEN_SIZES {
        let world = CliWorld::with_fixed_paths().with_env("MINKE_MODEL", "scripted:s.toml");
        world.write_file("s.toml", ECHO_SCRIPT);
        let mut tui = TuiTerminal::start_tui(&world, &[], size);
        tui.wait_for_text("Describe a task");
        tui.check_snapshot("opening");
        tui.type_text("good morning");
        tui.send_keys(ENTER);
        tui.wait_for_text("You said: good morning");
        tui.wait_for_text("idle");
        assert!(tui.leave_tui().success());
        assert_eq!(world.only_live_pod()["state"], "idle");
        let mut tui = TuiTerminal::start_tui(&world, &[], size);
        tui.wait_for_text("running");
        tui.check_snapshot("opening-later");
        tui.send_keys(ENTER);
        tui.wait_for_text("You said: good morning");
        assert!(tui.leave_tui().success());
    }
}

#[test]
fn somebody_new_gets_from_nothing_to_a_first_answer() {
    let world = CliWorld::with_fixed_paths();
    let mut tui = TuiTerminal::start_tui(&world, &[], (24, 80));
    tui.wait_for_text("Choose a model");
    tui.check_snapshots("first-run");
    let down = "\x1b[B";
    while !tui.screen_text().contains("> scripted:demo") {
        tui.send_keys(down);
        tui.pty.read_output();
    }
    tui.send_keys(ENTER);
    tui.wait_for_text("model scripted:demo");
    tui.type_text("hello");
    tui.send_keys(ENTER);
    tui.wait_for_text("idle");
    assert!(tui.leave_tui().success());
}
