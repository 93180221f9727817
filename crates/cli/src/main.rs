//! `minke`: the binary. One file per subcommand; each looks at the world through `Surroundings` and prints through
//! `Screen`.

mod answer;
mod around;
mod asking;
mod attach;
mod budget;
mod card;
mod chorus;
mod completing;
mod config;
mod create;
mod desk;
mod doctor;
mod exec;
mod face;
mod failure;
mod family;
mod fork;
mod gc;
mod held;
mod hooks;
mod host;
mod init;
mod job;
mod lift;
mod log;
mod login;
mod mock_llm;
mod models;
mod order;
mod panic;
mod paths;
mod pod;
mod policy;
mod private;
mod profile;
mod prompt;
mod ps;
mod questions;
mod read;
mod referred;
mod replay;
mod schema;
mod screen;
mod send;
mod settings;
mod skills;
mod spawn;
mod spoken;
mod stop;
mod store;
mod streams;
mod tail;
mod thread;
mod thread_export;
mod thread_found;
mod thread_import;
mod threads_shown;
mod top;
mod tour;
mod transcript;
mod trust;
mod typed;
mod umask;
mod undo;
mod visit;
mod wait;
mod zone;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use around::Surroundings;
use failure::{Exit, Failure};
use screen::{Common, Screen};

/// Runs coding agents as pods: one agent, one process, one log that survives anything.
#[derive(Debug, Parser)]
#[command(name = "minke", version, max_term_width = 100)]
struct Minke {
    #[command(flatten)]
    common: Common,
    /// Without one: the terminal UI in this directory
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// One run, headless; its pod stops at the end
    Exec(exec::Exec),
    /// Join a pod: see what happens, say something; starts the pod if it sleeps
    Attach(attach::Attach),
    /// Live pods
    Ps(ps::Ps),
    /// Live pods as a tree, all the time: sort, attach, send, stop
    Top(top::Top),
    /// The last entries of a session, and what follows
    Tail(tail::Tail),
    /// Say something to a pod; starts the pod if it sleeps
    Send(send::Send),
    /// What a pod said, from its log
    Read(read::Read),
    /// Until pods have come to an end, or ask something
    Wait(wait::Wait),
    /// A child for a live pod
    Spawn(spawn::Spawn),
    /// Stop the run of a pod at a safe point
    Pause(order::Order),
    /// Go on with a paused or interrupted run
    Resume(order::Order),
    /// End the run of a pod, or give up a paused one
    Cancel(order::Order),
    /// End the process of a pod; its session stays
    Stop(stop::Stop),
    /// Open questions
    Asks(answer::Asks),
    /// Answer a question
    Answer(answer::Answer),
    /// A new session that begins where another one stands
    Fork(fork::Fork),
    /// Put back what a run changed
    Undo(undo::Undo),
    /// Conversations, living or not: list, search, name, put away
    #[command(subcommand)]
    Thread(thread::Threads),
    /// Work that is done by itself: begin, list, pause, resume, cancel
    #[command(subcommand)]
    Job(job::Jobs),
    /// The file that lists and searches read
    #[command(subcommand)]
    Index(thread::Indexes),
    /// Look at, check, repair and export session logs
    #[command(subcommand)]
    Log(log::Log),
    /// Remove clones that nobody works in any more
    Gc(gc::Gc),
    /// Store the key of a provider, or see which keys there are
    Login(login::Login),
    /// Run a session again from its log and recordings, offline, and report the first difference
    Replay(replay::Replay),
    /// Models that can be chosen, and what is known of them
    Models(models::Models),
    /// What this machine gives to pods, what is missing, and what to do about it
    Doctor(doctor::Doctor),
    /// What a workspace brings along that could run something, and whether you trust it
    Trust(trust::Trust),
    /// Hooks that count here, and trying them
    #[command(subcommand)]
    Hooks(hooks::HooksCommand),
    /// What the rules say to a call, and the rules themselves
    #[command(subcommand)]
    Policy(policy::Policy),
    /// What a pod here would be declared to be, where each value comes from, and your own settings
    #[command(subcommand)]
    Config(config::Config),
    /// Profiles: recipes for agents, in Lua
    #[command(subcommand)]
    Profile(profile::Profile),
    /// What a model is told first
    #[command(subcommand)]
    Prompt(prompt::Prompt),
    /// Skills and workflows that an input can refer to
    #[command(subcommand)]
    Skills(skills::Skills),
    /// Write commented starters for this workspace; nothing is written over
    Init(init::Init),
    /// Where everything lies
    Paths(paths::Paths),
    /// A script served over loopback HTTP in all four wire formats, to test any client against
    MockLlm(mock_llm::MockLlm),
    /// The door for programs: threads, frames and questions over loopback HTTP, or on stdin and stdout
    Host(host::Host),
    /// What Minke is about, shown on real pods in a directory of its own: no key, no network, some seconds
    Tour(tour::Tour),
    /// The shapes of the pod protocol
    Schema(schema::Schema),
    /// One pod's process; started by the other commands
    #[command(hide = true)]
    Pod(pod::Pod),
}

