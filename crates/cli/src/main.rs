//! The `minke` binary. One file per subcommand; each reads its environment from `CliContext` and prints
//! through `CliOutput`.

mod commands;
mod completions;
mod context;
mod engine_client;
mod error;
mod output;
mod process;
mod render;
mod scope_conflict;
mod tui_backend;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use context::CliContext;
use error::{CliError, ExitKind};
use output::{CliOutput, GlobalOptions};

/// Runs coding agents as pods: one agent, one process, one append-only log.
#[derive(Debug, Parser)]
#[command(name = "minke", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    common: GlobalOptions,
    /// Command to run (default: open the terminal UI in this directory)
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a prompt headless; the pod stops at the end
    Exec(commands::run::exec::ExecArgs),
    /// Attach to a pod and talk to it; starts the pod if it sleeps
    Attach(commands::run::attach::AttachArgs),
    /// List live pods
    Ps(commands::watch::ps::PsArgs),
    /// Watch live pods as a tree: sort, attach, send, stop
    Top(commands::watch::top::TopArgs),
    /// Print the last entries of a session and follow it
    Tail(commands::watch::tail::TailArgs),
    /// Send a message to a pod; starts the pod if it sleeps
    Send(commands::watch::send::SendArgs),
    /// Print the messages of a pod from its log
    Read(commands::watch::read::ReadArgs),
    /// Wait until pods finish or need an answer
    Wait(commands::watch::wait::WaitArgs),
    /// Start a child pod under a running pod
    Spawn(commands::run::spawn::SpawnArgs),
    /// Pause the run of a pod at a safe point
    Pause(commands::watch::run_control::RunControlArgs),
    /// Resume a paused or interrupted run
    Resume(commands::watch::run_control::RunControlArgs),
    /// Cancel the run of a pod, also a paused one
    Cancel(commands::watch::run_control::RunControlArgs),
    /// Stop the process of a pod; its session remains
    Stop(commands::watch::stop::StopArgs),
    /// List open asks
    Asks(commands::approvals::asks::AsksArgs),
    /// Answer an ask
    Answer(commands::approvals::asks::AnswerArgs),
    /// Create a session that continues another one
    Fork(commands::sessions::fork::ForkArgs),
    /// Undo the file changes of a run
    Undo(commands::sessions::undo::UndoArgs),
    /// List, search, rename and archive conversations
    #[command(subcommand)]
    Thread(commands::sessions::thread::ThreadCommand),
    /// Start, list, pause, resume and cancel background jobs
    #[command(subcommand)]
    Job(commands::automation::job::JobCommand),
    /// Manage the search index
    #[command(subcommand)]
    Index(commands::sessions::thread::IndexCommand),
    /// Show, verify, repair and export session logs
    #[command(subcommand)]
    Log(commands::sessions::log::LogCommand),
    /// Remove unused clones
    Gc(commands::sessions::gc::GcArgs),
    /// Store the key of a provider, or list keys
    Login(commands::setup::login::LoginArgs),
    /// Replay a session offline and report the first difference
    Replay(commands::sessions::replay::ReplayArgs),
    /// List models and their properties
    Models(commands::setup::models::ModelsArgs),
    /// Check this machine and suggest fixes
    Doctor(commands::diagnostics::doctor::DoctorArgs),
    /// Review and trust the executable configuration of a workspace
    Trust(commands::approvals::trust::TrustArgs),
    /// List and test hooks
    #[command(subcommand)]
    Hooks(commands::automation::hooks::HooksCommand),
    /// Evaluate, list, add and simulate policy rules
    #[command(subcommand)]
    Policy(commands::approvals::policy::PolicyCommand),
    /// Show or edit configuration and where each value comes from
    #[command(subcommand)]
    Config(commands::setup::config::ConfigCommand),
    /// List, show, check and create profiles
    #[command(subcommand)]
    Profile(commands::setup::profile::ProfileCommand),
    /// Show the system prompt of a pod
    #[command(subcommand)]
    Prompt(commands::setup::prompt::PromptCommand),
    /// List, show and check skills and workflows
    #[command(subcommand)]
    Skills(commands::setup::skills::SkillsCommand),
    /// Write commented starter files; overwrites nothing
    Init(commands::setup::init::InitArgs),
    /// Print the config, data and runtime directories
    Paths(commands::diagnostics::paths::PathsArgs),
    /// Serve a scripted model over HTTP in all four API formats
    MockLlm(commands::diagnostics::mock_llm::MockLlmArgs),
    /// Serve the HTTP and JSON-RPC API on loopback
    Host(commands::automation::host::HostArgs),
    /// Demonstrate Minke on real pods; needs no key and no network
    Tour(commands::diagnostics::tour::TourArgs),
    /// Print the schema of the pod protocol
    Schema(commands::diagnostics::schema::SchemaArgs),
    /// Run the process of one pod; other commands start it
    #[command(hide = true)]
    Pod(commands::diagnostics::pod::PodProcessArgs),
}

