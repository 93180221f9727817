//! Typing in the terminal UI, on a pseudo-terminal with the real binary: keys as in vi, completions before a pod lives, keys
//! of one's own.

use crate::images::PNG;
use crate::tui_screen::{ENTER, ESC, SIZES, Tui, attached, told};
use crate::world::World;

const ECHO: &str = "loop = true\nchunk = 3\n[[turn]]\ntext = \"You said: {{prompt}}\"\n";
const WRITES: &str = "[[turn]]\n[[turn.call]]\ntool = \"Write\"\nargs = { file_path = \"a.txt\", content = \"a\\n\" }\n[[turn]]\ntext = \"Said and done.\"\n";
const ASKS: &str = "[[rule]]\naction = \"ask\"\ntool = \"Write\"\n";

#[test]
fn vi_keys_are_chosen_kept_and_known() {
    for size in SIZES {
        let world = told(ECHO);
        let mut tui = attached(&world, size, "You said: first");
        tui.press("/settings ");
        tui.until("/settings ");
        tui.press(ENTER);
        tui.until("vi ");
        // Down to the last row, and the other of two.
        tui.press("\x1b[B\x1b[B\x1b[B ");
        tui.until("on ");
        tui.press(ESC);
        tui.until("INSERT");
        assert!(tui.leave().success());

        let mut tui = attached(&world, size, "You said: first");
        tui.until("INSERT");
        tui.write("one two three");
        tui.press(ESC);
        tui.until("NORMAL");
        tui.press("dd");
        tui.until_gone("one two");
        tui.press("u");
        tui.until("> one two three");
        tui.press("0dw");
        tui.until("> two three");
        tui.press(".");
        tui.until("> three");
        tui.press("ifour ");
        tui.until("> four three");
        tui.press(ESC);
        tui.until("NORMAL");
        tui.press(ENTER);
        tui.until("You said: four three");
        // The cursor was a bar and a block, and is the person's own again.
        assert!(tui.pty.bytes().windows(5).any(|bytes| bytes == b"\x1b[2 q"));
        tui.press("\x03");
        tui.until("again leaves");
        tui.press("\x03");
        assert!(tui.pty.end().success());
        let bytes = tui.pty.bytes();
        let last = bytes.windows(5).rfind(|bytes| bytes.starts_with(b"\x1b[") && bytes.ends_with(b" q"));
        assert_eq!(last, Some(b"\x1b[0 q".as_slice()));
        tui.check_restored();
    }
}

#[test]
fn a_file_is_completed_before_a_pod_lives() {
    for size in SIZES {
        let world = World::new().with("MINKE_MODEL", "scripted:s.toml");
        world.write("s.toml", ECHO);
        std::fs::create_dir(world.work().join("notes")).unwrap();
        world.write("notes/plan-of-the-house.md", "Three rooms.\n");
        let mut tui = Tui::start(&world, &[], size);
        tui.until("what is to be done?");
        tui.press("see @notes/");
        tui.until("plan-of-the-house.md");
        tui.press("\t");
        tui.until("> see @notes/plan-of-the-house.md");
        tui.press(ENTER);
        tui.until("You said: see");
        // It is a reference: the pod was given what is in it.
        let log = world.run(&["log", "show", "work", "--json"]);
        assert!(log.out.contains("file_ref"), "{log:?}");
        assert!(tui.leave().success());
    }
}

#[test]
fn a_question_is_answered_with_a_key_of_ones_own() {
    let world = World::new();
    world.write("s.toml", WRITES);
    std::fs::create_dir_all(world.home().join("config")).unwrap();
    std::fs::write(world.home().join("config/policy.toml"), ASKS).unwrap();
    std::fs::write(world.home().join("config/keys.toml"), "answer-once = \"j\"\n").unwrap();
    let going =
        world.start(&["exec", "--name", "tale", "--on-ask", "wait", "--model", "scripted:s.toml", "go"]);
    while world.json(&["asks", "--json"]).as_array().unwrap().is_empty() {}
    let mut tui = Tui::start(&world, &["attach", "tale"], (24, 80));
    tui.until("a question waits");
    tui.until("j once");
    tui.until("j once  a session");
    tui.press("j");
    tui.until("Said and done.");
    assert_eq!(world.read("a.txt"), "a\n");
    assert_eq!(going.end().code, Some(0));
    tui.until("stopped");
    assert!(tui.leave().success());
}

