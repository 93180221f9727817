//! Views of the terminal UI beside the conversation, and what a person does while a run goes on, on a pseudo-terminal at
//! three sizes.

use std::time::{Duration, Instant};

use crate::tui_screen::{CTRL_U, ENTER, ESC, SIZES, Tui, attached, told};
use crate::world::World;

const ECHO: &str = "loop = true\nchunk = 3\n[[turn]]\nusage = { input = 900, output = 70 }\ntext = \"You said: {{prompt}}\"\n";
const HALF: &str = "[[turn]]\nusage = { input = 900, output = 70 }\nsteps = [{ text = \"Half of it.\" }, { delay_ms = 60000 }, { text = \"never\" }]\n";
const WRITES: &str = "[[turn]]\nusage = { input = 900, output = 70 }\n[[turn.call]]\ntool = \"Write\"\nargs = { file_path = \"a.txt\", content = \"a\\n\" }\n[[turn]]\ntext = \"Said and done.\"\n";

/// Something of everything that a conversation shows.
const SONG: &str = r##"
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
    let world = told(SONG);
    let mut tui = attached(&world, SIZES[0], "Said and done.");
    tui.pictures("conversation");
    tui.coloured_picture("conversation-coloured");
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
        tui.press(&format!("{command} "));
        tui.until(command);
        tui.press(ENTER);
        tui.until("esc close");
        match name {
            "context" => tui.pictures_without_figures(name),
            _ => tui.pictures(name),
        }
        if name == "diff" {
            tui.coloured_picture("diff-coloured");
        }
        tui.press(ESC);
        tui.until_gone("esc close");
        tui.until("Said and done.");
    }
    // Which models there are is told elsewhere.
    tui.press("/model ");
    tui.until("/model");
    tui.press(ENTER);
    tui.until("Models");
    tui.press("scripted");
    tui.pictures("models");
    tui.press(ESC);
    tui.until_gone("esc close");
    assert!(tui.leave().success());
}

#[test]
fn blocks_take_the_focus_and_open() {
    let world = told(SONG);
    let mut tui = attached(&world, SIZES[0], "Said and done.");
    tui.press("\t");
    tui.until("▌");
    tui.pictures("focus");
    // The call that changed a line, and what was thought.
    for (up, name) in [(2, "call-opened"), (8, "thinking-opened")] {
        for _ in 0..up {
            tui.press("\x1b[A");
        }
        tui.press(ENTER);
        tui.pictures(name);
    }
    tui.press(ESC);
    tui.until_gone("▌");
    assert!(tui.leave().success());
}

#[test]
fn what_can_be_completed_pops_up() {
    let world = told(SONG);
    let mut tui = attached(&world, SIZES[0], "Said and done.");
    for (typed, name) in [("/", "popup-commands"), ("/th", "popup-narrowed"), ("look at @so", "popup-files")]
    {
        tui.press(typed);
        tui.until(&format!("> {typed}"));
        tui.pictures(name);
        tui.press(CTRL_U);
        tui.until(">  say something");
    }
    assert!(tui.leave().success());
}

#[test]
fn while_a_run_goes_on_inputs_wait_come_back_steer_and_a_pause_holds_them() {
    for size in SIZES {
        let world = World::pictured();
        world.write("s.toml", HALF);
        let mut going = world.start(&["exec", "--name", "tale", "--model", "scripted:s.toml", "go"]);
        going.until("Half");
        let mut tui = Tui::start(&world, &["attach", "tale"], size);
        tui.until("Half of it.");
        tui.write("later on");
        tui.press(ENTER);
        tui.until("queued: later on");
        tui.picture("queue");
        // Up takes it back.
        tui.press("\x1b[A");
        tui.until("> later on");
        tui.until_gone("queued:");
        tui.press(" or not");
        tui.until("> later on or not");
        tui.picture("queue-edited");
        tui.press(ENTER);
        tui.until("queued: later on or not");
        tui.write("now");
        tui.press("\x1bs");
        tui.until("steers: now");
        tui.picture("steer");
        tui.press(ESC);
        tui.until("paused");
        tui.until("held: later on or not");
        tui.picture("queue-held");
        assert!(tui.leave().success());
    }
}

