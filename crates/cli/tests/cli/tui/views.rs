//! Views of the terminal UI, and user input during a run, on a pseudo-terminal at three sizes.

use std::time::{Duration, Instant};

use crate::support::world::CliWorld;
use crate::tui::screen::{
    CTRL_U, ENTER, ESC, SCREEN_SIZES, TuiTerminal, attach_tui, world_with_finished_run,
};

const ECHO_SCRIPT: &str = "loop = true\nchunk = 3\n[[turn]]\nusage = { input = 900, output = 70 }\ntext = \"You said: {{prompt}}\"\n";
const HALF_SCRIPT: &str = "[[turn]]\nusage = { input = 900, output = 70 }\nsteps = [{ text = \"Half of it.\" }, { delay_ms = 60000 }, { text = \"never\" }]\n";
const WRITE_SCRIPT: &str = "[[turn]]\nusage = { input = 900, output = 70 }\n[[turn.call]]\ntool = \"Write\"\nargs = { file_path = \"a.txt\", content = \"a\\n\" }\n[[turn]]\ntext = \"Said and done.\"\n";

/// One of each kind of content in a conversation.
const SONG_SCRIPT: &str = r##"
[[turn]]
thinking = "Two verses are wanted.\nThe second one has a slip that I put right afterwards."
text = "I write it down first."
usage = { input = 812, output = 31 }
[[turn.call]]
tool = "TaskCreate"
args = { subject = "Write two verses" }
[[turn.call]]
tool = "TaskCreate"
args = { subject = "Put the second one right" }
[[turn.call]]
tool = "TaskCreate"
args = { subject = "Sing it" }
[[turn.call]]
tool = "Write"
args = { file_path = "song.txt", content = "one whale sings\ntwo whales sink\n" }
[[turn]]
usage = { input = 1204, output = 88 }
[[turn.call]]
tool = "TaskUpdate"
args = { id = 1, status = "completed" }
[[turn.call]]
tool = "TaskUpdate"
args = { id = 2, status = "in_progress" }
[[turn.call]]
tool = "Edit"
args = { file_path = "song.txt", old_string = "two whales sink", new_string = "two whales sing" }
[[turn.call]]
tool = "Read"
args = { file_path = "missing.txt" }
[[turn]]
usage = { input = 1530, output = 140 }
text = """
## Two verses

| verse | line | whales |
|---|---|---:|
| first | one whale **sings** | 1 |
| second | two whales *sing* | 2 |

```rust
fn sing(whales: usize) -> String {
    format!("{whales} whales sing") // all of them
}
```

- it is in `song.txt`
- 鯨 means *whale*

Said and done."""
"##;

#[test]
fn every_view_opens_says_what_the_keys_are_and_closes() {
    let world = world_with_finished_run(SONG_SCRIPT);
    let mut tui = attach_tui(&world, SCREEN_SIZES[0], "Said and done.");
    tui.check_snapshots("conversation");
    tui.check_colour_snapshot("conversation-coloured");
    let views = [
        ("/help", "help"),
        ("/diff", "diff"),
        ("/context", "context"),
        ("/tasks", "tasks"),
        ("/pods", "pods"),
        ("/threads", "threads"),
        ("/settings", "settings"),
        ("/scope", "scope"),
        ("/cost", "cost"),
        ("/mcp", "mcp"),
        ("/rewind", "rewind"),
    ];
    for (command, name) in views {
        tui.send_keys(&format!("{command} "));
        tui.wait_for_text(command);
        tui.send_keys(ENTER);
        tui.wait_for_text("esc close");
        match name {
            "context" => tui.check_masked_snapshots(name),
            _ => tui.check_snapshots(name),
        }
        if name == "diff" {
            tui.check_colour_snapshot("diff-coloured");
        }
        tui.send_keys(ESC);
        tui.wait_until_gone("esc close");
        tui.wait_for_text("Said and done.");
    }
    // Another test covers the list of models.
    tui.send_keys("/model ");
    tui.wait_for_text("/model");
    tui.send_keys(ENTER);
    tui.wait_for_text("Models");
    tui.send_keys("scripted");
    tui.check_snapshots("models");
    tui.send_keys(ESC);
    tui.wait_until_gone("esc close");
    assert!(tui.leave_tui().success());
}

