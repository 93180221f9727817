//! `cargo xtask pictures`: the pictures of README and docs, taken from the running program on a terminal of its own.
//!
//! Here: the scenes. Elsewhere: the program on its terminal (`stage`), a screen as SVG (`svg`).

mod svg;

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use xtask::tree;

use crate::run::{cargo, must};
use crate::stage::Stage;

/// Rows and columns of every picture.
const SIZE: (NonZero<u16>, NonZero<u16>) = (NonZero::new(30).unwrap(), NonZero::new(100).unwrap());

/// How long a pod may take to live.
const STARTS_WITHIN: Duration = Duration::from_secs(20);

/// A model that explains a change, makes it and runs what it made.
const MENDS: &str = r#"
[[turn]]
thinking = "The greeting ends too soon; look at it first."
text = ["I look at the greeting first."]
[[turn.call]]
tool = "Read"
args = { file_path = "greet.sh" }
[[turn]]
text = ["It never says whom it greets. One line is enough:"]
[[turn.call]]
tool = "Edit"
args = { file_path = "greet.sh", old_string = "echo \"Hello\"", new_string = "name=${1:-world}\necho \"Hello, $name\"" }
[[turn.call]]
tool = "Bash"
args = { command = "sh greet.sh Minke" }
[[turn]]
text = ["Done. What changed:\n\n| call | says |\n|---|---|\n| `greet.sh` | Hello, world |\n| `greet.sh Minke` | Hello, Minke |\n\n```sh\nname=${1:-world}\necho \"Hello, $name\"\n```\n\n- `minke undo` takes it back\n- the log holds **every** step"]
"#;

/// One that wants to do something that somebody must agree to.
const ASKS: &str = r#"
[[turn]]
text = ["The tests are green. I publish the branch."]
[[turn.call]]
tool = "Bash"
args = { command = "git push origin main" }
[[turn]]
text = ["It is published."]
"#;

/// One that talks for a while.
const TALKS: &str = r#"
[[turn]]
pace_ms = 400
text = ["I read ", "the parser ", "and write ", "down what ", "each rule ", "takes, ", "one after ", "the other, ", "until all ", "are there: ", "first ", "names, ", "then ", "numbers, ", "then ", "lists, ", "then ", "blocks, ", "and ", "so ", "on, ", "and ", "so ", "on, ", "and ", "so ", "on, ", "until ", "the ", "end."]
"#;

/// A home of the scenes' own, with a project in it. Its name is always the same: it can be seen in the pictures.
struct House {
    dir: tempfile::TempDir,
    minke: PathBuf,
}

impl House {
    fn new(minke: &Path) -> Result<House, String> {
        let dir = tempfile::Builder::new().prefix("minke-pictures").rand_bytes(0).tempdir().map_err(said)?;
        let house = House { dir, minke: minke.to_owned() };
        house.put("home/config/config.toml", "")?;
        house.put("greeting/greet.sh", "#!/bin/sh\n# Greets whoever comes.\necho \"Hello\"\n")?;
        Ok(house)
    }

