//! Pictures of views beside the conversation that need more than one pod or more than one session: everybody's
//! questions, rules, a directory that is held, and the themes.

use crate::tui_reach::{ALT_A, ASKS, ECHO, HALF, WRITES, elsewhere};
use crate::tui_screen::{ENTER, ESC, SIZES, Tui, attached, told};
use crate::world::World;

#[test]
fn everybodys_questions_and_the_rules_have_their_pictures() {
    let world = World::pictured();
    std::fs::create_dir_all(world.home().join("config")).unwrap();
    std::fs::write(world.home().join("config/policy.toml"), ASKS).unwrap();
    elsewhere(&world, "calm", ECHO);
    for (many, name) in [(1, "wild"), (2, "keen")] {
        elsewhere(&world, name, WRITES);
        while world.json(&["asks", "--json"]).as_array().unwrap().len() < many {}
    }
    let mut tui = Tui::start(&world, &["attach", "calm"], SIZES[0]);
    tui.until("You said: go");
    tui.until("2 ask: alt-a");
    tui.press(ALT_A);
    tui.until("2 open questions");
    tui.pictures("asks");
    tui.press(ESC);
    let views = [("/policy", "┌Policy", "policy"), ("/policy rm -rf /", "$ rm -rf /", "policy-of-a-command")];
    for (command, shown, picture) in views {
        tui.until("You said: go");
        tui.press(&format!("{command} "));
        tui.until(command);
        tui.press(ENTER);
        tui.until(shown);
        tui.pictures(picture);
        tui.press(ESC);
    }
    tui.until("You said: go");
    assert!(tui.leave().success());
}

#[test]
fn the_ways_out_of_a_held_directory_have_their_picture() {
    let world = World::pictured().with("MINKE_MODEL", "scripted:s.toml");
    world.write("s.toml", HALF);
    let mut busy = world.start(&["exec", "--name", "busy", "--model", "scripted:s.toml", "go"]);
    busy.until("Half");
    let mut tui = Tui::start(&world, &[], SIZES[0]);
    tui.until("Say what is to be done");
    tui.write("also this");
    tui.press(ENTER);
    tui.until("join busy");
    tui.pictures("held");
    tui.press(ESC);
    tui.until("> also this");
    assert!(tui.leave().success());
}

#[test]
fn dark_and_contrast_are_drawn() {
    let world = told(ECHO);
    for theme in ["dark", "contrast"] {
        let mut tui = attached(&world, SIZES[0], "You said: first");
        tui.press(&format!("/theme {theme}"));
        tui.until(&format!("/theme {theme}"));
        tui.press(ENTER);
        tui.until(&format!("theme is `{theme}`"));
        assert!(tui.leave().success());
        let mut tui = attached(&world, SIZES[0], "You said: first");
        tui.coloured_pictures(theme);
        assert!(tui.leave().success());
    }
}