#[test]
fn blocks_take_the_focus_and_open() {
    let world = world_with_finished_run(SONG_SCRIPT);
    let mut tui = attach_tui(&world, SCREEN_SIZES[0], "Said and done.");
    tui.send_keys("\t");
    tui.wait_for_text("▌");
    tui.check_snapshots("focus");
    // The call that changed a line, and the thinking.
    for (up, name) in [(2, "call-opened"), (8, "thinking-opened")] {
        for _ in 0..up {
            tui.send_keys("\x1b[A");
        }
        tui.send_keys(ENTER);
        tui.check_snapshots(name);
    }
    tui.send_keys(ESC);
    tui.wait_until_gone("▌");
    assert!(tui.leave_tui().success());
}

#[test]
fn what_can_be_completed_pops_up() {
    let world = world_with_finished_run(SONG_SCRIPT);
    let mut tui = attach_tui(&world, SCREEN_SIZES[0], "Said and done.");
    for (typed, name) in [("/", "popup-commands"), ("/th", "popup-narrowed"), ("look at @so", "popup-files")]
    {
        tui.send_keys(typed);
        tui.wait_for_text(&format!("> {typed}"));
        tui.check_snapshots(name);
        tui.send_keys(CTRL_U);
        tui.wait_for_text(">  type a message");
    }
    assert!(tui.leave_tui().success());
}

#[test]
fn while_a_run_goes_on_inputs_wait_come_back_steer_and_a_pause_holds_them() {
    for size in SCREEN_SIZES {
        let world = CliWorld::with_fixed_paths();
        world.write_file("s.toml", HALF_SCRIPT);
        let mut going = world.start_minke(&["exec", "--name", "tale", "--model", "scripted:s.toml", "go"]);
        going.wait_for_stdout("Half");
        let mut tui = TuiTerminal::start_tui(&world, &["attach", "tale"], size);
        tui.wait_for_text("Half of it.");
        tui.type_text("later on");
        tui.send_keys(ENTER);
        tui.wait_for_text("queued: later on");
        tui.check_snapshot("queue");
        // The Up key takes it back.
        tui.send_keys("\x1b[A");
        tui.wait_for_text("> later on");
        tui.wait_until_gone("queued:");
        tui.send_keys(" or not");
        tui.wait_for_text("> later on or not");
        tui.check_snapshot("queue-edited");
        tui.send_keys(ENTER);
        tui.wait_for_text("queued: later on or not");
        tui.type_text("now");
        tui.send_keys("\x1bs");
        tui.wait_for_text("steers: now");
        tui.check_snapshot("steer");
        tui.send_keys(ESC);
        tui.wait_for_text("paused");
        tui.wait_for_text("held: later on or not");
        tui.check_snapshot("queue-held");
        assert!(tui.leave_tui().success());
    }
}

