//! Navigation in the terminal UI, with the real binary on a pseudo-terminal: asks of all pods, other pods and
//! threads, a scope conflict, a first run with a local server, the tour.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use crate::support::world::CliWorld;
use crate::trees::tree_commands::world_with_repository;
use crate::tui::screen::{ENTER, ESC, SCREEN_SIZES, TuiTerminal, attach_tui, world_with_finished_run};

pub(crate) const ECHO_SCRIPT: &str = "loop = true\nchunk = 3\n[[turn]]\ntext = \"You said: {{prompt}}\"\n";
pub(crate) const HALF_SCRIPT: &str =
    "[[turn]]\nsteps = [{ text = \"Half of it.\" }, { delay_ms = 60000 }, { text = \"never\" }]\n";
pub(crate) const WRITE_SCRIPT: &str = "[[turn]]\n[[turn.call]]\ntool = \"Write\"\nargs = { file_path = \"a.txt\", content = \"a\\n\" }\n[[turn]]\ntext = \"Said and done.\"\n";
pub(crate) const ASK_POLICY: &str = "[[rule]]\naction = \"ask\"\ntool = \"Write\"\n";
const UP_KEY: &str = "\x1b[A";
const DOWN_KEY: &str = "\x1b[B";
pub(crate) const ALT_A: &str = "\x1ba";

