//! Snapshots of views that need several pods or sessions: asks of all pods, rules, a scope conflict, and the
//! themes.

use crate::support::world::CliWorld;
use crate::tui::navigation::{
    ALT_A, ASK_POLICY, ECHO_SCRIPT, HALF_SCRIPT, WRITE_SCRIPT, start_pod_elsewhere,
};
use crate::tui::screen::{ENTER, ESC, SCREEN_SIZES, TuiTerminal, attach_tui, world_with_finished_run};

#[test]
fn everybodys_questions_and_the_rules_have_their_pictures() {
    let world = CliWorld::with_fixed_paths();
    std::fs::create_dir_all(world.home_dir().join("config")).unwrap();
    std::fs::write(world.home_dir().join("config/policy.toml"), ASK_POLICY).unwrap();
    start_pod_elsewhere(&world, "calm", ECHO_SCRIPT);
    for (many, name) in [(1, "wild"), (2, "keen")] {
        start_pod_elsewhere(&world, name, WRITE_SCRIPT);
        while world.run_json(&["asks", "--json"]).as_array().unwrap().len() < many {}
    }
    let mut tui = TuiTerminal::start_tui(&world, &["attach", "calm"], SCREEN_SIZES[0]);
    tui.wait_for_text("You said: go");
    tui.wait_for_text("2 ask: alt-a");
    tui.send_keys(ALT_A);
    tui.wait_for_text("2 open questions");
    tui.check_snapshots("asks");
    tui.send_keys(ESC);
    let views = [("/policy", "┌Policy", "policy"), ("/policy rm -rf /", "$ rm -rf /", "policy-of-a-command")];
    for (command, shown, picture) in views {
        tui.wait_for_text("You said: go");
        tui.send_keys(&format!("{command} "));
        tui.wait_for_text(command);
        tui.send_keys(ENTER);
        tui.wait_for_text(shown);
        tui.check_snapshots(picture);
        tui.send_keys(ESC);
    }
    tui.wait_for_text("You said: go");
    assert!(tui.leave_tui().success());
}

#[test]
fn the_ways_out_of_a_held_directory_have_their_picture() {
    let world = CliWorld::with_fixed_paths().with_env("MINKE_MODEL", "scripted:s.toml");
    world.write_file("s.toml", HALF_SCRIPT);
    let mut busy = world.start_minke(&["exec", "--name", "busy", "--model", "scripted:s.toml", "go"]);
    busy.wait_for_stdout("Half");
    let mut tui = TuiTerminal::start_tui(&world, &[], SCREEN_SIZES[0]);
    tui.wait_for_text("Describe a task");
    tui.type_text("also this");
    tui.send_keys(ENTER);
    tui.wait_for_text("join busy");
    tui.check_snapshots("held");
    tui.send_keys(ESC);
    // The composer shows the input under the list, too.
    tui.wait_for_screen("the input without the list", |screen| {
        screen.contains("also this") && !screen.contains("join busy")
    });
    assert!(tui.leave_tui().success());
}

#[test]
fn dark_and_contrast_are_drawn() {
    let world = world_with_finished_run(ECHO_SCRIPT);
    for theme in ["dark", "contrast"] {
        let mut tui = attach_tui(&world, SCREEN_SIZES[0], "You said: first");
        tui.send_keys(&format!("/theme {theme}"));
        tui.wait_for_text(&format!("/theme {theme}"));
        tui.send_keys(ENTER);
        tui.wait_for_text(&format!("theme: {theme}"));
        assert!(tui.leave_tui().success());
        let mut tui = attach_tui(&world, SCREEN_SIZES[0], "You said: first");
        tui.check_colour_snapshots(theme);
        assert!(tui.leave_tui().success());
    }
}