#[test]
fn the_persons_editor_has_the_terminal_and_gives_it_back() {
    for size in SIZES {
        let world = told(ECHO);
        let editor =
            world.write("editor.sh", "#!/bin/sh\ncat \"$1\" > seen.txt\necho ' and more' >> \"$1\"\n");
        let mut command = world.command();
        command.args(["attach", "tale"]).env("TERM", "xterm-256color");
        command.env("VISUAL", format!("sh {}", editor.display()));
        let mut tui = Tui::with(command, size);
        tui.until("You said: first");
        tui.until("idle");
        tui.write("begun");
        tui.press("\x07");
        tui.until("and more");
        assert_eq!(world.read("seen.txt").trim(), "begun", "it began with what was typed");
        tui.press(ENTER);
        tui.until("You said: begun");
        assert!(tui.leave().success());
    }
}

#[test]
fn what_was_said_in_one_session_is_remembered_in_another() {
    let world = told(ECHO);
    let mut tui = attached(&world, SIZES[0], "You said: first");
    tui.write("remember me");
    tui.press(ENTER);
    tui.until("You said: remember me");
    assert!(tui.leave().success());
    let other = world.work().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("s.toml"), ECHO).unwrap();
    let mut command = world.command();
    command.current_dir(&other).args(["exec", "--name", "other", "--model", "scripted:s.toml", "hello"]);
    assert_eq!(world.done(command).code, Some(0));
    let mut tui = Tui::start(&world, &["attach", "other"], SIZES[0]);
    tui.until("You said: hello");
    tui.until("idle");
    tui.press("\x1b[A");
    tui.until("> remember me");
    assert!(tui.leave().success());
}

#[test]
fn a_long_paste_and_a_picture_are_chips_and_go_whole() {
    let world = told(ECHO);
    let dot = world.write("dot.png", "no picture at all");
    let mut tui = attached(&world, SIZES[0], "You said: first");
    let lines: Vec<String> = (1..=40).map(|number| format!("pasted line {number}")).collect();
    tui.press(&format!("\x1b[200~{}\x1b[201~", lines.join("\n")));
    tui.until("[paste 1: 40 lines]");
    tui.press(&format!("\x1b[200~{}\x1b[201~", dot.display()));
    tui.until("[image dot.png]");
    tui.press(ENTER);
    // What is no picture is refused, and everything is back.
    tui.until("not taken:");
    tui.until("> [paste 2: 40 lines][image");
    std::fs::write(&dot, PNG).unwrap();
    tui.press(ENTER);
    // The reply says it again.
    tui.until("pasted line 40");
    tui.until("idle");
    let log = world.run(&["log", "show", "tale", "--json"]);
    assert!(log.out.contains("pasted line 1\\n") && log.out.contains("pasted line 40"), "{log:?}");
    assert!(log.out.contains("image/png"), "{log:?}");
    assert!(tui.leave().success());
}

#[test]
fn the_mouse_scrolls_if_it_is_wanted_and_is_given_back() {
    let rows: String = (1..=80).map(|number| format!("- row {number}.\\n")).collect();
    let world = told(&format!("[[turn]]\ntext = \"{rows}The end.\"\n"));
    let mut tui = attached(&world, SIZES[0], "The end.");
    let has = |bytes: &[u8], wanted: &[u8]| bytes.windows(wanted.len()).any(|some| some == wanted);
    assert!(!has(tui.pty.bytes(), b"\x1b[?1000h"), "nobody wanted it yet");
    tui.press("/settings mouse on");
    tui.until("/settings mouse on");
    tui.press(ENTER);
    tui.until_gone("> /settings");
    // A notch of the wheel, upwards and down again.
    tui.press("\x1b[<64;10;5M");
    tui.until("more below");
    tui.press("\x1b[<65;10;5M");
    tui.until_gone("more below");
    assert!(has(tui.pty.bytes(), b"\x1b[?1000h"));
    tui.press("\x03");
    tui.until("again leaves");
    tui.press("\x03");
    assert!(tui.pty.end().success());
    assert!(has(tui.pty.bytes(), b"\x1b[?1000l"), "it is the person's own again");
    tui.check_restored();
}