/// Starts a pod in another directory and sends it a message.
pub(crate) fn start_pod_elsewhere(world: &CliWorld, name: &str, script: &str) {
    let dir = world.work_dir().join(name);
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("s.toml"), script).unwrap();
    let mut command = world.minke_command();
    command.current_dir(&dir).args(["thread", "create", "--name", name, "--model", "scripted:s.toml"]);
    let made = world.run_command(command);
    assert_eq!(made.code, Some(0), "{made:?}");
    let sent = world.run_minke(&["send", name, "go"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
}

#[test]
fn questions_of_other_pods_are_seen_and_answered_from_anywhere() {
    for size in SCREEN_SIZES {
        let world = CliWorld::new();
        std::fs::create_dir_all(world.home_dir().join("config")).unwrap();
        std::fs::write(world.home_dir().join("config/policy.toml"), ASK_POLICY).unwrap();
        start_pod_elsewhere(&world, "calm", ECHO_SCRIPT);
        start_pod_elsewhere(&world, "wild", WRITE_SCRIPT);
        start_pod_elsewhere(&world, "keen", WRITE_SCRIPT);
        while world.run_json(&["asks", "--json"]).as_array().unwrap().len() < 2 {}
        let mut tui = TuiTerminal::start_tui(&world, &["attach", "calm"], size);
        tui.wait_for_text("You said: go");
        tui.wait_for_text("2 ask: alt-a");
        tui.send_keys(ALT_A);
        tui.wait_for_text("2 open questions");
        tui.wait_for_text("a.txt");
        tui.send_keys("y");
        tui.wait_for_text("1 open question");
        // A key meant for the previous card does not answer a new one: the card ignores it at first.
        tui.send_keys(ESC);
        tui.wait_for_text("1 asks: alt-a");
        tui.wait_for_text("You said: go");
        tui.send_keys(ALT_A);
        tui.wait_for_text("a.txt");
        tui.send_keys("n");
        tui.wait_for_text("why not?");
        tui.send_keys("not now");
        tui.wait_for_text("not now");
        tui.send_keys(ENTER);
        tui.wait_for_text("no open questions");
        tui.send_keys(ESC);
        tui.wait_for_text("You said: go");
        tui.wait_until_gone("ask: alt-a");
        assert!(tui.leave_tui().success());
        for name in ["wild", "keen"] {
            assert_eq!(world.run_minke(&["wait", name]).code, Some(0));
        }
        let written =
            ["wild", "keen"].iter().filter(|name| world.work_dir().join(name).join("a.txt").exists()).count();
        assert_eq!(written, 1, "one was approved, one was denied");
    }
}

#[test]
fn another_pod_is_told_something_and_answers_there() {
    for size in SCREEN_SIZES {
        let world = CliWorld::new();
        start_pod_elsewhere(&world, "one", ECHO_SCRIPT);
        start_pod_elsewhere(&world, "two", ECHO_SCRIPT);
        let mut tui = TuiTerminal::start_tui(&world, &["attach", "one"], size);
        tui.wait_for_text("You said: go");
        tui.send_keys("\x10two");
        tui.wait_for_text("› two");
        tui.send_keys("\x13");
        tui.wait_for_text("to two:");
        tui.send_keys("hello over there");
        tui.wait_for_text("to two: hello over there");
        tui.send_keys(ENTER);
        tui.wait_for_text("sent to two");
        tui.send_keys(ENTER);
        tui.wait_for_text("You said: hello over there");
        assert!(tui.leave_tui().success());
        assert_eq!(world.run_minke(&["read", "two"]).out, "You said: hello over there\n");
    }
}

#[test]
fn a_thread_is_looked_into_and_gets_another_name() {
    let world = world_with_finished_run(ECHO_SCRIPT);
    let mut tui = attach_tui(&world, (40, 120), "You said: first");
    tui.send_keys("\x12");
    tui.wait_for_text("1 conversation");
    // Its end, below the list.
    tui.wait_for_screen("the reply", |screen| screen.matches("You said: first").count() == 1);
    tui.send_keys("\x0e");
    tui.wait_for_text("name: tale");
    tui.send_keys("!");
    tui.wait_for_text("name: tale!");
    tui.send_keys(ENTER);
    tui.wait_for_text("`tale!` is not a pod name");
    tui.send_keys("\x0e");
    tui.wait_for_text("name: tale");
    tui.send_keys("-two");
    tui.send_keys(ENTER);
    tui.wait_for_text("renamed to tale-two");
    assert!(tui.leave_tui().success());
    let threads = world.run_json(&["thread", "list", "--json"]);
    assert_eq!(threads["threads"][0]["name"], "tale-two", "{threads}");
}

#[test]
fn a_directory_that_is_held_is_joined_looked_at_or_cloned() {
    for (steps, shown) in [(0, "> also this"), (1, "read-only"), (2, "You said: also this")] {
        let Some(world) = world_with_repository("a_directory_that_is_held_is_joined_looked_at_or_cloned")
        else {
            return;
        };
        let world = world.with_env("MINKE_MODEL", "scripted:echo.toml");
        world.write_file("s.toml", HALF_SCRIPT);
        world.write_file("echo.toml", ECHO_SCRIPT);
        let mut busy = world.start_minke(&["exec", "--name", "busy", "--model", "scripted:s.toml", "go"]);
        busy.wait_for_stdout("Half");
        let mut tui = TuiTerminal::start_tui(&world, &[], (24, 120));
        tui.wait_for_text("Describe a task");
        tui.type_text("also this");
        tui.send_keys(ENTER);
        tui.wait_for_text("join busy");
        (0..steps).for_each(|_| tui.send_keys(DOWN_KEY));
        tui.send_keys(ENTER);
        tui.wait_for_text(shown);
        if steps == 0 {
            tui.wait_for_text("Half of it.");
        } else {
            tui.wait_for_text("You said: also this");
        }
        assert!(tui.leave_tui().success());
    }
}

/// A local server that lists its models and nothing else.
fn start_model_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let asked = lines.next().and_then(Result::ok).unwrap_or_default();
            lines.take_while(|line| line.as_ref().is_ok_and(|line| !line.is_empty())).for_each(drop);
            let body = match asked.starts_with("GET /v1/models ") {
                true => "{\"data\":[{\"id\":\"small:1b\"},{\"id\":\"bad\\u001b[2Jname\"}]}",
                false => "{}",
            };
            let length = body.len();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
        }
    });
    at
}

#[test]
fn somebody_new_finds_a_server_on_this_machine_and_chooses_it() {
    for size in SCREEN_SIZES {
        let world = CliWorld::new().with_env("OLLAMA_HOST", &start_model_server());
        let mut tui = TuiTerminal::start_tui(&world, &[], size);
        tui.wait_for_text("Choose a model.");
        let screen = tui.wait_for_text("ollama/small:1b");
        assert!(!screen.contains("bad"), "{screen}");
        assert!(screen.contains("minke tour") || size.0 < 20, "{screen}");
        // The row that was selected before the server replied is still selected.
        tui.wait_for_text("> scripted:demo");
        tui.send_keys(UP_KEY);
        tui.wait_for_text("> ollama/small:1b");
        tui.send_keys(ENTER);
        tui.wait_for_text("model ollama/smal");
        assert!(tui.leave_tui().success());
        let kept = std::fs::read_to_string(world.home_dir().join("config/config.toml")).unwrap();
        assert!(kept.contains("ollama/small:1b"), "{kept}");
    }
}

