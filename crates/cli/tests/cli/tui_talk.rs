//! The terminal UI attached to a pod, with the real binary on a pseudo-terminal.

use rustix::process::{Signal, kill_process};

use crate::tui_screen::{CTRL_C, ENTER, ESC, SIZES, Tui, told};
use crate::world::{Going, World};

const ECHO: &str = "loop = true\nchunk = 3\n[[turn]]\nusage = { input = 900, output = 70 }\ntext = \"You said: {{prompt}}\"\n";
const ASKS: &str = "[[rule]]\naction = \"ask\"\ntool = \"Write\"\n";
const WRITES: &str = "[[turn]]\nusage = { input = 900, output = 70 }\n[[turn.call]]\ntool = \"Write\"\nargs = { file_path = \"a.txt\", content = \"a\\n\" }\n[[turn]]\nusage = { input = 950, output = 80 }\ntext = \"Said and done.\"\n";

/// A pod called `tale` that lives and has nothing to do.
fn living() -> World {
    told(ECHO)
}

#[test]
fn somebody_attaches_speaks_and_leaves_and_the_pod_goes_on() {
    for size in SIZES {
        let world = living();
        let mut tui = Tui::start(&world, &["attach", "tale"], size);
        tui.until("You said: first");
        tui.until("idle");
        assert!(!tui.pty.is_cooked(), "keys come one by one");
        tui.write("hello there");
        tui.press(ENTER);
        let screen = tui.until("You said: hello there");
        assert!(screen.contains("tale"), "{screen}");
        assert!(tui.leave().success());
        assert_eq!(world.only_pod()["name"], "tale");
        assert_eq!(world.run(&["read", "tale"]).out, "You said: hello there\n");
    }
}

/// A pod that waits for somebody to let it write, and the command that waits for the pod.
fn asking() -> (World, Going) {
    let world = World::pictured();
    world.write("s.toml", WRITES);
    std::fs::create_dir_all(world.home().join("config")).unwrap();
    std::fs::write(world.home().join("config/policy.toml"), ASKS).unwrap();
    let exec = ["exec", "--name", "tale", "--on-ask", "wait", "--model", "scripted:s.toml", "go"];
    let going = world.start(&exec);
    while world.json(&["asks", "--json"]).as_array().unwrap().is_empty() {}
    (world, going)
}

#[test]
fn a_question_is_a_card_and_y_answers_it() {
    for size in SIZES {
        let (world, going) = asking();
        let mut tui = Tui::start(&world, &["attach", "tale"], size);
        tui.until("a question waits");
        tui.until("a.txt");
        tui.picture("question");
        if size == SIZES[0] {
            tui.coloured_picture("question-coloured");
        }
        tui.press("y");
        tui.until("Said and done.");
        assert_eq!(world.read("a.txt"), "a\n");
        assert_eq!(going.end().code, Some(0));
        tui.until("stopped");
        tui.picture("question-answered");
        assert!(tui.leave().success());
    }
}

#[test]
fn a_question_that_somebody_else_answers_closes_here() {
    let (world, going) = asking();
    let mut tui = Tui::start(&world, &["attach", "tale"], SIZES[0]);
    tui.until("a question waits");
    tui.press("n");
    tui.until("why not?");
    tui.pictures("question-note");
    let asks = world.json(&["asks", "--json"]);
    let answered = world.run(&["answer", asks[0]["id"].as_str().unwrap(), "approved"]);
    assert_eq!(answered.code, Some(0), "{answered:?}");
    tui.until("Said and done.");
    tui.until_gone("a question waits");
    tui.until_gone("why not?");
    assert_eq!(going.end().code, Some(0));
    tui.until("stopped");
    tui.until_gone("answered elsewhere");
    tui.pictures("question-answered-elsewhere");
    assert!(tui.leave().success());
}

#[test]
fn a_screen_reader_is_told_of_a_question_and_its_keys() {
    let (world, going) = asking();
    let mut tui = Tui::start_with(&world, &["attach", "tale"], ("MINKE_PLAIN", "1"));
    tui.until("a question waits");
    tui.until("a.txt");
    tui.pictures("plain-question");
    tui.press("y");
    tui.until("Said and done.");
    assert_eq!(going.end().code, Some(0));
    tui.until("stopped");
    tui.pictures("plain-question-answered");
    assert!(tui.leave().success());
}

#[test]
fn a_signal_gives_the_terminal_back() {
    let world = living();
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let mut tui = Tui::start(&world, &["attach", "tale"], (24, 80));
        tui.until("You said: first");
        kill_process(tui.pty.pid(), signal).unwrap();
        assert_eq!(tui.pty.end().code(), Some(130));
        tui.check_restored();
    }
}

