//! `cargo xtask pictures`: takes the pictures of README and docs from the running program on a terminal.
//!
//! Here: the scenes. Elsewhere: running the program on a terminal (`terminal_stage`), a screen as SVG
//! (`svg`).

mod svg;

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use xtask::tree;

use crate::run::{cargo_command, run_command};
use crate::terminal_stage::{TerminalSize, TerminalStage};

/// Rows and columns of every picture.
const SIZE: TerminalSize =
    TerminalSize { rows: NonZero::new(30).unwrap(), columns: NonZero::new(100).unwrap() };

/// The timeout for the start of a pod.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A model that explains a change, makes it and runs the result.
const FIX_SCRIPT: &str = r#"
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

/// A model that needs an approval.
const ASK_SCRIPT: &str = r#"
[[turn]]
text = ["The tests are green. I publish the branch."]
[[turn.call]]
tool = "Bash"
args = { command = "git push origin main" }
[[turn]]
text = ["It is published."]
"#;

/// A model that writes a long text.
const TALK_SCRIPT: &str = r#"
[[turn]]
pace_ms = 400
text = ["I read ", "the parser ", "and write ", "down what ", "each rule ", "takes, ", "one after ", "the other, ", "until all ", "are there: ", "first ", "names, ", "then ", "numbers, ", "then ", "lists, ", "then ", "blocks, ", "and ", "so ", "on, ", "and ", "so ", "on, ", "and ", "so ", "on, ", "until ", "the ", "end."]
"#;

/// The home of the scenes, with a project in it. Its path is constant, because it is visible in the pictures.
struct SceneHome {
    dir: tempfile::TempDir,
    minke: PathBuf,
}

impl SceneHome {
    fn new(minke: &Path) -> Result<SceneHome, String> {
        let dir =
            tempfile::Builder::new().prefix("minke-pictures").rand_bytes(0).tempdir().map_err(error_text)?;
        let house = SceneHome { dir, minke: minke.to_owned() };
        house.write_file("home/config/config.toml", "")?;
        house.write_file("greeting/greet.sh", "#!/bin/sh\n# Prints a greeting.\necho \"Hello\"\n")?;
        Ok(house)
    }