    fn put(&self, name: &str, text: &str) -> Result<(), String> {
        let path = self.dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(&path)).map_err(said)?;
        std::fs::write(&path, text).map_err(said)
    }

    /// The program in a directory of the house, with a script for its model.
    fn minke(&self, place: &str, script: &str) -> Result<Command, String> {
        let cwd = self.dir.path().join(place);
        std::fs::create_dir_all(&cwd).map_err(said)?;
        self.put(&format!("{place}.toml"), script)?;
        let model = self.dir.path().join(format!("{place}.toml"));
        let posture = if script == ASKS { "ask" } else { "auto" };
        let config = format!(
            "[model]\nref = \"scripted:{}\"\n[permissions]\nposture = \"{posture}\"\n",
            model.display()
        );
        self.put("home/config/config.toml", &config)?;
        let mut command = Command::new(&self.minke);
        command.current_dir(cwd).env("MINKE_HOME", self.dir.path().join("home"));
        Ok(command)
    }

    /// A pod that works off the stage, in a directory of its own.
    fn pod(&self, name: &str, script: &str, task: &str) -> Result<(), String> {
        let mut command = self.minke(name, script)?;
        command.args(["exec", "--name", name, "--on-ask", "wait", task]);
        let begun = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        begun.map(drop).map_err(said)?;
        // The script is read when the pod starts: the next one has another.
        let patience = Instant::now() + STARTS_WITHIN;
        while !self.pods()?.iter().any(|pod| pod == name) {
            if Instant::now() > patience {
                return Err(format!("the pod {name} does not start"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn at_home(&self) -> Command {
        let mut command = Command::new(&self.minke);
        command.env("MINKE_HOME", self.dir.path().join("home"));
        command
    }

    /// The names of those who live.
    fn pods(&self) -> Result<Vec<String>, String> {
        let listed = self.at_home().args(["ps", "--json"]).output().map_err(said)?;
        let listed: Vec<serde_json::Value> =
            serde_json::from_slice(&listed.stdout).map_err(|e| e.to_string())?;
        Ok(listed.iter().filter_map(|pod| pod.get("name")?.as_str().map(str::to_owned)).collect())
    }
}

impl Drop for House {
    /// Whoever was started for a picture is ended with it.
    fn drop(&mut self) {
        for pod in self.pods().unwrap_or_default() {
            let mut command = self.at_home();
            drop(command.args(["stop", &pod]).stdout(Stdio::null()).stderr(Stdio::null()).status());
        }
    }
}

/// Takes all pictures anew.
pub(crate) fn pictures() -> Result<(), String> {
    must(&mut cargo(&["build", "-q", "-p", "minke-cli"]))?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| tree::root().join("target"), PathBuf::from);
    let minke = target.join("debug/minke");
    let images = tree::root().join("docs/images");
    std::fs::create_dir_all(&images).map_err(said)?;
    for (name, title, scene) in SCENES {
        let house = House::new(&minke)?;
        let stage = scene(&house).map_err(|why| format!("{name}: {why}"))?;
        let picture = svg::picture(stage.screen(), title);
        std::fs::write(images.join(format!("{name}.svg")), picture).map_err(said)?;
        println!("{name}.svg");
    }
    Ok(())
}

type Scene = fn(&House) -> Result<Stage, String>;

const SCENES: [(&str, &str, Scene); 4] = [
    ("conversation", "A conversation: a change with its diff, a command, a table", conversation),
    ("ask", "A question: the exact command, where, why, and the keys", ask),
    ("pods", "All pods, those that ask something first", pods),
    ("tour", "minke tour", tour),
];

fn conversation(house: &House) -> Result<Stage, String> {
    let mut stage = Stage::open(house.minke("greeting", MENDS)?, SIZE).map_err(said)?;
    stage.until("what is to be done?")?;
    stage.press("Let the greeting say whom it greets\r").map_err(said)?;
    stage.until("takes it back")?;
    Ok(stage)
}

fn ask(house: &House) -> Result<Stage, String> {
    let mut stage = Stage::open(house.minke("greeting", ASKS)?, SIZE).map_err(said)?;
    stage.until("what is to be done?")?;
    stage.press("Publish it when the tests are green\r").map_err(said)?;
    stage.until("git push origin main")?;
    Ok(stage)
}

fn pods(house: &House) -> Result<Stage, String> {
    for (name, script) in [("parser", TALKS), ("release", ASKS), ("docs", TALKS)] {
        house.pod(name, script, "Go on with it")?;
    }
    let mut stage = Stage::open(house.minke("greeting", TALKS)?, SIZE).map_err(said)?;
    stage.until("release")?;
    stage.press("\u{10}").map_err(said)?;
    stage.until("pods live")?;
    Ok(stage)
}

fn tour(house: &House) -> Result<Stage, String> {
    let mut command = house.minke("greeting", TALKS)?;
    command.arg("tour");
    let mut stage = Stage::open(command, SIZE).map_err(said)?;
    stage.until("claims held")?;
    Ok(stage)
}

fn said(error: std::io::Error) -> String {
    error.to_string()
}
