//! `minke hooks`: lists hooks and tests them with a sample event.
//!
//! A test really runs the hooks: with the same code and sandbox as a pod whose scope is the working
//! directory.
//! Elsewhere: reading and running hooks (`minke-hooks`), the trust of a workspace (`minke-config`).
//! Invariant: hooks of an untrusted workspace are not read (`hooks_of_a_workspace_count_once_it_is_trusted`).

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use minke_config::trust::{TrustStatus, TrustStore};
use minke_exec::command::{Commands, CommandsConfig, OutputFilter};
use minke_exec::sandbox::{EnvRules, HelperBinary, NetworkAccess, PodDirs, SandboxSpec};
use minke_hooks::{
    Hook, HookAnswer, HookContext, HookEvent, HookReport, HookSet, LoadedHooks, SteerResult, SteeringRequest,
};
use minke_launch::find_workspace;
use minke_llm::build_key_redactor;
use minke_policy::SandboxBackend;
use minke_record::{Judgement, Scope};
use minke_registry::UserPaths;
use minke_secrets::KeyRedactor;
use serde_json::{Value, json};

use crate::context::{CliContext, random_seed};
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

const HOOKS_FILE: &str = "hooks.toml";
const SCRIPTS_DIR: &str = "hooks";
const WORKSPACE_HOOKS_FILE: &str = ".minke/hooks.toml";

/// List and test hooks
#[derive(Debug, Subcommand)]
pub(crate) enum HooksCommand {
    /// List the hooks that apply here, and problems in hook files
    List,
    /// Run the hooks of an event on a sample and show the result
    Test(HooksTestArgs),
}

#[derive(Debug, Args)]
pub(crate) struct HooksTestArgs {
    /// The event, as named in hooks.toml
    event: String,
    /// Tool of the sample event
    #[arg(long, value_name = "NAME", default_value = "Bash")]
    tool: String,
    /// File of the sample event
    #[arg(long, value_name = "PATH")]
    path: Option<PathBuf>,
}

pub(crate) async fn run(
    command: HooksCommand,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let paths = context.find_paths()?;
    let loaded = load_hooks(&paths, context, output)?;
    match command {
        HooksCommand::List => print_list(&loaded, output),
        HooksCommand::Test(test) => test_hooks(test, loaded, &paths, context, output).await,
    }
}

/// Loads the user's hooks, and those of the workspace if it is trusted.
fn load_hooks(paths: &UserPaths, around: &CliContext, screen: &CliOutput) -> Result<LoadedHooks, CliError> {
    let loaded = LoadedHooks::default().add_user_file(&paths.config.join(HOOKS_FILE));
    let found = minke_config::trust::scan_workspace(&find_workspace(&around.env.cwd));
    let Some(text) = found.file_text(WORKSPACE_HOOKS_FILE) else { return Ok(loaded) };
    let standing = TrustStore::in_data_dir(&paths.data).trust_status(&found)?;
    if TrustStatus::is_trusted(&standing) {
        return Ok(loaded.add_workspace_file(&found.workspace.join(WORKSPACE_HOOKS_FILE), text));
    }
    screen.print_note(&format!(
        "{WORKSPACE_HOOKS_FILE} of this workspace is ignored until you trust it (`minke trust`)"
    ));
    Ok(loaded)
}

fn print_list(loaded: &LoadedHooks, output: &CliOutput) -> Result<ExitKind, CliError> {
    if output.json {
        let hooks: Vec<Value> = loaded.hooks.iter().map(hook_json).collect();
        output.print_json(&json!({ "hooks": hooks, "problems": loaded.problems }))?;
        return Ok(ExitKind::Success);
    }
    for hook in &loaded.hooks {
        let mut words =
            vec![format!("{}: {} {}", hook.name, hook.handler.kind_name(), hook.handler.describe_target())];
        words.extend(
            Some(hook.when.describe_condition())
                .filter(|when| !when.is_empty())
                .map(|when| format!("when {when}")),
        );
        words.push(format!("at most {} s", hook.timeout.as_secs()));
        words.extend(hook.strict.then(|| "strict".to_owned()));
        let asked = if hook.is_steering() { "asked at" } else { "told of" };
        output.print_line(&format!("{asked} {:<13} {}", hook.event, words.join(", ")))?;
        output.print_line(&format!(
            "{:22}{} {}:{}",
            "",
            hook.layer.as_str(),
            hook.file.display(),
            hook.line
        ))?;
    }
    loaded.problems.iter().for_each(|problem| output.print_warning(problem));
    if loaded.hooks.is_empty() && loaded.problems.is_empty() {
        output.print_note("no hooks; docs/reference/hooks.md explains how to write one");
    }
    Ok(ExitKind::Success)
}