    fn write_file(&self, name: &str, text: &str) -> Result<(), String> {
        let path = self.dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(&path)).map_err(error_text)?;
        std::fs::write(&path, text).map_err(error_text)
    }

    /// The program in a directory of the home, with a script for its model.
    fn minke_command(&self, place: &str, script: &str) -> Result<Command, String> {
        let cwd = self.dir.path().join(place);
        std::fs::create_dir_all(&cwd).map_err(error_text)?;
        self.write_file(&format!("{place}.toml"), script)?;
        let model = self.dir.path().join(format!("{place}.toml"));
        let posture = if script == ASK_SCRIPT { "ask" } else { "auto" };
        let config = format!(
            "[model]\nref = \"scripted:{}\"\n[permissions]\nposture = \"{posture}\"\n",
            model.display()
        );
        self.write_file("home/config/config.toml", &config)?;
        let mut command = Command::new(&self.minke);
        command.current_dir(cwd).env("MINKE_HOME", self.dir.path().join("home"));
        Ok(command)
    }

    /// A pod outside of the picture, in its own directory.
    fn start_pod(&self, name: &str, script: &str, task: &str) -> Result<(), String> {
        let mut command = self.minke_command(name, script)?;
        command.args(["exec", "--name", name, "--on-ask", "wait", task]);
        let begun = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        begun.map(drop).map_err(error_text)?;
        // The script is read when the pod starts: the next pod has another one.
        let patience = Instant::now() + START_TIMEOUT;
        while !self.live_pod_names()?.iter().any(|pod| pod == name) {
            if Instant::now() > patience {
                return Err(format!("the pod {name} did not start"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn home_command(&self) -> Command {
        let mut command = Command::new(&self.minke);
        command.env("MINKE_HOME", self.dir.path().join("home"));
        command
    }

    /// The names of the running pods.
    fn live_pod_names(&self) -> Result<Vec<String>, String> {
        let listed = self.home_command().args(["ps", "--json"]).output().map_err(error_text)?;
        let listed: Vec<serde_json::Value> =
            serde_json::from_slice(&listed.stdout).map_err(|e| e.to_string())?;
        Ok(listed.iter().filter_map(|pod| pod.get("name")?.as_str().map(str::to_owned)).collect())
    }
}

impl Drop for SceneHome {
    /// Stops the pods that were started for a picture.
    fn drop(&mut self) {
        for pod in self.live_pod_names().unwrap_or_default() {
            let mut command = self.home_command();
            drop(command.args(["stop", &pod]).stdout(Stdio::null()).stderr(Stdio::null()).status());
        }
    }
}

/// Takes all pictures.
pub(crate) fn take_pictures() -> Result<(), String> {
    run_command(&mut cargo_command(&["build", "-q", "-p", "minke-cli"]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| tree::workspace_root().join("target"), PathBuf::from);
    let minke = target.join("debug/minke");
    let images = tree::workspace_root().join("docs/images");
    std::fs::create_dir_all(&images).map_err(error_text)?;
    for (name, title, scene) in SCENES {
        let house = SceneHome::new(&minke)?;
        let stage = scene(&house).map_err(|why| format!("{name}: {why}"))?;
        let picture = svg::render_svg(stage.screen(), title);
        std::fs::write(images.join(format!("{name}.svg")), picture).map_err(error_text)?;
        println!("{name}.svg");
    }
    Ok(())
}

type SceneFn = fn(&SceneHome) -> Result<TerminalStage, String>;

const SCENES: [(&str, &str, SceneFn); 4] = [
    ("conversation", "A conversation: a change with its diff, a command, a table", stage_conversation),
    ("ask", "A question: the exact command, where, why, and the keys", stage_ask),
    ("pods", "All pods, those that ask something first", stage_pods),
    ("tour", "minke tour", stage_tour),
];

fn stage_conversation(house: &SceneHome) -> Result<TerminalStage, String> {
    let mut stage = TerminalStage::open_terminal(house.minke_command("greeting", FIX_SCRIPT)?, SIZE)
        .map_err(error_text)?;
    stage.wait_for_still_text("describe a task")?;
    stage.press_keys("Let the greeting say whom it greets\r").map_err(error_text)?;
    stage.wait_for_still_text("takes it back")?;
    Ok(stage)
}

fn stage_ask(house: &SceneHome) -> Result<TerminalStage, String> {
    let mut stage = TerminalStage::open_terminal(house.minke_command("greeting", ASK_SCRIPT)?, SIZE)
        .map_err(error_text)?;
    stage.wait_for_still_text("describe a task")?;
    stage.press_keys("Publish it when the tests are green\r").map_err(error_text)?;
    stage.wait_for_still_text("git push origin main")?;
    Ok(stage)
}

fn stage_pods(house: &SceneHome) -> Result<TerminalStage, String> {
    for (name, script) in [("parser", TALK_SCRIPT), ("release", ASK_SCRIPT), ("docs", TALK_SCRIPT)] {
        house.start_pod(name, script, "Continue with it")?;
    }
    let mut stage = TerminalStage::open_terminal(house.minke_command("greeting", TALK_SCRIPT)?, SIZE)
        .map_err(error_text)?;
    stage.wait_for_still_text("release")?;
    stage.press_keys("\u{10}").map_err(error_text)?;
    stage.wait_for_still_text("pods live")?;
    Ok(stage)
}

fn stage_tour(house: &SceneHome) -> Result<TerminalStage, String> {
    let mut command = house.minke_command("greeting", TALK_SCRIPT)?;
    command.arg("tour");
    let mut stage = TerminalStage::open_terminal(command, SIZE).map_err(error_text)?;
    stage.wait_for_still_text("claims held")?;
    Ok(stage)
}

fn error_text(error: std::io::Error) -> String {
    error.to_string()
}
