//! Scripts under questions, with the real binary: what runs is the content that a person approved.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::world::{Done, Going, World, commands_are_held, kill};

/// A model that runs lines, one after the other.
fn script(lines: &[&str]) -> String {
    let call = |line: &&str| {
        format!(
            "[[turn]]\n[[turn.call]]\ntool = \"Bash\"\nargs = {{ command = {} }}\n",
            serde_json::json!(line)
        )
    };
    lines.iter().map(call).collect::<String>() + "[[turn]]\ntext = \"Over.\"\n"
}

struct Scene {
    world: World,
    going: Going,
}

impl Scene {
    /// A workspace with `deploy.sh`, in which a model wants to run these lines. None where no command can be held.
    fn start(test: &str, lines: &[&str]) -> Option<Scene> {
        if !commands_are_held(test) {
            return None;
        }
        let world = World::new();
        world.write("s.toml", &script(lines));
        world.write("deploy.sh", "#!/bin/sh\necho good >> ran\n");
        executable(&world, "deploy.sh");
        let going = world.start(&[
            "exec",
            "--name",
            "tale",
            "--posture",
            "ask",
            "--on-ask",
            "wait",
            "--model",
            "scripted:s.toml",
            "go",
        ]);
        Some(Scene { world, going })
    }

    fn answer(&self, ask: &Value, decision: &str) -> Done {
        let done = self.world.run(&["answer", ask["id"].as_str().unwrap(), decision]);
        assert_eq!(done.code, Some(0), "{done:?}");
        done
    }

    /// Answers the open question, and gives the next one that is about the same line.
    fn next(&self, ask: &Value, decision: &str) -> Value {
        self.answer(ask, decision);
        asked(&self.world, Some(ask))
    }

    fn ran(&self) -> String {
        self.world.read("ran")
    }

    fn end(self) -> World {
        let done = self.going.end();
        assert_eq!(done.code, Some(0), "{done:?}");
        self.world.verify();
        self.world
    }
}

