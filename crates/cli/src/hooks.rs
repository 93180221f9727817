//! `minke hooks`: which hooks there are, and what they say to something that could happen.
//!
//! A test runs them for real: the same code and the same fence as in a pod whose scope is the working directory.
//! Elsewhere: reading and running them (`minke-hooks`), the workspace's trust (`minke-trust`).
//! Invariant: nothing of a workspace that is not trusted is read (`hooks_of_a_workspace_count_once_it_is_trusted`).

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use minke_exec::command::{Commands, CommandsConfig, Veil};
use minke_exec::fence::{EnvRules, FenceSpec, Helper, Network, PodDirs};
use minke_hooks::{Around, Event, Heard, Hook, Hooks, Loaded, Question, Said, Steered};
use minke_llm::Cover;
use minke_policy::Tier;
use minke_record::{Judgement, Scope};
use minke_registry::Paths;
use minke_trust::{Standing, TrustStore};
use serde_json::{Value, json};

use crate::around::{Surroundings, seed};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

const FILE: &str = "hooks.toml";
const SCRIPTS: &str = "hooks";
const OF_WORKSPACE: &str = ".minke/hooks.toml";

#[derive(Debug, Subcommand)]
pub(crate) enum HooksCommand {
    /// Every hook that counts here, and what is wrong with the others
    List,
    /// Run the hooks of an event for real, with a sample, and show what would come of it
    Test(Test),
}

#[derive(Debug, Args)]
pub(crate) struct Test {
    /// The event, as hooks.toml names it
    event: String,
    /// The tool that the sample is about
    #[arg(long, value_name = "NAME", default_value = "Bash")]
    tool: String,
    /// The file that the sample is about
    #[arg(long, value_name = "PATH")]
    path: Option<PathBuf>,
}

pub(crate) async fn run(
    command: HooksCommand,
    around: &Surroundings,
    screen: &Screen,
) -> Result<Exit, Failure> {
    let paths = around.paths()?;
    let loaded = load(&paths, around, screen)?;
    match command {
        HooksCommand::List => list(&loaded, screen),
        HooksCommand::Test(test) => try_out(test, loaded, &paths, (around, screen)).await,
    }
}

/// The person's, and the workspace's if it is trusted.
fn load(paths: &Paths, around: &Surroundings, screen: &Screen) -> Result<Loaded, Failure> {
    let loaded = Loaded::default().user(&paths.config.join(FILE));
    let found = minke_trust::look(&Surroundings::workspace(&around.cwd));
    let Some(text) = found.text(OF_WORKSPACE) else { return Ok(loaded) };
    let standing = TrustStore::in_data(&paths.data).standing(&found)?;
    if Standing::holds(&standing) {
        return Ok(loaded.workspace(&found.workspace.join(OF_WORKSPACE), text));
    }
    screen.note(&format!("{OF_WORKSPACE} of this workspace is ignored until you trust it (`minke trust`)"));
    Ok(loaded)
}

fn list(loaded: &Loaded, screen: &Screen) -> Result<Exit, Failure> {
    if screen.json {
        let hooks: Vec<Value> = loaded.hooks.iter().map(value).collect();
        screen.object(&json!({ "hooks": hooks, "problems": loaded.problems }))?;
        return Ok(Exit::Done);
    }
    for hook in &loaded.hooks {
        let mut words = vec![format!("{}: {} {}", hook.name, hook.handler.kind(), hook.handler.target())];
        words.extend(
            Some(hook.when.shown()).filter(|when| !when.is_empty()).map(|when| format!("when {when}")),
        );
        words.push(format!("at most {} s", hook.timeout.as_secs()));
        words.extend(hook.strict.then(|| "strict".to_owned()));
        let asked = if hook.steers() { "asked at" } else { "told of" };
        screen.line(&format!("{asked} {:<13} {}", hook.event, words.join(", ")))?;
        screen.line(&format!("{:22}{} {}:{}", "", hook.layer.as_str(), hook.file.display(), hook.line))?;
    }
    loaded.problems.iter().for_each(|problem| screen.warn(problem));
    if loaded.hooks.is_empty() && loaded.problems.is_empty() {
        screen.note("there are no hooks; docs/reference/hooks.md shows how to write one");
    }
    Ok(Exit::Done)
}