#[test]
fn somebody_new_takes_the_tour_and_comes_back() {
    let world = CliWorld::new();
    let mut tui = TuiTerminal::start_tui(&world, &[], (40, 120));
    tui.wait_for_text("minke tour");
    tui.send_keys(DOWN_KEY);
    tui.send_keys(ENTER);
    tui.wait_for_text("read-only:");
    tui.wait_for_text("Find out why and fix it");
    tui.send_keys("x");
    tui.wait_for_text("this view is read-only");
    tui.send_keys("\x03");
    tui.wait_for_text("again to quit");
    tui.send_keys("\x03");
    tui.wait_for_text("Tour");
    tui.send_keys(ESC);
    tui.wait_for_text("Choose a model.");
    assert!(tui.leave_tui().success());
}

/// The log after the damage may contain an ask that is not visible.
#[test]
fn a_log_that_is_damaged_is_named_among_the_questions() {
    let world = world_with_finished_run(ECHO_SCRIPT);
    let mut sessions = std::fs::read_dir(world.home_dir().join("data/sessions")).unwrap();
    let log = sessions.next().unwrap().unwrap().path().join("log.jsonl");
    let text = std::fs::read_to_string(&log).unwrap();
    std::fs::write(&log, text.replacen("\"user_input\"", "\"user_imput\"", 1)).unwrap();
    let asks = world.run_minke(&["asks"]);
    assert_eq!(asks.code, Some(0), "{asks:?}");
    assert!(asks.err.contains("may have open asks: log.jsonl is damaged at line"), "{asks:?}");
    assert!(asks.err.contains("`minke log repair"), "{asks:?}");
    let mut tui = TuiTerminal::start_tui(&world, &[], SCREEN_SIZES[1]);
    tui.wait_for_text("describe a task");
    tui.send_keys(ALT_A);
    tui.wait_for_text("no open questions");
    tui.wait_for_text("may have open asks: log.jsonl is damaged at line");
    tui.send_keys(ESC);
    tui.wait_until_gone("no open questions");
    assert!(tui.leave_tui().success());
}

#[test]
fn rules_skills_the_doctor_and_an_export_are_shown() {
    for size in SCREEN_SIZES {
        let world = world_with_finished_run(ECHO_SCRIPT);
        let skill = world.work_dir().join(".minke/skills/roofing");
        std::fs::create_dir_all(&skill).unwrap();
        let text = "---\nname: roofing\ndescription: How roofs are mended.\n---\n\nWith care.\n";
        std::fs::write(skill.join("SKILL.md"), text).unwrap();
        let mut tui = attach_tui(&world, size, "You said: first");
        for (command, shown) in [
            ("/policy", "┌Policy"),
            ("/policy rm -rf /", "$ rm -rf /"),
            ("/doctor", "┌Doctor"),
            ("/skills", "roofing"),
        ] {
            tui.send_keys(&format!("{command} "));
            tui.wait_for_text(command);
            tui.send_keys(ENTER);
            tui.wait_for_text(shown);
            tui.wait_for_text("esc close");
            if command == "/skills" {
                tui.check_snapshot("skills");
            }
            tui.send_keys(ESC);
            tui.wait_for_text("You said: first");
        }
        tui.send_keys("/export out.md");
        tui.wait_for_text("/export out.md");
        tui.send_keys(ENTER);
        tui.wait_for_text("exported to");
        assert!(world.read_file("out.md").contains("You said: first"));
        tui.send_keys("/export out.md");
        tui.wait_for_text("/export out.md");
        tui.send_keys(ENTER);
        tui.wait_for_text("could not write");
        assert!(tui.leave_tui().success());
    }
}
