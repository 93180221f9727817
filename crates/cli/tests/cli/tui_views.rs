//! Views of the terminal UI beside the conversation, and what a person does while a run goes on, on a pseudo-terminal at
//! three sizes.

use std::time::{Duration, Instant};

use crate::tui_screen::{ENTER, ESC, SIZES, Tui, attached, told};
use crate::world::World;

const ECHO: &str = "loop = true\nchunk = 3\n[[turn]]\ntext = \"You said: {{prompt}}\"\n";
const HALF: &str =
    "[[turn]]\nsteps = [{ text = \"Half of it.\" }, { delay_ms = 60000 }, { text = \"never\" }]\n";
const WRITES: &str = "[[turn]]\n[[turn.call]]\ntool = \"Write\"\nargs = { file_path = \"a.txt\", content = \"a\\n\" }\n[[turn]]\ntext = \"Said and done.\"\n";

#[test]
fn every_view_opens_says_what_the_keys_are_and_closes() {
    for size in SIZES {
        let world = told(WRITES);
        let mut tui = attached(&world, size, "Said and done.");
        let views = [
            ("/help", "Help"),
            ("/diff", "Changes"),
            ("/context", "Context"),
            ("/tasks", "Tasks"),
            ("/pods", "Pods"),
            ("/threads", "Threads"),
            ("/settings", "theme"),
            ("/scope", "may touch"),
            ("/cost", "pods below"),
            ("/mcp", "no MCP server"),
            ("/rewind", "Back to"),
        ];
        for (command, shown) in views {
            tui.press(&format!("{command} "));
            tui.until(command);
            tui.press(ENTER);
            // Forty columns have no room for every key.
            let says = |screen: &str| size.1 < 80 || screen.contains("esc close");
            tui.until_screen(command, |screen| screen.contains(shown) && says(screen));
            tui.press(ESC);
            tui.until_gone(shown);
            tui.until("Said and done.");
        }
        assert!(tui.leave().success());
    }
}

#[test]
fn while_a_run_goes_on_inputs_wait_come_back_steer_and_a_pause_holds_them() {
    for size in SIZES {
        let world = World::new();
        world.write("s.toml", HALF);
        let mut going = world.start(&["exec", "--name", "tale", "--model", "scripted:s.toml", "go"]);
        going.until("Half");
        let mut tui = Tui::start(&world, &["attach", "tale"], size);
        tui.until("Half of it.");
        tui.write("later on");
        tui.press(ENTER);
        tui.until("queued: later on");
        // Up takes it back.
        tui.press("\x1b[A");
        tui.until("> later on");
        tui.until_gone("queued:");
        tui.press(" or not");
        tui.until("> later on or not");
        tui.press(ENTER);
        tui.until("queued: later on or not");
        tui.write("now");
        tui.press("\x1bs");
        tui.until("steers: now");
        tui.press(ESC);
        tui.until("paused");
        tui.until("held: later on or not");
        assert!(tui.leave().success());
    }
}

#[test]
fn several_pods_are_a_tree_and_one_that_asks_comes_first() {
    for size in SIZES {
        let world = World::new();
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
fn without_colours_nothing_is_coloured_and_plain_lines_have_no_frames() {
    let world = told(ECHO);
    let start = |name: &str, value: &str| {
        let mut command = world.command();
        command.args(["attach", "tale"]).env("TERM", "xterm-256color").env(name, value);
        Tui::with(command, (24, 80))
    };
    let mut tui = start("NO_COLOR", "1");
    tui.until("You said: first");
    tui.until("idle");
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
    let mut tui = start("MINKE_PLAIN", "1");
    let screen = tui.until("You said: first");
    assert!(screen.contains("you: first") && !screen.contains('─'), "{screen}");
    assert!(tui.leave().success());
}

fn is_colour(number: u32) -> bool {
    matches!(number, 30..=38 | 40..=48 | 90..=107)
}

#[test]
fn a_light_theme_is_chosen_and_kept() {
    let world = told(ECHO);
    let mut tui = attached(&world, (24, 80), "You said: first");
    tui.press("/theme light");
    tui.until("/theme light");
    tui.press(ENTER);
    tui.until("the theme is `light`");
    assert!(tui.leave().success());
    let kept = std::fs::read_to_string(world.home().join("state/tui/settings.json")).unwrap();
    assert!(kept.contains("light"), "{kept}");
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
    tui.until("ctrl-c leave");
    // Leaving does not end it: it is told to its end.
    tui.press("\x03");
    tui.until("again leaves");
    tui.press("\x03");
    let status = tui.pty.end();
    tui.check_restored();
    assert!(status.success(), "{}", tui.screen());
    assert!(tui.pty.text().contains("log verify"), "{}", tui.screen());
}