fn main() -> ExitCode {
    // Before anything else: the sandbox helper is this binary, executed under another name.
    if std::env::args_os().next().is_some_and(|name| minke_exec::sandbox::is_helper(&name)) {
        return minke_exec::sandbox::helper_main();
    }
    process::umask::make_files_private();
    if let Err(failure) = process::hardening::protect_memory() {
        CliOutput::without_context(&GlobalOptions::default()).print_error(&failure);
        return failure.exit.into();
    }
    let minke = match Cli::try_parse() {
        Ok(minke) => minke,
        Err(error) => return report_usage_error(&error),
    };
    if let Some(failure) = process::store::reexec_with_store(&minke.common) {
        CliOutput::without_context(&minke.common).print_error(&failure);
        return failure.exit.into();
    }
    let context = match CliContext::from_process() {
        Ok(around) => around,
        Err(failure) => {
            CliOutput::without_context(&minke.common).print_error(&failure);
            return failure.exit.into();
        }
    };
    let output = CliOutput::new(&minke.common, &context);
    process::panic::install_hook(&context);
    let done = match minke.command {
        Some(Command::Pod(pod)) => commands::diagnostics::pod::run(pod, &context),
        Some(command) => run_command(command, &context, &output).map(ExitCode::from),
        None => run_default(&context, &output).map(ExitCode::from),
    };
    match done {
        Ok(code) => code,
        Err(failure) => {
            output.print_error(&failure);
            failure.exit.into()
        }
    }
}

/// Runs `minke` without a command.
fn run_default(context: &CliContext, screen: &CliOutput) -> Result<ExitKind, CliError> {
    wake_host(context, screen)?;
    block_on(tui_backend::run_default(context, screen))
}

impl Command {
    /// Returns true for commands about pods, after which due jobs without a host are started.
    fn is_about_pods(&self) -> bool {
        matches!(
            self,
            Command::Exec(_)
                | Command::Attach(_)
                | Command::Ps(_)
                | Command::Top(_)
                | Command::Spawn(_)
                | Command::Send(_)
                | Command::Asks(_)
                | Command::Answer(_)
                | Command::Thread(_)
                | Command::Job(_)
        )
    }
}

fn run_command(command: Command, context: &CliContext, output: &CliOutput) -> Result<ExitKind, CliError> {
    if command.is_about_pods() {
        wake_host(context, output)?;
    }
    match command {
        Command::Ps(ps) => return commands::watch::ps::run(&ps, context, output),
        Command::Read(read) => return commands::watch::read::run(&read, context, output),
        Command::Gc(gc) => return commands::sessions::gc::run(&gc, context, output),
        Command::Index(index) => return commands::sessions::thread::rebuild_index(&index, context, output),
        Command::Fork(fork) => return commands::sessions::fork::run(fork, context, output),
        Command::Replay(replay) => return commands::sessions::replay::run(&replay, context, output),
        Command::Log(log) => return commands::sessions::log::run(log, context, output),
        Command::Login(login) => return commands::setup::login::run(&login, context, output),
        Command::Models(models) => return commands::setup::models::run(&models, context, output),
        Command::Doctor(doctor) => return commands::diagnostics::doctor::run(&doctor, context, output),
        Command::Paths(paths) => return commands::diagnostics::paths::run(&paths, context, output),
        Command::Trust(trust) => return commands::approvals::trust::run(&trust, context, output),
        Command::Policy(policy) => return commands::approvals::policy::run(policy, context, output),
        Command::Config(config) => return commands::setup::config::run(config, context, output),
        Command::Profile(profile) => return commands::setup::profile::run(profile, context, output),
        Command::Prompt(prompt) => return commands::setup::prompt::run(prompt, context, output),
        Command::Skills(skills) => return commands::setup::skills::run(&skills, context, output),
        Command::Init(init) => return commands::setup::init::run(&init, context, output),
        Command::Schema(schema) => return commands::diagnostics::schema::run(&schema, output),
        Command::Asks(asks) => return commands::approvals::asks::print_asks(&asks, context, output),
        _ => {}
    }
    block_on(run_async(command, context, output))
}