#[test]
fn on_a_pipe_minke_alone_says_what_to_do() {
    let world = World::new();
    let done = world.run(&[]);
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.err.contains("not a terminal") && done.err.contains("minke exec"), "{done:?}");
}

#[test]
fn what_is_not_understood_leaves_everything_as_it_was() {
    let world = living();
    let mut tui = Tui::start(&world, &["attach", "tale"], (24, 80));
    tui.until("You said: first");
    // A sequence that nobody knows, an unfinished one, and a bare escape.
    tui.press("\x1b[99;99~");
    tui.press(ESC);
    tui.until("Esc again");
    tui.write("still here");
    tui.press(CTRL_C);
    tui.until("again leaves");
    tui.press(CTRL_C);
    assert!(tui.pty.end().success());
}

/// Two hundred drops, fifty in a second.
const TRICKLE: &str = "[[turn]]\nusage = { input = 900, output = 70 }\npace_ms = 20\nsteps = [{ text = \"drop \", repeat = 200 }, { text = \"The last drop.\" }]\n";
/// Waits in the middle for longer than a test looks at it; after a pause it goes on.
const PAUSED: &str = "[[turn]]\nusage = { input = 900, output = 70 }\nsteps = [{ text = \"The first part is here.\" }, { delay_ms = 60000 }, { text = \"never\" }]\n[[turn]]\nusage = { input = 950, output = 80 }\ntext = \"And the rest.\"\n";
/// Goes on for as long as a test looks at it.
const LONG: &str = "[[turn]]\nusage = { input = 900, output = 70 }\nsteps = [{ text = \"The first part is here.\\n\\n| a | b |\\n|---|---|\\n| 1 | 2 |\" }, { delay_ms = 60000 }, { text = \"never\" }]\n";

#[test]
fn a_terminal_that_is_resized_while_a_stream_goes_on_is_drawn_anew() {
    let world = World::pictured();
    world.write("s.toml", TRICKLE);
    let mut going = world.start(&["exec", "--name", "tale", "--model", "scripted:s.toml", "go"]);
    going.until("drop");
    let mut tui = Tui::start(&world, &["attach", "tale"], (24, 80));
    tui.until("drop");
    for (rows, columns) in [(12, 40), (40, 120), (24, 80)].into_iter().cycle().take(9) {
        tui.resize(rows, columns);
        let fits = |screen: &str| {
            let widest = screen.lines().map(|line| line.chars().count()).max().unwrap_or(0);
            screen.contains("drop") && widest > usize::from(columns / 2) && screen.contains("pause")
        };
        tui.until_screen(&format!("{columns} columns"), fits);
    }
    assert!(!tui.screen().contains("The last drop."), "it went on meanwhile");
    tui.until("The last drop.");
    tui.until("stopped");
    tui.pictures("resized-in-mid-stream");
    assert_eq!(going.end().code, Some(0));
    assert!(tui.leave().success());
}

#[test]
fn a_key_that_comes_with_a_change_of_size_is_not_left_lying() {
    let world = living();
    let mut tui = Tui::start(&world, &["attach", "tale"], (24, 80));
    tui.until("You said: first");
    for round in 1..=20 {
        // While the first change is drawn the next ones come, and keys with them.
        for (rows, columns) in [(12, 40), (40, 120), (24, 80)] {
            tui.resize(rows, columns);
            tui.press("\x1b[D");
            tui.press("x");
        }
        tui.until(&format!("> {}", "x".repeat(round * 3)));
    }
    assert!(tui.leave().success());
}

fn is_stopped(tui: &Tui) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", tui.pty.pid().as_raw_nonzero())).unwrap();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
}

#[test]
fn a_run_is_paused_and_goes_on() {
    let world = World::pictured().with("MINKE_MODEL", "scripted:s.toml");
    world.write("s.toml", PAUSED);
    let mut tui = Tui::start(&world, &[], SIZES[0]);
    tui.until("Say what is to be done");
    tui.write("go");
    tui.press(ENTER);
    tui.until("The first part is here.");
    tui.press(ESC);
    tui.until("paused: Enter");
    tui.pictures("paused");
    tui.press(ENTER);
    tui.until("And the rest.");
    tui.until("idle");
    tui.pictures("resumed");
    assert!(tui.leave().success());
}

/// Kills the terminal as soon as what was typed is on the disk.
fn kill_when_saved(world: &World, tui: &mut Tui, typed: &str) {
    let drafts = world.home().join("state/tui/drafts");
    let holds = |file: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(file.unwrap().path()).is_ok_and(|text| text.contains(typed))
    };
    while !std::fs::read_dir(&drafts).is_ok_and(|mut files| files.any(holds)) {
        tui.screen();
    }
    kill_process(tui.pty.pid(), Signal::KILL).unwrap();
    tui.pty.end();
}