#[test]
fn several_pods_are_a_tree_and_one_that_asks_comes_first() {
    for size in SIZES {
        let world = World::pictured();
        world.write("e.toml", ECHO);
        std::fs::create_dir_all(world.home().join("config")).unwrap();
        std::fs::write(
            world.home().join("config/policy.toml"),
            "[[rule]]\naction = \"ask\"\ntool = \"Write\"\n",
        )
        .unwrap();
        for name in ["one", "two", "wild"] {
            let dir = world.work().join(name);
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(dir.join("s.toml"), if name == "wild" { WRITES } else { ECHO }).unwrap();
            let mut command = world.command();
            command.current_dir(&dir).args([
                "thread",
                "create",
                "--name",
                name,
                "--model",
                "scripted:s.toml",
            ]);
            let made = world.done(command);
            assert_eq!(made.code, Some(0), "{made:?}");
            let sent = world.run(&["send", name, "go"]);
            assert_eq!(sent.code, Some(0), "{sent:?}");
        }
        while world.json(&["asks", "--json"]).as_array().unwrap().is_empty() {}
        let mut tui = Tui::start(&world, &["attach", "one"], size);
        tui.until("You said: go");
        tui.press("\x10");
        tui.until("Pods");
        tui.until("wild");
        let screen = tui.until("two");
        let at = |name: &str| screen.lines().position(|line| line.contains(name)).unwrap();
        assert!(at("wild") < at("two"), "{screen}");
        tui.picture("pods-one-asks");
        // The first row is chosen: the one that asks.
        tui.press(ENTER);
        tui.until("a question waits");
        tui.press("y");
        tui.until("Said and done.");
        assert!(tui.leave().success());
    }
}

#[test]
fn threads_are_searched_in_what_was_said() {
    let world = told(ECHO);
    let mut tui = attached(&world, (24, 80), "You said: first");
    tui.press("\x12");
    tui.until("Threads");
    tui.until("tale");
    tui.press("nobody said this");
    tui.until_gone("first ");
    for _ in 0.."nobody said this".len() {
        tui.press("\x7f");
    }
    tui.press("first");
    tui.until("first");
    tui.press(ENTER);
    tui.until("You said: first");
    assert!(tui.leave().success());
}

#[test]
fn keys_are_the_persons_own_and_mistakes_in_them_are_told() {
    let world = told(ECHO);
    std::fs::create_dir_all(world.home().join("config")).unwrap();
    std::fs::write(world.home().join("config/keys.toml"), "pods = \"f2\"\nfly = \"f3\"\n").unwrap();
    let mut tui = Tui::start(&world, &["attach", "tale"], (24, 80));
    tui.until("no action `fly`");
    tui.press("\x1bOQ");
    tui.until("Pods");
    tui.press(ESC);
    tui.until("You said: first");
    assert!(tui.leave().success());
}

#[test]
fn without_colours_nothing_is_coloured() {
    let world = told(SONG);
    let mut tui = Tui::start_with(&world, &["attach", "tale"], ("NO_COLOR", "1"));
    tui.until("Said and done.");
    tui.until("idle");
    tui.coloured_pictures("no-colour");
    let bytes = String::from_utf8_lossy(tui.pty.bytes()).into_owned();
    // What is between `ESC [` and `m`: 30 to 37, 38, 40 to 47, 48, 90 to 107 are colours, 39 and 49 the terminal's own.
    let numbers = |rest: &'_ str| -> Option<String> {
        let numbers: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == ';').collect();
        rest.strip_prefix(numbers.as_str()).is_some_and(|end| end.starts_with('m')).then_some(numbers)
    };
    let all = bytes.split("\x1b[").skip(1).filter_map(numbers);
    let coloured: Vec<String> =
        all.filter(|some| some.split(';').filter_map(|n| n.parse().ok()).any(is_colour)).collect();
    assert!(coloured.is_empty(), "{coloured:?}");
    assert!(tui.leave().success());
}