#[test]
fn several_pods_are_a_tree_and_one_that_asks_comes_first() {
    for size in SCREEN_SIZES {
        let world = CliWorld::with_fixed_paths();
        world.write_file("e.toml", ECHO_SCRIPT);
        std::fs::create_dir_all(world.home_dir().join("config")).unwrap();
        std::fs::write(
            world.home_dir().join("config/policy.toml"),
            "[[rule]]\naction = \"ask\"\ntool = \"Write\"\n",
        )
        .unwrap();
        for name in ["one", "two", "wild"] {
            let dir = world.work_dir().join(name);
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(dir.join("s.toml"), if name == "wild" { WRITE_SCRIPT } else { ECHO_SCRIPT })
                .unwrap();
            let mut command = world.minke_command();
            command.current_dir(&dir).args([
                "thread",
                "create",
                "--name",
                name,
                "--model",
                "scripted:s.toml",
            ]);
            let made = world.run_command(command);
            assert_eq!(made.code, Some(0), "{made:?}");
            let sent = world.run_minke(&["send", name, "go"]);
            assert_eq!(sent.code, Some(0), "{sent:?}");
        }
        while world.run_json(&["asks", "--json"]).as_array().unwrap().is_empty() {}
        let mut tui = TuiTerminal::start_tui(&world, &["attach", "one"], size);
        tui.wait_for_text("You said: go");
        tui.send_keys("\x10");
        tui.wait_for_text("Pods");
        tui.wait_for_text("wild");
        let screen = tui.wait_for_text("two");
        let at = |name: &str| screen.lines().position(|line| line.contains(name)).unwrap();
        assert!(at("wild") < at("two"), "{screen}");
        tui.check_snapshot("pods-one-asks");
        // The first row is selected: the one that asks.
        tui.send_keys(ENTER);
        tui.wait_for_text("1 open question");
        tui.send_keys("y");
        tui.wait_for_text("Said and done.");
        assert!(tui.leave_tui().success());
    }
}

#[test]
fn threads_are_searched_in_what_was_said() {
    let world = world_with_finished_run(ECHO_SCRIPT);
    let mut tui = attach_tui(&world, (24, 80), "You said: first");
    tui.send_keys("\x12");
    tui.wait_for_text("Threads");
    tui.wait_for_text("tale");
    tui.send_keys("no such message");
    tui.wait_until_gone("first ");
    for _ in 0.."no such message".len() {
        tui.send_keys("\x7f");
    }
    tui.send_keys("first");
    tui.wait_for_text("first");
    tui.send_keys(ENTER);
    tui.wait_for_text("You said: first");
    assert!(tui.leave_tui().success());
}

#[test]
fn keys_are_the_persons_own_and_mistakes_in_them_are_told() {
    let world = world_with_finished_run(ECHO_SCRIPT);
    std::fs::create_dir_all(world.home_dir().join("config")).unwrap();
    std::fs::write(world.home_dir().join("config/keys.toml"), "pods = \"f2\"\nfly = \"f3\"\n").unwrap();
    let mut tui = TuiTerminal::start_tui(&world, &["attach", "tale"], (24, 80));
    tui.wait_for_text("unknown action `fly`");
    tui.send_keys("\x1bOQ");
    tui.wait_for_text("Pods");
    tui.send_keys(ESC);
    tui.wait_for_text("You said: first");
    assert!(tui.leave_tui().success());
}

#[test]
fn without_colours_nothing_is_coloured() {
    let world = world_with_finished_run(SONG_SCRIPT);
    let mut tui = TuiTerminal::start_with_var(&world, &["attach", "tale"], ("NO_COLOR", "1"));
    tui.wait_for_text("Said and done.");
    tui.wait_for_text("idle");
    tui.check_colour_snapshots("no-colour");
    let bytes = String::from_utf8_lossy(tui.pty.output_bytes()).into_owned();
    // Between `ESC [` and `m`: 30 to 37, 38, 40 to 47, 48, 90 to 107 are colours, 39 and 49 the terminal's
    // defaults.
    let numbers = |rest: &'_ str| -> Option<String> {
        let numbers: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == ';').collect();
        rest.strip_prefix(numbers.as_str()).is_some_and(|end| end.starts_with('m')).then_some(numbers)
    };
    let all = bytes.split("\x1b[").skip(1).filter_map(numbers);
    let coloured: Vec<String> =
        all.filter(|some| some.split(';').filter_map(|n| n.parse().ok()).any(is_known_colour)).collect();
    assert!(coloured.is_empty(), "{coloured:?}");
    assert!(tui.leave_tui().success());
}

