//! Subcommands, in the groups of `minke --help`. Each group is a folder, and each command a file or folder in it.
//!
//! To add a command, write its file and add its line to the table below. The file defines the arguments, whose
//! doc comment is the line in `minke --help`, and the function that runs the command.
//! Invariant: folders, groups and files agree (`every_command_has_a_group_and_a_file`).

pub(crate) mod approvals;
pub(crate) mod automation;
pub(crate) mod diagnostics;
pub(crate) mod run;
pub(crate) mod sessions;
pub(crate) mod setup;
pub(crate) mod watch;

use std::process::ExitCode;

use clap::Subcommand;

use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

/// Defines the enum `Command`, its groups and `run_command` from a table. A command after `wakes_host` first
/// starts a host if jobs are due.
macro_rules! command_table {
    (|$args:ident, $context:ident, $output:ident| $($group:ident $heading:literal {
        $($(#[$attribute:meta])* $command:ident($module:ident::$type:ident)
            $($wakes:ident)? => $run:expr;)+
    })+) => {
        #[derive(Debug, Subcommand)]
        pub(crate) enum Command {
            $($($(#[$attribute])* $command($group::$module::$type),)+)+
        }

        /// The group of each command, in the order of the enum.
        pub(crate) const GROUP_OF_COMMAND: &[&str] = &[$($(command_table!(@group $command $heading),)+)+];

        /// Runs a command.
        pub(crate) fn run_command(
            command: Command,
            $context: &CliContext,
            $output: &CliOutput,
        ) -> Result<ExitCode, CliError> {
            match command {
                $($(Command::$command($args) => {
                    use $group::*;
                    $($wakes($context, $output)?;)?
                    Ok(ExitCode::from($run?))
                })+)+
            }
        }
    };
    (@group $command:ident $heading:literal) => { $heading };
}

command_table! { |args, context, output|
    run "Run" {
        Exec(exec::ExecArgs) wakes_host => wait_for(exec::run(args, context, output));
        Attach(attach::AttachArgs) wakes_host => wait_for(attach::run(args, context, output));
        Spawn(spawn::SpawnArgs) wakes_host => wait_for(spawn::run(args, context, output));
    }
    watch "Watch and steer" {
        Ps(ps::PsArgs) wakes_host => ps::run(&args, context, output);
        Top(top::TopArgs) wakes_host => wait_for(top::run(args, context, output));
        Tail(tail::TailArgs) => wait_for(tail::run(args, context, output));
        Read(read::ReadArgs) => read::run(&args, context, output);
        Wait(wait::WaitArgs) => wait_for(wait::run(args, context, output));
        Send(send::SendArgs) wakes_host => wait_for(send::run(args, context, output));
        Pause(pause::PauseArgs) => wait_for(pause::run(args, context, output));
        Resume(resume::ResumeArgs) => wait_for(resume::run(args, context, output));
        Cancel(cancel::CancelArgs) => wait_for(cancel::run(args, context, output));
        Stop(stop::StopArgs) => wait_for(stop::run(args, context, output));
    }
    approvals "Approvals" {
        Asks(asks::AsksArgs) wakes_host => asks::run(&args, context, output);
        Answer(answer::AnswerArgs) wakes_host => wait_for(answer::run(args, context, output));
        #[command(subcommand)] Policy(policy::PolicyCommand) => policy::run(args, context, output);
        Trust(trust::TrustArgs) => trust::run(&args, context, output);
    }
    sessions "Sessions" {
        #[command(subcommand)] Thread(thread::ThreadCommand) wakes_host => wait_for(thread::run(args, context, output));
        #[command(subcommand)] Log(log::LogCommand) => log::run(args, context, output);
        Fork(fork::ForkArgs) => fork::run(args, context, output);
        Undo(undo::UndoArgs) => wait_for(undo::run(args, context, output));
        Replay(replay::ReplayArgs) => replay::run(&args, context, output);
        #[command(subcommand)] Index(index::IndexCommand) => index::run(&args, context, output);
        Gc(gc::GcArgs) => gc::run(&args, context, output);
    }
    automation "Automation" {
        #[command(subcommand)] Job(job::JobCommand) wakes_host => wait_for(job::run(args, context, output));
        #[command(subcommand)] Hooks(hooks::HooksCommand) => wait_for(hooks::run(args, context, output));
        Host(host::HostArgs) => wait_for(host::run(args, context, output));
    }
    setup "Setup" {
        Login(login::LoginArgs) => login::run(&args, context, output);
        Models(models::ModelsArgs) => models::run(&args, context, output);
        #[command(subcommand)] Config(config::ConfigCommand) => config::run(args, context, output);
        #[command(subcommand)] Profile(profile::ProfileCommand) => profile::run(args, context, output);
        #[command(subcommand)] Prompt(prompt::PromptCommand) => prompt::run(args, context, output);
        #[command(subcommand)] Skills(skills::SkillsCommand) => skills::run(&args, context, output);
        Init(init::InitArgs) => init::run(&args, context, output);
    }
    diagnostics "Diagnostics" {
        Tour(tour::TourArgs) => wait_for(tour::run(args, context, output));
        Doctor(doctor::DoctorArgs) => doctor::run(&args, context, output);
        Paths(paths::PathsArgs) => paths::run(&args, context, output);
        Schema(schema::SchemaArgs) => schema::run(&args, output);
        MockLlm(mock_llm::MockLlmArgs) => wait_for(mock_llm::run(args, context, output));
        #[command(hide = true)] Pod(pod::PodProcessArgs) => pod::run(args, context);
    }
}

/// Starts a host if jobs are due and none runs.
pub(crate) fn wakes_host(context: &CliContext, output: &CliOutput) -> Result<(), CliError> {
    if let Err(e) = minke_host::wake_host(&context.open_home()?.paths) {
        output.print_note(&format!("jobs are due, but a host could not be started: {e}"));
    }
    Ok(())
}

/// Runs the work of a command in an async runtime.
pub(crate) fn wait_for(work: impl Future<Output = Result<ExitKind, CliError>>) -> Result<ExitKind, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| CliError::new(ExitKind::Failed, "could not start the async runtime").with_reason(e))?;
    let done = runtime.block_on(work);
    // A thread that still reads stdin must not delay the exit.
    runtime.shutdown_background();
    done
}