#[test]
fn for_a_screen_reader_there_are_labelled_lines_and_no_frames() {
    let world = told(SONG);
    let mut tui = Tui::start_with(&world, &["attach", "tale"], ("MINKE_PLAIN", "1"));
    tui.until("Said and done.");
    tui.until("idle");
    tui.pictures("plain");
    for (command, name) in [("/help ", "plain-help"), ("/diff ", "plain-diff"), ("/pods ", "plain-pods")] {
        tui.press(command);
        tui.until(command.trim());
        tui.press(ENTER);
        tui.until("esc close");
        tui.pictures(name);
        tui.press(ESC);
        tui.until_gone("esc close");
    }
    let screen = tui.until("Said and done.");
    assert!(!screen.contains('─') && !screen.contains('▌'), "{screen}");
    assert!(tui.leave().success());
}

fn is_colour(number: u32) -> bool {
    matches!(number, 30..=38 | 40..=48 | 90..=107)
}

#[test]
fn a_light_theme_is_chosen_drawn_and_kept() {
    let world = told(SONG);
    let mut tui = attached(&world, SIZES[0], "Said and done.");
    tui.press("/theme light");
    tui.until("/theme light");
    tui.press(ENTER);
    tui.until("theme is `light`");
    assert!(tui.leave().success());
    let kept = std::fs::read_to_string(world.home().join("state/tui/settings.json")).unwrap();
    assert!(kept.contains("light"), "{kept}");
    let mut tui = attached(&world, SIZES[0], "Said and done.");
    tui.coloured_pictures("light");
    assert!(tui.leave().success());
}

/// Sixty thousand letters, three at a time.
fn fast() -> String {
    let words = "full speed ahead ".repeat(3_530);
    format!("chunk = 3\n[[turn]]\ntext = \"{words}The end of it.\"\n")
}

#[test]
fn keys_are_answered_while_a_stream_runs_at_full_speed() {
    let world = World::new().with("MINKE_MODEL", "scripted:s.toml");
    world.write("s.toml", &fast());
    let mut tui = Tui::start(&world, &[], (24, 80));
    tui.until("Say what is to be done");
    tui.write("go");
    tui.press(ENTER);
    tui.until("full speed");
    let mut waits: Vec<Duration> = Vec::new();
    let mut typed = String::new();
    for letter in "abcdefghijklmnopqrstuvwxyz".chars() {
        typed.push(letter);
        let began = Instant::now();
        tui.press(&letter.to_string());
        tui.until(&format!("> {typed}"));
        waits.push(began.elapsed());
    }
    waits.sort();
    let (middle, most) = (waits[waits.len() / 2], waits[waits.len() - 1]);
    eprintln!("a key is seen after {middle:?} in the middle and {most:?} at the most");
    // A machine that builds something else at the same time is slow; one second would be felt on any.
    assert!(most < Duration::from_secs(1), "{waits:?}");
    tui.until("The end of it.");
    assert!(tui.leave().success());
}

#[test]
fn the_tour_is_looked_on_at_and_told_afterwards() {
    let world = World::new();
    let mut tui = Tui::start(&world, &["tour", "--watch"], (40, 120));
    tui.until("Find out why and mend it");
    // Leaving does not end it: it is told to its end.
    tui.press("\x03");
    tui.until("again leaves");
    tui.press("\x03");
    let status = tui.pty.end();
    tui.check_restored();
    assert!(status.success(), "{}", tui.screen());
    assert!(tui.pty.text().contains("log verify"), "{}", tui.screen());
}
