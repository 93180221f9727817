//! What the terminal shows that its pod's own entries do not hold: what was said before a fork, and long texts.

use crate::tui_screen::{ENTER, attached, told};

const ECHO: &str = "loop = true\n[[turn]]\ntext = \"You said: {{prompt}}\"\n";

#[test]
fn a_fork_shows_what_was_said_before_it() {
    let world = told(ECHO);
    let mut tui = attached(&world, (24, 80), "You said: first");
    tui.press("/fork ");
    tui.until("/fork");
    tui.press(ENTER);
    let screen = tui.until("forked from");
    assert!(screen.contains("You said: first") || tui.until("You said: first").contains("forked from"));
    tui.write("second");
    tui.press(ENTER);
    let screen = tui.until("You said: second");
    let at = |text: &str| screen.lines().position(|line| line.contains(text)).unwrap();
    assert!(
        at("You said: first") < at("forked from") && at("forked from") < at("You said: second"),
        "{screen}"
    );
    assert!(tui.leave().success());
}

#[test]
fn a_reply_that_is_too_long_for_the_log_can_be_read_from_its_beginning() {
    let words = "a whale of a tale ".repeat(17_000);
    let world = told(&format!("[[turn]]\ntext = \"It begins here. {words}\"\n"));
    let mut tui = attached(&world, (24, 80), "more in the log");
    tui.until("a whale of a tale");
    // Ctrl-Home.
    tui.press("\x1b[1;5H");
    tui.until("It begins here.");
    assert!(tui.leave().success());
}
