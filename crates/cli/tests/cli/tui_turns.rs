//! Turns that a conversation takes, on a pseudo-terminal at three sizes: a provider that is asked again, a way back to an
//! earlier input, a change looked at, a theme that is drawn.

use crate::tui_screen::{ENTER, ESC, SIZES, attached, told};

const ECHO: &str = "loop = true\n[[turn]]\ntext = \"You said: {{prompt}}\"\n";
const BUSY: &str = r#"
[[turn]]
text = "Here I am."
[[turn]]
error = { status = 503, message = "too many people", times = 1, retry_after_s = 2 }
text = "Now it went."
"#;
const EDITS: &str = r#"
[[turn]]
[[turn.call]]
tool = "Write"
args = { file_path = "song.txt", content = "one whale\ntwo whales\n" }
[[turn.call]]
tool = "Edit"
args = { file_path = "song.txt", old_string = "two whales", new_string = "three whales" }
[[turn]]
text = "Sung."
"#;

#[test]
fn a_provider_that_is_asked_again_is_counted_down() {
    for size in SIZES {
        let world = told(BUSY);
        let mut tui = attached(&world, size, "Here I am.");
        tui.write("second");
        tui.press(ENTER);
        tui.until("asked again in");
        tui.until("Now it went.");
        tui.until_gone("asked again in");
        assert!(tui.leave().success());
    }
}

#[test]
fn a_way_back_leads_to_an_earlier_input() {
    for size in SIZES {
        let world = told(ECHO);
        let mut tui = attached(&world, size, "You said: first");
        for said in ["second", "third"] {
            tui.write(said);
            tui.press(ENTER);
            tui.until(&format!("You said: {said}"));
            tui.until("idle");
        }
        tui.press(ESC);
        tui.until("Esc again");
        tui.press(ESC);
        tui.until("Back to");
        // The newest stands first, and is chosen.
        tui.press(ENTER);
        tui.until_gone("Back to");
        tui.until_gone("You said: third");
        tui.until("You said: second");
        assert!(tui.leave().success());
        let said = world.run(&["log", "show", "tale", "--kind", "rewound"]).out;
        assert!(said.contains("rewound"), "{said}");
    }
}

#[test]
fn what_a_session_changed_is_looked_at_line_by_line() {
    for size in SIZES {
        let world = told(EDITS);
        let mut tui = attached(&world, size, "Sung.");
        tui.press("/diff ");
        tui.until("/diff");
        tui.press(ENTER);
        tui.until("Changes");
        tui.until_screen("the change", |screen| screen.contains("song.txt") && screen.contains("one whale"));
        tui.press(ESC);
        tui.until("Sung.");
        assert!(tui.leave().success());
    }
}