/// Two halves, a while apart.
const HALVES: &str = "[[turn]]\nusage = { input = 900, output = 70 }\npace_ms = 2500\ntext = [\"The first half. \", \"The second half.\"]\n";

#[test]
fn a_terminal_that_is_killed_in_the_middle_of_a_run_finds_everything_again() {
    let world = World::pictured().with("MINKE_MODEL", "scripted:s.toml");
    world.write("s.toml", HALVES);
    let mut tui = Tui::start(&world, &[], SIZES[0]);
    tui.until("Say what is to be done");
    tui.write("go");
    tui.press(ENTER);
    tui.until("The first half.");
    tui.write("half a thought");
    kill_when_saved(&world, &mut tui, "half a thought");
    assert_eq!(world.only_pod()["state"], "running", "the run goes on");
    let mut tui = Tui::start(&world, &[], SIZES[0]);
    tui.until("lives");
    tui.press(ENTER);
    tui.until("The first half. The second half.");
    tui.until("idle");
    tui.until("> half a thought");
    tui.pictures("killed-terminal");
    assert!(tui.leave().success());
    world.verify();
}

#[test]
fn a_terminal_that_is_killed_leaves_the_run_and_the_draft() {
    let world = living();
    let mut tui = Tui::start(&world, &["attach", "tale"], (24, 80));
    tui.until("You said: first");
    tui.write("half a thought");
    kill_when_saved(&world, &mut tui, "half a thought");
    assert_eq!(world.only_pod()["name"], "tale");
    let mut tui = Tui::start(&world, &["attach", "tale"], (24, 80));
    tui.until("> half a thought");
    tui.press(ENTER);
    tui.until("You said: half a thought");
    tui.until_gone("> half a thought");
    assert!(tui.leave().success());
}

#[test]
fn a_pod_that_is_killed_is_started_again_and_goes_on() {
    let world = World::pictured();
    world.write("s.toml", LONG);
    let mut going = world.start(&["exec", "--name", "tale", "--model", "scripted:s.toml", "go"]);
    going.until("first part");
    let mut tui = Tui::start(&world, &["attach", "tale"], (24, 80));
    tui.until("The first part is here.");
    crate::world::kill(&world.only_pod()["pid"]);
    tui.until("paused");
    assert_eq!(going.end().code, Some(75));
    tui.pictures("killed");
    tui.press(ENTER);
    tui.until("esc pause");
    tui.until_gone("paused");
    tui.pictures("killed-resumed");
    assert!(tui.leave().success());
}

#[test]
fn a_process_that_is_stopped_gives_the_terminal_back_and_goes_on() {
    let world = living();
    let mut tui = Tui::start(&world, &["attach", "tale"], (24, 80));
    tui.until("You said: first");
    tui.write("a draft");
    tui.press("\x1a");
    tui.until_gone("a draft");
    while !is_stopped(&tui) {}
    assert!(tui.pty.is_cooked(), "the shell has it");
    kill_process(tui.pty.pid(), Signal::CONT).unwrap();
    tui.until("> a draft");
    assert!(!tui.pty.is_cooked());
    assert!(tui.leave().success());
}

#[test]
fn minke_alone_begins_a_session_and_shows_it_the_next_time() {
    for size in SIZES {
        let world = World::pictured().with("MINKE_MODEL", "scripted:s.toml");
        world.write("s.toml", ECHO);
        let mut tui = Tui::start(&world, &[], size);
        tui.until("Say what is to be done");
        tui.picture("opening");
        tui.write("good morning");
        tui.press(ENTER);
        tui.until("You said: good morning");
        tui.until("idle");
        assert!(tui.leave().success());
        assert_eq!(world.only_pod()["state"], "idle");
        let mut tui = Tui::start(&world, &[], size);
        tui.until("lives");
        tui.picture("opening-later");
        tui.press(ENTER);
        tui.until("You said: good morning");
        assert!(tui.leave().success());
    }
}

#[test]
fn somebody_new_gets_from_nothing_to_a_first_answer() {
    let world = World::pictured();
    let mut tui = Tui::start(&world, &[], (24, 80));
    tui.until("Which model");
    tui.pictures("first-run");
    let down = "\x1b[B";
    while !tui.screen().contains("> scripted:demo") {
        tui.press(down);
        tui.pty.hear();
    }
    tui.press(ENTER);
    tui.until("model scripted:demo");
    tui.write("hello");
    tui.press(ENTER);
    tui.until("idle");
    assert!(tui.leave().success());
}