fn wake_host(around: &CliContext, screen: &CliOutput) -> Result<(), CliError> {
    if let Err(e) = minke_host::wake_host(&around.open_home()?.paths) {
        screen.print_note(&format!("jobs are due, but a host could not be started: {e}"));
    }
    Ok(())
}

fn block_on(work: impl Future<Output = Result<ExitKind, CliError>>) -> Result<ExitKind, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| CliError::new(ExitKind::Failed, "could not start the async runtime").with_reason(e))?;
    let done = runtime.block_on(work);
    // A thread that still reads stdin must not delay the exit.
    runtime.shutdown_background();
    done
}

/// Runs the commands that need an async runtime.
async fn run_async(command: Command, context: &CliContext, output: &CliOutput) -> Result<ExitKind, CliError> {
    match command {
        Command::Exec(exec) => Box::pin(commands::run::exec::run(exec, context, output)).await,
        Command::Attach(attach) => Box::pin(commands::run::attach::run(attach, context, output)).await,
        Command::Tail(tail) => Box::pin(commands::watch::tail::run(tail, context, output)).await,
        Command::Top(top) => Box::pin(commands::watch::top::run(top, context, output)).await,
        Command::Wait(wait) => Box::pin(commands::watch::wait::run(wait, context, output)).await,
        Command::Spawn(spawn) => Box::pin(commands::run::spawn::run(spawn, context, output)).await,
        Command::Send(send) => Box::pin(commands::watch::send::run(send, context, output)).await,
        Command::Pause(order) => commands::watch::run_control::pause_run(order, context, output).await,
        Command::Resume(order) => commands::watch::run_control::resume_run(order, context, output).await,
        Command::Cancel(order) => commands::watch::run_control::cancel_run(order, context, output).await,
        Command::Stop(stop) => commands::watch::stop::run(stop, context, output).await,
        Command::Answer(answer) => commands::approvals::asks::run(answer, context, output).await,
        Command::Undo(undo) => commands::sessions::undo::run(undo, context, output).await,
        Command::Thread(threads) => Box::pin(commands::sessions::thread::run(threads, context, output)).await,
        Command::Job(jobs) => Box::pin(commands::automation::job::run(jobs, context, output)).await,
        Command::Host(host) => Box::pin(commands::automation::host::run(host, context, output)).await,
        Command::MockLlm(mock) => commands::diagnostics::mock_llm::run(mock, context, output).await,
        Command::Tour(tour) => Box::pin(commands::diagnostics::tour::run(tour, context, output)).await,
        Command::Hooks(hooks) => Box::pin(commands::automation::hooks::run(hooks, context, output)).await,
        Command::Ps(_)
        | Command::Read(_)
        | Command::Gc(_)
        | Command::Index(_)
        | Command::Fork(_)
        | Command::Replay(_)
        | Command::Log(_)
        | Command::Login(_)
        | Command::Models(_)
        | Command::Doctor(_)
        | Command::Paths(_)
        | Command::Trust(_)
        | Command::Policy(_)
        | Command::Config(_)
        | Command::Profile(_)
        | Command::Prompt(_)
        | Command::Skills(_)
        | Command::Init(_)
        | Command::Schema(_)
        | Command::Asks(_)
        | Command::Pod(_) => Err(CliError::new(ExitKind::Failed, "this command does not talk to a pod")),
    }
}

/// Prints help and versions to stdout; everything else is a usage error. With `--json`, the error is printed
/// as an object.
fn report_usage_error(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // Ignore an error: the reader has closed the pipe.
        drop(error.print());
        return ExitCode::SUCCESS;
    }
    let json = std::env::args_os().any(|word| word == "--json");
    if json {
        let text = error.render().to_string();
        let first = text.lines().next().unwrap_or_default();
        let message = first.strip_prefix("error: ").unwrap_or(first);
        let failure = CliError::usage(message).with_hint(format!("`{} --help`", Cli::command().get_name()));
        CliOutput::without_context(&GlobalOptions { json, ..GlobalOptions::default() }).print_error(&failure);
    } else {
        let text = error.render().to_string();
        // The message repeats the arguments. Only text without control characters keeps clap's colours.
        drop(if output::sanitize_text(&text) == text { error.print() } else { output::write_prompt(&text) });
    }
    ExitKind::Usage.into()
}
