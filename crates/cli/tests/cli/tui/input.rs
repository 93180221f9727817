//! Input in the terminal UI, on a pseudo-terminal with the real binary: vi keys, completions before a pod
//! exists, custom keys.

use crate::commands::images::TINY_PNG;
use crate::support::world::CliWorld;
use crate::tui::screen::{ENTER, ESC, SCREEN_SIZES, TuiTerminal, attach_tui, world_with_finished_run};

const ECHO_SCRIPT: &str = "loop = true\nchunk = 3\n[[turn]]\ntext = \"You said: {{prompt}}\"\n";
const WRITE_SCRIPT: &str = "[[turn]]\n[[turn.call]]\ntool = \"Write\"\nargs = { file_path = \"a.txt\", content = \"a\\n\" }\n[[turn]]\ntext = \"Said and done.\"\n";
const ASK_POLICY: &str = "[[rule]]\naction = \"ask\"\ntool = \"Write\"\n";

#[test]
fn vi_keys_are_chosen_kept_and_known() {
    for size in SCREEN_SIZES {
        let world = world_with_finished_run(ECHO_SCRIPT);
        let mut tui = attach_tui(&world, size, "You said: first");
        tui.send_keys("/settings ");
        tui.wait_for_text("/settings ");
        tui.send_keys(ENTER);
        tui.wait_for_text("vi ");
        // Down to the last row, and the other of two.
        tui.send_keys("\x1b[B\x1b[B\x1b[B ");
        tui.wait_for_text("on ");
        tui.send_keys(ESC);
        tui.wait_for_text("INSERT");
        assert!(tui.leave_tui().success());

        let mut tui = attach_tui(&world, size, "You said: first");
        tui.wait_for_text("INSERT");
        tui.type_text("one two three");
        tui.send_keys(ESC);
        tui.wait_for_text("NORMAL");
        tui.send_keys("dd");
        tui.wait_until_gone("one two");
        tui.send_keys("u");
        tui.wait_for_text("> one two three");
        tui.send_keys("0dw");
        tui.wait_for_text("> two three");
        tui.send_keys(".");
        tui.wait_for_text("> three");
        tui.send_keys("ifour ");
        tui.wait_for_text("> four three");
        tui.send_keys(ESC);
        tui.wait_for_text("NORMAL");
        tui.send_keys(ENTER);
        tui.wait_for_text("You said: four three");
        // The cursor was a bar and a block, and has the terminal's own shape again.
        assert!(tui.pty.output_bytes().windows(5).any(|bytes| bytes == b"\x1b[2 q"));
        tui.send_keys("\x03");
        tui.wait_for_text("again to quit");
        tui.send_keys("\x03");
        assert!(tui.pty.wait_for_exit().success());
        let bytes = tui.pty.output_bytes();
        let last = bytes.windows(5).rfind(|bytes| bytes.starts_with(b"\x1b[") && bytes.ends_with(b" q"));
        assert_eq!(last, Some(b"\x1b[0 q".as_slice()));
        tui.check_restored();
    }
}

#[test]
fn a_file_is_completed_before_a_pod_lives() {
    for size in SCREEN_SIZES {
        let world = CliWorld::new().with_env("MINKE_MODEL", "scripted:s.toml");
        world.write_file("s.toml", ECHO_SCRIPT);
        std::fs::create_dir(world.work_dir().join("notes")).unwrap();
        world.write_file("notes/plan-of-the-house.md", "Three rooms.\n");
        let mut tui = TuiTerminal::start_tui(&world, &[], size);
        tui.wait_for_text("describe a task");
        tui.send_keys("see @notes/");
        tui.wait_for_text("plan-of-the-house.md");
        tui.send_keys("\t");
        tui.wait_for_text("> see @notes/plan-of-the-house.md");
        tui.send_keys(ENTER);
        tui.wait_for_text("You said: see");
        // It is a reference: the pod received the file's content.
        let log = world.run_minke(&["log", "show", "work", "--json"]);
        assert!(log.out.contains("file_ref"), "{log:?}");
        assert!(tui.leave_tui().success());
    }
}

#[test]
fn a_question_is_answered_with_a_key_of_ones_own() {
    let world = CliWorld::new();
    world.write_file("s.toml", WRITE_SCRIPT);
    std::fs::create_dir_all(world.home_dir().join("config")).unwrap();
    std::fs::write(world.home_dir().join("config/policy.toml"), ASK_POLICY).unwrap();
    std::fs::write(world.home_dir().join("config/keys.toml"), "answer-once = \"j\"\n").unwrap();
    let going = world.start_minke(&[
        "exec",
        "--name",
        "tale",
        "--on-ask",
        "wait",
        "--model",
        "scripted:s.toml",
        "go",
    ]);
    while world.run_json(&["asks", "--json"]).as_array().unwrap().is_empty() {}
    let mut tui = TuiTerminal::start_tui(&world, &["attach", "tale"], (24, 80));
    tui.wait_for_text("1 open question");
    tui.wait_for_text("j once");
    tui.wait_for_text("j once  a session");
    tui.send_keys("j");
    tui.wait_for_text("Said and done.");
    assert_eq!(world.read_file("a.txt"), "a\n");
    assert_eq!(going.wait_for_exit().code, Some(0));
    tui.wait_for_text("stopped");
    assert!(tui.leave_tui().success());
}

