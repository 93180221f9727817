//! Content of the terminal UI from outside the pod's own entries: messages before a fork, and long texts.

use crate::tui::screen::{ENTER, attach_tui, world_with_finished_run};

const ECHO_SCRIPT: &str = "loop = true\n[[turn]]\ntext = \"You said: {{prompt}}\"\n";

#[test]
fn a_fork_shows_what_was_said_before_it() {
    let world = world_with_finished_run(ECHO_SCRIPT);
    let mut tui = attach_tui(&world, (24, 80), "You said: first");
    tui.send_keys("/fork ");
    tui.wait_for_text("/fork");
    tui.send_keys(ENTER);
    let screen = tui.wait_for_text("forked from");
    assert!(
        screen.contains("You said: first") || tui.wait_for_text("You said: first").contains("forked from")
    );
    tui.type_text("second");
    tui.send_keys(ENTER);
    let screen = tui.wait_for_text("You said: second");
    let at = |text: &str| screen.lines().position(|line| line.contains(text)).unwrap();
    assert!(
        at("You said: first") < at("forked from") && at("forked from") < at("You said: second"),
        "{screen}"
    );
    assert!(tui.leave_tui().success());
}

#[test]
fn a_reply_that_is_too_long_for_the_log_can_be_read_from_its_beginning() {
    let words = "a whale of a tale ".repeat(17_000);
    let world = world_with_finished_run(&format!("[[turn]]\ntext = \"It begins here. {words}\"\n"));
    let mut tui = attach_tui(&world, (24, 80), "more in the log");
    tui.wait_for_text("a whale of a tale");
    // Ctrl-Home.
    tui.send_keys("\x1b[1;5H");
    tui.wait_for_text("It begins here.");
    assert!(tui.leave_tui().success());
}