fn hook_json(hook: &Hook) -> Value {
    json!({
        "name": hook.name,
        "event": hook.event.as_str(),
        "steers": hook.is_steering(),
        "handler": hook.handler.kind_name(),
        "target": hook.handler.describe_target(),
        "when": hook.when.describe_condition(),
        "timeout_s": hook.timeout.as_secs(),
        "strict": hook.strict,
        "layer": hook.layer.as_str(),
        "file": hook.file.display().to_string(),
        "line": hook.line,
    })
}

async fn test_hooks(
    test: HooksTestArgs,
    loaded: LoadedHooks,
    paths: &UserPaths,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let Some(event) = HookEvent::from_name(&test.event) else {
        let all: Vec<&str> = HookEvent::ALL.iter().map(|event| event.as_str()).collect();
        return Err(CliError::usage(format!("there is no event `{}`", test.event))
            .with_hint(format!("one of {}", all.join(", "))));
    };
    let path = test.path.unwrap_or_else(|| PathBuf::from("sample.txt"));
    let sample =
        SteeringRequest::sample_event(event, &test.tool, &context.env.cwd.join(path).to_string_lossy());
    loaded.problems.iter().for_each(|problem| output.print_warning(problem));
    context.open_home()?;
    let dirs = SampleDirs::new(paths)?;
    let hooks = HookSet::new(loaded, hook_env(&dirs, paths, context)?);
    let steered = hooks.ask_hooks(&sample).await;
    let told = hooks.deliver_sample(&sample).await;
    drop(hooks);
    print_results(&steered, &told, output)?;
    let failed = |reply: &HookReport| matches!(reply.answer, HookAnswer::Failed(_));
    Ok(match steered.outcome {
        Judgement::Ask => ExitKind::Refused,
        Judgement::Deny | Judgement::Other(_) => ExitKind::Limit,
        Judgement::Allow if steered.reports.iter().chain(&told).any(failed) => ExitKind::Failed,
        Judgement::Allow => ExitKind::Success,
    })
}

fn print_results(steered: &SteerResult, told: &[HookReport], output: &CliOutput) -> Result<(), CliError> {
    if output.json {
        let list = |all: &[HookReport]| all.iter().map(reply_json).collect::<Vec<Value>>();
        return output.print_json(&json!({
            "outcome": steered.outcome,
            "by": steered.decided_by,
            "reason": steered.reason,
            "rewritten": steered.rewritten,
            "context": steered.context,
            "env": steered.env.keys().collect::<Vec<_>>(),
            "asked": list(&steered.reports),
            "told": list(told),
        }));
    }
    for (what, reply) in
        steered.reports.iter().map(|one| ("asked", one)).chain(told.iter().map(|one| ("told", one)))
    {
        let took = reply.elapsed.as_millis();
        output.print_line(&format!(
            "{what} {} ({took} ms): {}",
            reply.hook,
            describe_reply(what, &reply.answer)
        ))?;
    }
    if steered.reports.is_empty() && told.is_empty() {
        output.print_line("no hook matches")?;
    }
    let by = steered.decided_by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
    let reason = steered.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    output.print_line(&format!("outcome: {}{by}{reason}", steered.outcome))?;
    if let Some(rewritten) = &steered.rewritten {
        output.print_line(&format!("rewritten: {rewritten}"))?;
    }
    if let Some(context) = &steered.context {
        output.print_line(&format!("the model would also read: {context}"))?;
    }
    if !steered.env.is_empty() {
        let names: Vec<&str> = steered.env.keys().map(String::as_str).collect();
        output.print_line(&format!("variables: {}", names.join(", ")))?;
    }
    Ok(())
}

fn reply_json(reply: &HookReport) -> Value {
    let (said, text) = match &reply.answer {
        HookAnswer::NoObjection => ("nothing", None),
        HookAnswer::Verdict(_) => ("verdict", Some(describe_reply("asked", &reply.answer))),
        HookAnswer::Denied(why) => ("no", Some(why.clone())),
        HookAnswer::Failed(why) => ("problem", Some(why.clone())),
    };
    json!({ "hook": reply.hook, "ms": reply.elapsed.as_millis(), "said": said, "text": text })
}

