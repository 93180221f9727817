//! Typing in the terminal UI, on a pseudo-terminal with the real binary: keys as in vi, completions before a pod lives, keys
//! of one's own.

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