fn executable(world: &World, name: &str) {
    std::fs::set_permissions(world.work().join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Waits for a question that is another one than this.
fn asked(world: &World, than: Option<&Value>) -> Value {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let asks = world.json(&["asks", "--json"]);
        let found =
            asks.as_array().unwrap().iter().find(|ask| than.is_none_or(|than| than["id"] != ask["id"]));
        if let Some(ask) = found {
            return ask.clone();
        }
        assert!(Instant::now() < until, "nothing is asked");
    }
}

fn scripts(ask: &Value) -> Vec<&str> {
    let all = ask["action"]["scripts"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().map(|script| script["path"].as_str().unwrap().rsplit('/').next().unwrap()).collect()
}

fn swap(world: &World) {
    world.write("deploy.sh", "#!/bin/sh\necho EVIL >> ran\n");
}

#[test]
fn an_approved_script_that_was_swapped_is_asked_about_again_with_the_change() {
    let Some(scene) = Scene::start("swapped script", &["bash ./deploy.sh"]) else { return };
    let ask = asked(&scene.world, None);
    assert_eq!(scripts(&ask), ["deploy.sh"], "{ask}");
    let hash = ask["action"]["scripts"][0]["hash"].as_str().unwrap().to_owned();
    let card = scene.world.run(&["asks"]).out;
    assert!(card.contains("scripts") && card.contains(hash.get(..12).unwrap()), "{card}");
    swap(&scene.world);
    let again = scene.next(&ask, "approved");
    assert_eq!(scene.ran(), "", "nothing has run");
    let card = scene.world.run(&["asks"]).out;
    for part in ["changed", "-echo good >> ran", "+echo EVIL >> ran"] {
        assert!(card.contains(part), "{part}: {card}");
    }
    assert_ne!(again["action"]["scripts"][0]["hash"], hash.as_str(), "{again}");
    scene.answer(&again, "denied");
    let world = scene.end();
    assert_eq!(world.read("ran"), "");
}

/// Each line names the script in another way, and each swap is of another kind.
#[test]
fn every_way_to_name_and_to_swap_a_script_is_asked_about_again() {
    let lines: [&str; 8] = [
        "./deploy.sh",
        "timeout 60 ./deploy.sh",
        "cd . && sh deploy.sh",
        "bash -c './deploy.sh'",
        "source ./deploy.sh",
        "sh < deploy.sh",
        "env A=1 nice bash deploy.sh",
        "./deploy.sh | cat",
    ];
    let swaps: [fn(&World); 4] = [
        swap,
        |world| {
            std::fs::remove_file(world.work().join("deploy.sh")).unwrap();
            symlink("other.sh", world.work().join("deploy.sh")).unwrap();
            world.write("other.sh", "#!/bin/sh\necho good >> ran\n");
            executable(world, "other.sh");
        },
        |world| {
            let file = std::fs::OpenOptions::new().write(true).open(world.work().join("deploy.sh")).unwrap();
            file.set_len(65 * 1024 * 1024).unwrap();
        },
        |world| std::fs::remove_file(world.work().join("deploy.sh")).unwrap(),
    ];
    for (at, line) in lines.iter().enumerate() {
        let Some(scene) = Scene::start("ways to name a script", &[line]) else { return };
        let ask = asked(&scene.world, None);
        assert_eq!(scripts(&ask), ["deploy.sh"], "{line}: {ask}");
        swaps[at % swaps.len()](&scene.world);
        let again = scene.next(&ask, "approved");
        assert_eq!(scene.ran(), "", "{line}");
        assert!(again["action"]["scripts"][0]["change"].is_string(), "{line}: {again}");
        scene.answer(&again, "denied");
        assert_eq!(scene.end().read("ran"), "", "{line}");
    }
}

#[test]
fn what_was_approved_for_the_session_is_asked_again_when_its_script_changes() {
    let line = "bash ./deploy.sh";
    let Some(scene) = Scene::start("session approval", &[line, line, "bash ./more.sh", line]) else { return };
    scene.world.write("more.sh", "printf '#!/bin/sh\\necho EVIL >> ran\\n' > deploy.sh\n");
    let ask = asked(&scene.world, None);
    // The second line is the same with the same content, so it runs; the next question is about `more.sh`.
    let more = scene.next(&ask, "approved_for_session");
    assert_eq!(scripts(&more), ["more.sh"], "{more}");
    assert_eq!(scene.ran(), "good\ngood\n");
    let again = scene.next(&more, "approved");
    assert_eq!(scripts(&again), ["deploy.sh"], "{again}");
    assert!(again["action"]["scripts"][0]["change"].as_str().unwrap().contains("+echo EVIL"), "{again}");
    scene.answer(&again, "approved_for_session");
    let world = scene.end();
    assert_eq!(world.read("ran"), "good\ngood\nEVIL\n", "it ran after it was approved as it is");
}

#[test]
fn a_second_script_that_appears_is_asked_about() {
    let Some(scene) = Scene::start("two scripts", &["./deploy.sh; if test -e late.sh; then sh late.sh; fi"])
    else {
        return;
    };
    let ask = asked(&scene.world, None);
    assert_eq!(scripts(&ask), ["deploy.sh"], "{ask}");
    scene.world.write("late.sh", "echo EVIL >> ran\n");
    let again = scene.next(&ask, "approved");
    assert_eq!(scripts(&again), ["deploy.sh", "late.sh"], "{again}");
    assert_eq!(again["action"]["scripts"][1]["change"], "it was not there before", "{again}");
    scene.answer(&again, "denied");
    assert_eq!(scene.end().read("ran"), "");
}

#[test]
fn a_script_that_is_swapped_while_nobody_lives_is_asked_about_again() {
    let Some(scene) = Scene::start("killed pod", &["bash ./deploy.sh"]) else { return };
    let ask = asked(&scene.world, None);
    kill(&scene.world.only_pod()["pid"]);
    assert_eq!(scene.going.end().code, Some(75));
    swap(&scene.world);
    assert_eq!(scene.world.run(&["answer", ask["id"].as_str().unwrap(), "approved"]).code, Some(0));
    let again = asked(&scene.world, Some(&ask));
    assert!(again["action"]["scripts"][0]["change"].as_str().unwrap().contains("+echo EVIL"), "{again}");
    assert_eq!(scene.world.read("ran"), "");
    assert_eq!(scene.world.run(&["answer", again["id"].as_str().unwrap(), "denied"]).code, Some(0));
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let log = scene.world.run(&["log", "show", "tale", "--json", "--kind", "run_completed"]).out;
        if log.lines().count() >= 2 {
            break;
        }
        assert!(Instant::now() < until, "the run did not go on");
    }
    assert_eq!(scene.world.read("ran"), "");
    assert_eq!(scene.world.run(&["stop", "tale"]).code, Some(0));
    scene.world.verify();
}

/// The first of two approved calls changes the script of the second while that one waits for its turn.
#[test]
fn a_script_that_an_approved_command_changes_is_looked_at_again() {
    if !commands_are_held("script changed by a command") {
        return;
    }
    let world = World::new();
    let call = |line: &str| {
        format!("[[turn.call]]\ntool = \"Bash\"\nargs = {{ command = {} }}\n", serde_json::json!(line))
    };
    let turn = call("printf 'echo EVIL >> ran\\n' > deploy.sh") + &call("bash deploy.sh");
    world.write("s.toml", &format!("[[turn]]\n{turn}[[turn]]\ntext = \"Over.\"\n"));
    world.write("deploy.sh", "echo good >> ran\n");
    let going = world.start(&[
        "exec",
        "--name",
        "tale",
        "--posture",
        "ask",
        "--on-ask",
        "wait",
        "--model",
        "scripted:s.toml",
        "go",
    ]);
    let scene = Scene { world, going };
    let until = Instant::now() + Duration::from_secs(60);
    let both = loop {
        let asks = scene.world.json(&["asks", "--json"]);
        if asks.as_array().unwrap().len() == 2 {
            break asks;
        }
        assert!(Instant::now() < until, "two questions: {asks}");
    };
    let runs =
        both.as_array().unwrap().iter().find(|ask| ask["command"] == "bash deploy.sh").unwrap().clone();
    let writes = both.as_array().unwrap().iter().find(|ask| ask["id"] != runs["id"]).unwrap().clone();
    scene.answer(&runs, "approved");
    scene.answer(&writes, "approved");
    let again = loop {
        let asks = scene.world.json(&["asks", "--json"]);
        let new =
            asks.as_array().unwrap().iter().find(|ask| ask["id"] != runs["id"] && ask["id"] != writes["id"]);
        if let Some(new) = new {
            break new.clone();
        }
        assert!(Instant::now() < until, "it is not asked about again");
    };
    assert_eq!(scene.ran(), "", "it has not run");
    assert!(again["action"]["scripts"][0]["change"].as_str().unwrap().contains("+echo EVIL"), "{again}");
    scene.answer(&again, "denied");
    assert_eq!(scene.end().read("ran"), "");
}

/// An edit that cannot be made any more is no question; the model reads the file again and asks with the new diff.
#[test]
fn an_edit_of_a_file_that_changed_is_not_asked_about_as_it_was() {
    let edit = |old: &str| {
        format!(
            "[[turn]]\n[[turn.call]]\ntool = \"Edit\"\nargs = {{ file_path = \"a.txt\", old_string = \"{old}\", new_string = \"three\" }}\n"
        )
    };
    let read = "[[turn]]\n[[turn.call]]\ntool = \"Read\"\nargs = { file_path = \"a.txt\" }\n";
    let world = World::new();
    let all = format!("{read}{}{read}{}[[turn]]\ntext = \"Over.\"\n", edit("one"), edit("two"));
    world.write("s.toml", &all);
    world.write("a.txt", "one\n");
    std::fs::create_dir_all(world.home().join("config")).unwrap();
    let rule = "[[rule]]\naction = \"ask\"\ntool = \"Edit\"\n";
    std::fs::write(world.home().join("config/policy.toml"), rule).unwrap();
    let going =
        world.start(&["exec", "--name", "tale", "--on-ask", "wait", "--model", "scripted:s.toml", "go"]);
    let scene = Scene { world, going };
    let ask = asked(&scene.world, None);
    assert!(ask["diff"].as_str().unwrap().contains("-one"), "{ask}");
    scene.world.write("a.txt", "two\n");
    let again = scene.next(&ask, "approved");
    assert!(
        again["diff"].as_str().unwrap().contains("-two"),
        "the next question shows the new diff: {again}"
    );
    assert_eq!(scene.world.read("a.txt"), "two\n");
    scene.answer(&again, "approved");
    assert_eq!(scene.end().read("a.txt"), "three\n");
}