fn value(hook: &Hook) -> Value {
    json!({
        "name": hook.name,
        "event": hook.event.as_str(),
        "steers": hook.steers(),
        "handler": hook.handler.kind(),
        "target": hook.handler.target(),
        "when": hook.when.shown(),
        "timeout_s": hook.timeout.as_secs(),
        "strict": hook.strict,
        "layer": hook.layer.as_str(),
        "file": hook.file.display().to_string(),
        "line": hook.line,
    })
}

async fn try_out(
    test: Test,
    loaded: Loaded,
    paths: &Paths,
    (around, screen): (&Surroundings, &Screen),
) -> Result<Exit, Failure> {
    let Some(event) = Event::parse(&test.event) else {
        let all: Vec<&str> = Event::ALL.iter().map(|event| event.as_str()).collect();
        return Err(Failure::usage(format!("there is no event `{}`", test.event))
            .hint(format!("one of {}", all.join(", "))));
    };
    let path = test.path.unwrap_or_else(|| PathBuf::from("sample.txt"));
    let sample = Question::sample(event, &test.tool, &around.cwd.join(path).to_string_lossy());
    loaded.problems.iter().for_each(|problem| screen.warn(problem));
    around.home()?;
    let ground = Ground::new(paths)?;
    let hooks = Hooks::new(loaded, about(&ground, paths, around)?);
    let steered = hooks.ask(&sample).await;
    let told = hooks.tell(&sample).await;
    drop(hooks);
    show(&steered, &told, screen)?;
    let failed = |heard: &Heard| matches!(heard.said, Said::Problem(_));
    Ok(match steered.outcome {
        Judgement::Ask => Exit::Refused,
        Judgement::Deny | Judgement::Other(_) => Exit::Limit,
        Judgement::Allow if steered.heard.iter().chain(&told).any(failed) => Exit::Failed,
        Judgement::Allow => Exit::Done,
    })
}

fn show(steered: &Steered, told: &[Heard], screen: &Screen) -> Result<(), Failure> {
    if screen.json {
        let list = |all: &[Heard]| all.iter().map(heard_value).collect::<Vec<Value>>();
        return screen.object(&json!({
            "outcome": steered.outcome,
            "by": steered.by,
            "reason": steered.reason,
            "rewritten": steered.rewritten,
            "context": steered.context,
            "env": steered.env.keys().collect::<Vec<_>>(),
            "asked": list(&steered.heard),
            "told": list(told),
        }));
    }
    for (what, heard) in
        steered.heard.iter().map(|one| ("asked", one)).chain(told.iter().map(|one| ("told", one)))
    {
        let took = heard.took.as_millis();
        screen.line(&format!("{what} {} ({took} ms): {}", heard.hook, words(what, &heard.said)))?;
    }
    if steered.heard.is_empty() && told.is_empty() {
        screen.line("no hook fits")?;
    }
    let by = steered.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
    let reason = steered.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    screen.line(&format!("outcome: {}{by}{reason}", steered.outcome))?;
    if let Some(rewritten) = &steered.rewritten {
        screen.line(&format!("rewritten: {rewritten}"))?;
    }
    if let Some(context) = &steered.context {
        screen.line(&format!("the model would also read: {context}"))?;
    }
    if !steered.env.is_empty() {
        let names: Vec<&str> = steered.env.keys().map(String::as_str).collect();
        screen.line(&format!("variables: {}", names.join(", ")))?;
    }
    Ok(())
}

fn heard_value(heard: &Heard) -> Value {
    let (said, text) = match &heard.said {
        Said::Nothing => ("nothing", None),
        Said::Verdict(_) => ("verdict", Some(words("asked", &heard.said))),
        Said::No(why) => ("no", Some(why.clone())),
        Said::Problem(why) => ("problem", Some(why.clone())),
    };
    json!({ "hook": heard.hook, "ms": heard.took.as_millis(), "said": said, "text": text })
}