fn describe_reply(what: &str, said: &HookAnswer) -> String {
    match said {
        HookAnswer::NoObjection if what == "told" => "delivered".to_owned(),
        HookAnswer::NoObjection => "no objection".to_owned(),
        HookAnswer::Denied(why) => format!("no: {why}"),
        HookAnswer::Failed(why) => format!("PROBLEM: {why}"),
        HookAnswer::Verdict(verdict) => {
            let mut words = Vec::new();
            words.extend(verdict.decision.as_ref().map(ToString::to_string));
            words.extend(verdict.reason.as_ref().map(|reason| format!("because {reason}")));
            words.extend(verdict.rewritten.as_ref().map(|_| "with new input".to_owned()));
            words.extend(verdict.context.as_ref().map(|_| "with context for the model".to_owned()));
            words.extend(
                Some(verdict.env.len()).filter(|count| *count > 0).map(|count| format!("{count} variables")),
            );
            words.join(", ")
        }
    }
}

/// Returns the environment of hooks in a pod that works here.
fn hook_env(dirs: &SampleDirs, paths: &UserPaths, context: &CliContext) -> Result<HookContext, CliError> {
    let resolve_env =
        minke_llm::ResolveContext::for_process(context.env.cwd.clone(), Some(paths.config.clone()));
    let cover = Arc::new(build_key_redactor(resolve_env));
    let hidden = Arc::clone(&cover);
    Ok(HookContext {
        session: "sample".to_owned(),
        pod: "sample".to_owned(),
        cwd: context.env.cwd.clone(),
        commands: sandboxed_commands(dirs, paths, context, &cover)?,
        redact: Arc::new(move |text| {
            let mut text = text.to_owned();
            match hidden.redact(&mut [&mut text]) {
                Ok(()) => text,
                Err(why) => format!("[not shown, because keys could not be redacted: {why}]"),
            }
        }),
        scripts_dir: paths.config.join(SCRIPTS_DIR),
    })
}

fn sandboxed_commands(
    dirs: &SampleDirs,
    paths: &UserPaths,
    context: &CliContext,
    cover: &Arc<KeyRedactor>,
) -> Result<Option<Arc<Commands>>, CliError> {
    let backend = minke_exec::probe::best_backend();
    if backend == SandboxBackend::Unavailable {
        return Ok(None);
    }
    let home = std::env::home_dir().map(|home| minke_policy::secret_paths(&home.to_string_lossy()));
    let ours = [&paths.config, &paths.data, &paths.state, &paths.runtime];
    let secrets = home.unwrap_or_default().into_iter().map(PathBuf::from);
    let cwd = context
        .env
        .cwd
        .to_str()
        .ok_or_else(|| CliError::usage("the path of the working directory is not UTF-8"))?;
    let spec = SandboxSpec {
        scope: Scope::writable(cwd),
        read_only: false,
        dirs: PodDirs {
            tmp: dirs.subdir("tmp"),
            output: dirs.subdir("output"),
            lock_file: dirs.subdir("sandboxes"),
            writable_tmp: true,
        },
        masked: secrets.chain(ours.into_iter().cloned()).collect(),
        lifted: Vec::new(),
        findings: minke_exec::sandbox::ScopeFindings::default(),
        network: NetworkAccess::Off,
        env: EnvRules::default(),
    };
    let cover = Arc::clone(cover);
    Ok(Some(Arc::new(Commands::new(CommandsConfig {
        backend,
        spec: Arc::new(move || spec.clone()),
        output_dir: dirs.subdir("output"),
        output_filter: Arc::new(move || Box::new(KeyFilter(cover.redaction_stream().ok()))),
        helper: HelperBinary::default(),
        guard: minke_exec::command::RepositoryGuard::default(),
    }))))
}

/// Redacts keys in the output of a hook. Output that cannot be checked for keys is dropped.
struct KeyFilter(Option<minke_secrets::RedactionStream>);

impl OutputFilter for KeyFilter {
    fn filter_bytes(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.0.as_mut().map(|stream| stream.push(bytes)).unwrap_or_default()
    }

    fn finish(&mut self) -> Vec<u8> {
        self.0.as_mut().map(minke_secrets::RedactionStream::finish).unwrap_or_default()
    }
}

/// Temporary directories that hooks expect from a pod; removed when dropped.
struct SampleDirs(PathBuf);

impl SampleDirs {
    fn new(paths: &UserPaths) -> Result<SampleDirs, CliError> {
        let dir = paths.runtime.join(format!("hooks-test-{}-{:016x}", std::process::id(), random_seed()));
        let make = |dir: &Path| std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
        let dirs = SampleDirs(dir);
        for name in ["tmp", "output"] {
            let dir = dirs.subdir(name);
            make(&dir).map_err(|e| {
                CliError::new(ExitKind::Storage, format!("could not create {}", dir.display())).with_reason(e)
            })?;
        }
        Ok(dirs)
    }

    fn subdir(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for SampleDirs {
    fn drop(&mut self) {
        // Leftovers are in the runtime directory, which a reboot clears.
        let _left = std::fs::remove_dir_all(&self.0);
    }
}
