//! What is reached from the terminal UI beside the conversation, with the real binary on a pseudo-terminal: everybody's
//! questions, other pods and threads, a directory that is held, a first run with a server on this machine, the tour.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use crate::tree_face::repository;
use crate::tui_screen::{ENTER, ESC, SIZES, Tui, attached, told};
use crate::world::World;

pub(crate) const ECHO: &str = "loop = true\nchunk = 3\n[[turn]]\ntext = \"You said: {{prompt}}\"\n";
pub(crate) const HALF: &str =
    "[[turn]]\nsteps = [{ text = \"Half of it.\" }, { delay_ms = 60000 }, { text = \"never\" }]\n";
pub(crate) const WRITES: &str = "[[turn]]\n[[turn.call]]\ntool = \"Write\"\nargs = { file_path = \"a.txt\", content = \"a\\n\" }\n[[turn]]\ntext = \"Said and done.\"\n";
pub(crate) const ASKS: &str = "[[rule]]\naction = \"ask\"\ntool = \"Write\"\n";
const UP: &str = "\x1b[A";
const DOWN: &str = "\x1b[B";
pub(crate) const ALT_A: &str = "\x1ba";

/// A pod in a directory of its own that has been told to go.
pub(crate) fn elsewhere(world: &World, name: &str, script: &str) {
    let dir = world.work().join(name);
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("s.toml"), script).unwrap();
    let mut command = world.command();
    command.current_dir(&dir).args(["thread", "create", "--name", name, "--model", "scripted:s.toml"]);
    let made = world.done(command);
    assert_eq!(made.code, Some(0), "{made:?}");
    let sent = world.run(&["send", name, "go"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
}

#[test]
fn questions_of_other_pods_are_seen_and_answered_from_anywhere() {
    for size in SIZES {
        let world = World::new();
        std::fs::create_dir_all(world.home().join("config")).unwrap();
        std::fs::write(world.home().join("config/policy.toml"), ASKS).unwrap();
        elsewhere(&world, "calm", ECHO);
        elsewhere(&world, "wild", WRITES);
        elsewhere(&world, "keen", WRITES);
        while world.json(&["asks", "--json"]).as_array().unwrap().len() < 2 {}
        let mut tui = Tui::start(&world, &["attach", "calm"], size);
        tui.until("You said: go");
        tui.until("2 ask: alt-a");
        tui.press(ALT_A);
        tui.until("2 open questions");
        tui.until("a.txt");
        tui.press("y");
        tui.until("1 open question");
        // A card that has just come up is not answered by a key that was meant for the one before: it is looked at first.
        tui.press(ESC);
        tui.until("1 asks: alt-a");
        tui.until("You said: go");
        tui.press(ALT_A);
        tui.until("a.txt");
        tui.press("n");
        tui.until("why not?");
        tui.press("not now");
        tui.until("not now");
        tui.press(ENTER);
        tui.until("nobody waits for an answer");
        tui.press(ESC);
        tui.until("You said: go");
        tui.until_gone("ask: alt-a");
        assert!(tui.leave().success());
        for name in ["wild", "keen"] {
            assert_eq!(world.run(&["wait", name]).code, Some(0));
        }
        let written =
            ["wild", "keen"].iter().filter(|name| world.work().join(name).join("a.txt").exists()).count();
        assert_eq!(written, 1, "one was allowed, one was not");
    }
}

#[test]
fn another_pod_is_told_something_and_answers_there() {
    for size in SIZES {
        let world = World::new();
        elsewhere(&world, "one", ECHO);
        elsewhere(&world, "two", ECHO);
        let mut tui = Tui::start(&world, &["attach", "one"], size);
        tui.until("You said: go");
        tui.press("\x10two");
        tui.until("› two");
        tui.press("\x13");
        tui.until("to two:");
        tui.press("hello over there");
        tui.until("to two: hello over there");
        tui.press(ENTER);
        tui.until("told two");
        tui.press(ENTER);
        tui.until("You said: hello over there");
        assert!(tui.leave().success());
        assert_eq!(world.run(&["read", "two"]).out, "You said: hello over there\n");
    }
}

#[test]
fn a_thread_is_looked_into_and_gets_another_name() {
    let world = told(ECHO);
    let mut tui = attached(&world, (40, 120), "You said: first");
    tui.press("\x12");
    tui.until("1 conversation");
    // The end of it, below the list.
    tui.until_screen("what was answered", |screen| screen.matches("You said: first").count() == 1);
    tui.press("\x0e");
    tui.until("name: tale");
    tui.press("!");
    tui.until("name: tale!");
    tui.press(ENTER);
    tui.until("`tale!` is not a pod name");
    tui.press("\x0e");
    tui.until("name: tale");
    tui.press("-two");
    tui.press(ENTER);
    tui.until("it is called tale-two now");
    assert!(tui.leave().success());
    let threads = world.json(&["thread", "list", "--json"]);
    assert_eq!(threads["threads"][0]["name"], "tale-two", "{threads}");
}

#[test]
fn a_directory_that_is_held_is_joined_looked_at_or_cloned() {
    for (steps, shown) in [(0, "> also this"), (1, "read-only"), (2, "You said: also this")] {
        let Some(world) = repository("a_directory_that_is_held_is_joined_looked_at_or_cloned") else {
            return;
        };
        let world = world.with("MINKE_MODEL", "scripted:echo.toml");
        world.write("s.toml", HALF);
        world.write("echo.toml", ECHO);
        let mut busy = world.start(&["exec", "--name", "busy", "--model", "scripted:s.toml", "go"]);
        busy.until("Half");
        let mut tui = Tui::start(&world, &[], (24, 120));
        tui.until("Say what is to be done");
        tui.write("also this");
        tui.press(ENTER);
        tui.until("join busy");
        (0..steps).for_each(|_| tui.press(DOWN));
        tui.press(ENTER);
        tui.until(shown);
        if steps == 0 {
            tui.until("Half of it.");
        } else {
            tui.until("You said: also this");
        }
        assert!(tui.leave().success());
    }
}

/// A server on this machine that names its models and nothing else.
fn server() -> String {
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
    for size in SIZES {
        let world = World::new().with("OLLAMA_HOST", &server());
        let mut tui = Tui::start(&world, &[], size);
        tui.until("Which model is to be asked?");
        let screen = tui.until("ollama/small:1b");
        assert!(!screen.contains("bad"), "{screen}");
        assert!(screen.contains("minke tour") || size.0 < 20, "{screen}");
        // What stood first before the server answered is still chosen.
        tui.until("> scripted:demo");
        tui.press(UP);
        tui.until("> ollama/small:1b");
        tui.press(ENTER);
        tui.until("model ollama/smal");
        assert!(tui.leave().success());
        let kept = std::fs::read_to_string(world.home().join("config/config.toml")).unwrap();
        assert!(kept.contains("ollama/small:1b"), "{kept}");
    }
}

#[test]
fn somebody_new_takes_the_tour_and_comes_back() {
    let world = World::new();
    let mut tui = Tui::start(&world, &[], (40, 120));
    tui.until("minke tour");
    tui.press(DOWN);
    tui.press(ENTER);
    tui.until("you only look on");
    tui.until("Find out why and mend it");
    tui.press("x");
    tui.until("only looks on");
    tui.press("\x03");
    tui.until("again leaves");
    tui.press("\x03");
    tui.until("What the tour has shown");
    tui.press(ESC);
    tui.until("Which model is to be asked?");
    assert!(tui.leave().success());
}

/// What stands behind the damage may be a question that nobody sees.
#[test]
fn a_log_that_is_damaged_is_named_among_the_questions() {
    let world = told(ECHO);
    let mut sessions = std::fs::read_dir(world.home().join("data/sessions")).unwrap();
    let log = sessions.next().unwrap().unwrap().path().join("log.jsonl");
    let text = std::fs::read_to_string(&log).unwrap();
    std::fs::write(&log, text.replacen("\"user_input\"", "\"user_imput\"", 1)).unwrap();
    let asks = world.run(&["asks"]);
    assert_eq!(asks.code, Some(0), "{asks:?}");
    assert!(asks.err.contains("may ask something: log.jsonl is damaged at line"), "{asks:?}");
    assert!(asks.err.contains("`minke log repair"), "{asks:?}");
    let mut tui = Tui::start(&world, &[], SIZES[1]);
    tui.until("what is to be done?");
    tui.press(ALT_A);
    tui.until("nobody waits for an answer");
    tui.until("may ask something: log.jsonl is damaged at line");
    tui.press(ESC);
    tui.until_gone("nobody waits for an answer");
    assert!(tui.leave().success());
}

#[test]
fn rules_skills_the_doctor_and_an_export_are_shown() {
    for size in SIZES {
        let world = told(ECHO);
        let skill = world.work().join(".minke/skills/roofing");
        std::fs::create_dir_all(&skill).unwrap();
        let text = "---\nname: roofing\ndescription: How roofs are mended.\n---\n\nWith care.\n";
        std::fs::write(skill.join("SKILL.md"), text).unwrap();
        let mut tui = attached(&world, size, "You said: first");
        for (command, shown) in [
            ("/policy", "┌Policy"),
            ("/policy rm -rf /", "$ rm -rf /"),
            ("/doctor", "┌Doctor"),
            ("/skills", "roofing"),
        ] {
            tui.press(&format!("{command} "));
            tui.until(command);
            tui.press(ENTER);
            tui.until(shown);
            tui.until("esc close");
            if command == "/skills" {
                tui.picture("skills");
            }
            tui.press(ESC);
            tui.until("You said: first");
        }
        tui.press("/export out.md");
        tui.until("/export out.md");
        tui.press(ENTER);
        tui.until("it is in");
        assert!(world.read("out.md").contains("You said: first"));
        tui.press("/export out.md");
        tui.until("/export out.md");
        tui.press(ENTER);
        tui.until("cannot write");
        assert!(tui.leave().success());
    }
}