#[test]
fn for_a_screen_reader_there_are_labelled_lines_and_no_frames() {
    let world = world_with_finished_run(SONG_SCRIPT);
    let mut tui = TuiTerminal::start_with_var(&world, &["attach", "tale"], ("MINKE_PLAIN", "1"));
    tui.wait_for_text("Said and done.");
    tui.wait_for_text("idle");
    tui.check_snapshots("plain");
    for (command, name) in [("/help ", "plain-help"), ("/diff ", "plain-diff"), ("/pods ", "plain-pods")] {
        tui.send_keys(command);
        tui.wait_for_text(command.trim());
        tui.send_keys(ENTER);
        tui.wait_for_text("esc close");
        tui.check_snapshots(name);
        tui.send_keys(ESC);
        tui.wait_until_gone("esc close");
    }
    let screen = tui.wait_for_text("Said and done.");
    assert!(!screen.contains('─') && !screen.contains('▌'), "{screen}");
    assert!(tui.leave_tui().success());
}

fn is_known_colour(number: u32) -> bool {
    matches!(number, 30..=38 | 40..=48 | 90..=107)
}

#[test]
fn a_light_theme_is_chosen_drawn_and_kept() {
    let world = world_with_finished_run(SONG_SCRIPT);
    let mut tui = attach_tui(&world, SCREEN_SIZES[0], "Said and done.");
    tui.send_keys("/theme light");
    tui.wait_for_text("/theme light");
    tui.send_keys(ENTER);
    tui.wait_for_text("theme: light");
    assert!(tui.leave_tui().success());
    let kept = std::fs::read_to_string(world.home_dir().join("state/tui/settings.json")).unwrap();
    assert!(kept.contains("light"), "{kept}");
    let mut tui = attach_tui(&world, SCREEN_SIZES[0], "Said and done.");
    tui.check_colour_snapshots("light");
    assert!(tui.leave_tui().success());
}

/// Sixty thousand characters, three at a time.
fn fast_script() -> String {
    let words = "full speed ahead ".repeat(3_530);
    format!("chunk = 3\n[[turn]]\ntext = \"{words}The end of it.\"\n")
}

#[test]
fn keys_are_answered_while_a_stream_runs_at_full_speed() {
    let world = CliWorld::new().with_env("MINKE_MODEL", "scripted:s.toml");
    world.write_file("s.toml", &fast_script());
    let mut tui = TuiTerminal::start_tui(&world, &[], (24, 80));
    tui.wait_for_text("Describe a task");
    tui.type_text("go");
    tui.send_keys(ENTER);
    tui.wait_for_text("full speed");
    let mut waits: Vec<Duration> = Vec::new();
    let mut typed = String::new();
    for letter in "abcdefghijklmnopqrstuvwxyz".chars() {
        typed.push(letter);
        let began = Instant::now();
        tui.send_keys(&letter.to_string());
        tui.wait_for_text(&format!("> {typed}"));
        waits.push(began.elapsed());
    }
    waits.sort();
    let (middle, most) = (waits[waits.len() / 2], waits[waits.len() - 1]);
    eprintln!("a key is seen after {middle:?} median and {most:?} at most");
    // The limit allows for a busy machine; users would notice one second.
    assert!(most < Duration::from_secs(1), "{waits:?}");
    tui.wait_for_text("The end of it.");
    assert!(tui.leave_tui().success());
}

#[test]
fn the_tour_is_looked_on_at_and_told_afterwards() {
    let world = CliWorld::new();
    let mut tui = TuiTerminal::start_tui(&world, &["tour", "--watch"], (40, 120));
    tui.wait_for_text("Find out why and fix it");
    // Leaving does not end the tour: it prints to its end.
    tui.send_keys("\x03");
    tui.wait_for_text("again to quit");
    tui.send_keys("\x03");
    let status = tui.pty.wait_for_exit();
    tui.check_restored();
    assert!(status.success(), "{}", tui.screen_text());
    assert!(tui.pty.output_text().contains("log verify"), "{}", tui.screen_text());
}