#[test]
fn the_persons_editor_has_the_terminal_and_gives_it_back() {
    for size in SCREEN_SIZES {
        let world = world_with_finished_run(ECHO_SCRIPT);
        let editor =
            world.write_file("editor.sh", "#!/bin/sh\ncat \"$1\" > seen.txt\necho ' and more' >> \"$1\"\n");
        let mut command = world.minke_command();
        command.args(["attach", "tale"]).env("TERM", "xterm-256color");
        command.env("VISUAL", format!("sh {}", editor.display()));
        let mut tui = TuiTerminal::from_command(command, size);
        tui.wait_for_text("You said: first");
        tui.wait_for_text("idle");
        tui.type_text("begun");
        tui.send_keys("\x07");
        tui.wait_for_text("and more");
        assert_eq!(world.read_file("seen.txt").trim(), "begun", "it started with the typed text");
        tui.send_keys(ENTER);
        tui.wait_for_text("You said: begun");
        assert!(tui.leave_tui().success());
    }
}

#[test]
fn what_was_said_in_one_session_is_remembered_in_another() {
    let world = world_with_finished_run(ECHO_SCRIPT);
    let mut tui = attach_tui(&world, SCREEN_SIZES[0], "You said: first");
    tui.type_text("remember me");
    tui.send_keys(ENTER);
    tui.wait_for_text("You said: remember me");
    assert!(tui.leave_tui().success());
    let other = world.work_dir().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("s.toml"), ECHO_SCRIPT).unwrap();
    let mut command = world.minke_command();
    command.current_dir(&other).args(["exec", "--name", "other", "--model", "scripted:s.toml", "hello"]);
    assert_eq!(world.run_command(command).code, Some(0));
    let mut tui = TuiTerminal::start_tui(&world, &["attach", "other"], SCREEN_SIZES[0]);
    tui.wait_for_text("You said: hello");
    tui.wait_for_text("idle");
    tui.send_keys("\x1b[A");
    tui.wait_for_text("> remember me");
    assert!(tui.leave_tui().success());
}

#[test]
fn a_long_paste_and_a_picture_are_chips_and_go_whole() {
    let world = world_with_finished_run(ECHO_SCRIPT);
    let dot = world.write_file("dot.png", "no picture at all");
    let mut tui = attach_tui(&world, SCREEN_SIZES[0], "You said: first");
    let lines: Vec<String> = (1..=40).map(|number| format!("pasted line {number}")).collect();
    tui.send_keys(&format!("\x1b[200~{}\x1b[201~", lines.join("\n")));
    tui.wait_for_text("[paste 1: 40 lines]");
    tui.send_keys(&format!("\x1b[200~{}\x1b[201~", dot.display()));
    tui.wait_for_text("[image dot.png]");
    tui.send_keys(ENTER);
    // A file that is not an image is refused, and the input is restored.
    tui.wait_for_text("refused:");
    tui.wait_for_text("> [paste 2: 40 lines][image");
    std::fs::write(&dot, TINY_PNG).unwrap();
    tui.send_keys(ENTER);
    // The reply repeats it.
    tui.wait_for_text("pasted line 40");
    tui.wait_for_text("idle");
    let log = world.run_minke(&["log", "show", "tale", "--json"]);
    assert!(log.out.contains("pasted line 1\\n") && log.out.contains("pasted line 40"), "{log:?}");
    assert!(log.out.contains("image/png"), "{log:?}");
    assert!(tui.leave_tui().success());
}

#[test]
fn the_mouse_scrolls_if_it_is_wanted_and_is_given_back() {
    let rows: String = (1..=80).map(|number| format!("- row {number}.\\n")).collect();
    let world = world_with_finished_run(&format!("[[turn]]\ntext = \"{rows}The end.\"\n"));
    let mut tui = attach_tui(&world, SCREEN_SIZES[0], "The end.");
    let has = |bytes: &[u8], wanted: &[u8]| bytes.windows(wanted.len()).any(|some| some == wanted);
    assert!(!has(tui.pty.output_bytes(), b"\x1b[?1000h"), "the mouse is not enabled yet");
    tui.send_keys("/settings mouse on");
    tui.wait_for_text("/settings mouse on");
    tui.send_keys(ENTER);
    tui.wait_until_gone("> /settings");
    // One notch of the wheel, up and down again.
    tui.send_keys("\x1b[<64;10;5M");
    tui.wait_for_text("more below");
    tui.send_keys("\x1b[<65;10;5M");
    tui.wait_until_gone("more below");
    assert!(has(tui.pty.output_bytes(), b"\x1b[?1000h"));
    tui.send_keys("\x03");
    tui.wait_for_text("again to quit");
    tui.send_keys("\x03");
    assert!(tui.pty.wait_for_exit().success());
    assert!(has(tui.pty.output_bytes(), b"\x1b[?1000l"), "the terminal's own setting is restored");
    tui.check_restored();
}