fn words(what: &str, said: &Said) -> String {
    match said {
        Said::Nothing if what == "told" => "delivered".to_owned(),
        Said::Nothing => "no objection".to_owned(),
        Said::No(why) => format!("no: {why}"),
        Said::Problem(why) => format!("PROBLEM: {why}"),
        Said::Verdict(verdict) => {
            let mut words = Vec::new();
            words.extend(verdict.decision.as_ref().map(ToString::to_string));
            words.extend(verdict.reason.as_ref().map(|reason| format!("because {reason}")));
            words.extend(verdict.rewritten.as_ref().map(|_| "with new input".to_owned()));
            words.extend(verdict.context.as_ref().map(|_| "with something for the model to read".to_owned()));
            words.extend(
                Some(verdict.env.len()).filter(|count| *count > 0).map(|count| format!("{count} variables")),
            );
            words.join(", ")
        }
    }
}

/// What a pod's hooks would have around them here.
fn about(ground: &Ground, paths: &Paths, around: &Surroundings) -> Result<Around, Failure> {
    let there = minke_llm::Around::here(around.cwd.clone(), Some(paths.config.clone()));
    let cover = Arc::new(Cover::new(there));
    let hidden = Arc::clone(&cover);
    Ok(Around {
        session: "sample".to_owned(),
        pod: "sample".to_owned(),
        cwd: around.cwd.clone(),
        commands: commands(ground, paths, (around, &cover))?,
        cover: Arc::new(move |text| {
            let mut text = text.to_owned();
            match hidden.hide(&mut [&mut text]) {
                Ok(()) => text,
                Err(why) => format!("[nothing is shown, since keys could not be hidden: {why}]"),
            }
        }),
        scripts: paths.config.join(SCRIPTS),
    })
}

fn commands(
    ground: &Ground,
    paths: &Paths,
    (around, cover): (&Surroundings, &Arc<Cover>),
) -> Result<Option<Arc<Commands>>, Failure> {
    let tier = minke_exec::probe::best_tier();
    if tier == Tier::D {
        return Ok(None);
    }
    let home = std::env::home_dir().map(|home| minke_policy::secrets(&home.to_string_lossy()));
    let ours = [&paths.config, &paths.data, &paths.state, &paths.runtime];
    let secrets = home.unwrap_or_default().into_iter().map(PathBuf::from);
    let cwd = around.cwd.to_str().ok_or_else(|| Failure::usage("the working directory has no plain name"))?;
    let spec = FenceSpec {
        scope: Scope::write(cwd),
        read_only: false,
        dirs: PodDirs {
            tmp: ground.at("tmp"),
            output: ground.at("output"),
            fences: ground.at("fences"),
            writable_tmp: true,
        },
        masked: secrets.chain(ours.into_iter().cloned()).collect(),
        lifted: Vec::new(),
        findings: minke_exec::fence::Findings::default(),
        network: Network::Off,
        env: EnvRules::default(),
    };
    let cover = Arc::clone(cover);
    Ok(Some(Arc::new(Commands::new(CommandsConfig {
        tier,
        spec: Arc::new(move || spec.clone()),
        output_dir: ground.at("output"),
        cover: Arc::new(move || Box::new(Covered(cover.stream().ok()))),
        helper: Helper::default(),
        guard: minke_exec::command::Guard::default(),
    }))))
}

/// Hides keys in what a hook says; what cannot be looked at for keys is not shown.
struct Covered(Option<minke_secrets::Stream>);

impl Veil for Covered {
    fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.0.as_mut().map(|stream| stream.push(bytes)).unwrap_or_default()
    }

    fn end(&mut self) -> Vec<u8> {
        self.0.as_mut().map(minke_secrets::Stream::finish).unwrap_or_default()
    }
}

/// The directories of a pod that is none, removed with what is in them.
struct Ground(PathBuf);

impl Ground {
    fn new(paths: &Paths) -> Result<Ground, Failure> {
        let dir = paths.runtime.join(format!("hooks-test-{}-{:016x}", std::process::id(), seed()));
        let make = |dir: &Path| std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
        let ground = Ground(dir);
        for name in ["tmp", "output"] {
            let dir = ground.at(name);
            make(&dir)
                .map_err(|e| Failure::new(Exit::Storage, format!("cannot make {}", dir.display())).why(e))?;
        }
        Ok(ground)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // What cannot be removed lies in the runtime directory, which does not outlive the machine.
        let _left = std::fs::remove_dir_all(&self.0);
    }
}