fn main() -> ExitCode {
    // A fence is put up by this binary, executed once more under another name: nothing else may come first.
    if std::env::args_os().next().is_some_and(|name| minke_exec::fence::is_helper(&name)) {
        return minke_exec::fence::helper_main();
    }
    umask::close();
    if let Err(failure) = private::keep_memory_private() {
        Screen::plain(&Common::default()).fail(&failure);
        return failure.exit.into();
    }
    let minke = match Minke::try_parse() {
        Ok(minke) => minke,
        Err(error) => return show_usage(&error),
    };
    if let Some(failure) = store::choose(&minke.common) {
        Screen::plain(&minke.common).fail(&failure);
        return failure.exit.into();
    }
    let around = match Surroundings::look() {
        Ok(around) => around,
        Err(failure) => {
            Screen::plain(&minke.common).fail(&failure);
            return failure.exit.into();
        }
    };
    let screen = Screen::new(&minke.common, &around);
    panic::report_to(&around);
    let done = match minke.command {
        Some(Command::Pod(pod)) => pod::run(pod, &around),
        Some(command) => run(command, &around, &screen).map(ExitCode::from),
        None => open(&around, &screen).map(ExitCode::from),
    };
    match done {
        Ok(code) => code,
        Err(failure) => {
            screen.fail(&failure);
            failure.exit.into()
        }
    }
}

/// `minke` alone.
fn open(around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    wake_host(around, screen)?;
    in_runtime(face::alone(around, screen))
}

impl Command {
    /// Whether it has to do with what pods do, so that it is time to go on with jobs that nobody has.
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

fn run(command: Command, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    if command.is_about_pods() {
        wake_host(around, screen)?;
    }
    match command {
        Command::Ps(ps) => return ps::run(&ps, around, screen),
        Command::Read(read) => return read::run(&read, around, screen),
        Command::Gc(gc) => return gc::run(&gc, around, screen),
        Command::Index(index) => return thread::rebuild(&index, around, screen),
        Command::Fork(fork) => return fork::run(fork, around, screen),
        Command::Replay(replay) => return replay::run(&replay, around, screen),
        Command::Log(log) => return log::run(log, around, screen),
        Command::Login(login) => return login::run(&login, around, screen),
        Command::Models(models) => return models::run(&models, around, screen),
        Command::Doctor(doctor) => return doctor::run(&doctor, around, screen),
        Command::Paths(paths) => return paths::run(&paths, around, screen),
        Command::Trust(trust) => return trust::run(&trust, around, screen),
        Command::Policy(policy) => return policy::run(policy, around, screen),
        Command::Config(config) => return config::run(config, around, screen),
        Command::Profile(profile) => return profile::run(profile, around, screen),
        Command::Prompt(prompt) => return prompt::run(prompt, around, screen),
        Command::Skills(skills) => return skills::run(&skills, around, screen),
        Command::Init(init) => return init::run(&init, around, screen),
        Command::Schema(schema) => return schema::run(&schema, screen),
        Command::Asks(asks) => return answer::list(&asks, around, screen),
        _ => {}
    }
    in_runtime(talk(command, around, screen))
}

fn wake_host(around: &Surroundings, screen: &Screen) -> Result<(), Failure> {
    if let Err(e) = minke_host::wake(&around.home()?.paths) {
        screen.note(&format!("jobs are due, and a host cannot be started for them: {e}"));
    }
    Ok(())
}

fn in_runtime(work: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::new(Exit::Failed, "cannot start").why(e))?;
    let done = runtime.block_on(work);
    // A thread that still waits for a line on stdin must not hold the end up.
    runtime.shutdown_background();
    done
}

/// Commands that talk to a pod.
async fn talk(command: Command, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    match command {
        Command::Exec(exec) => Box::pin(exec::run(exec, around, screen)).await,
        Command::Attach(attach) => Box::pin(attach::run(attach, around, screen)).await,
        Command::Tail(tail) => Box::pin(tail::run(tail, around, screen)).await,
        Command::Top(top) => Box::pin(top::run(top, around, screen)).await,
        Command::Wait(wait) => Box::pin(wait::run(wait, around, screen)).await,
        Command::Spawn(spawn) => Box::pin(spawn::run(spawn, around, screen)).await,
        Command::Send(send) => Box::pin(send::run(send, around, screen)).await,
        Command::Pause(order) => order::pause(order, around, screen).await,
        Command::Resume(order) => order::resume(order, around, screen).await,
        Command::Cancel(order) => order::cancel(order, around, screen).await,
        Command::Stop(stop) => stop::run(stop, around, screen).await,
        Command::Answer(answer) => answer::run(answer, around, screen).await,
        Command::Undo(undo) => undo::run(undo, around, screen).await,
        Command::Thread(threads) => Box::pin(thread::run(threads, around, screen)).await,
        Command::Job(jobs) => Box::pin(job::run(jobs, around, screen)).await,
        Command::Host(host) => Box::pin(host::run(host, around, screen)).await,
        Command::MockLlm(mock) => mock_llm::run(mock, around, screen).await,
        Command::Tour(tour) => Box::pin(tour::run(tour, around, screen)).await,
        Command::Hooks(hooks) => Box::pin(hooks::run(hooks, around, screen)).await,
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
        | Command::Pod(_) => Err(Failure::new(Exit::Failed, "this command does not talk to a pod")),
    }
}

/// Help and versions go to stdout and are no error; everything else is wrong usage. With `--json` on the line the error
/// is an object like every other.
fn show_usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A reader that has gone has seen enough.
        drop(error.print());
        return ExitCode::SUCCESS;
    }
    let json = std::env::args_os().any(|word| word == "--json");
    if json {
        let text = error.render().to_string();
        let first = text.lines().next().unwrap_or_default();
        let message = first.strip_prefix("error: ").unwrap_or(first);
        let failure = Failure::usage(message).hint(format!("`{} --help`", Minke::command().get_name()));
        Screen::plain(&Common { json, ..Common::default() }).fail(&failure);
    } else {
        let text = error.render().to_string();
        // It repeats the words of the line. Only clean ones may have clap's colours.
        drop(if screen::clean(&text) == text { error.print() } else { screen::ask(&text) });
    }
    Exit::Usage.into()
}
