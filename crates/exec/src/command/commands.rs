//! All commands of a pod, in the foreground and in the background.
//!
//! Dropping the future of `run_command` ends its command. Dropping `Commands` ends all of them.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use minke_git::{CommandWatch, GuardScope, RepositoryGuard};
use minke_policy::SandboxBackend;
use minke_tool::{CommandEnd, CommandEventSink};

use super::background::BackgroundCommand;
use super::helper_pool::HelperPool;
use super::output::{OutputCollector, OutputPublisher};
use super::reader::{SharedOutput, lock_output};
use super::supervise::{CommandExit, LaunchedCommand, launch_command, supervise_command};
use super::table::{CommandInfo, CommandTable};
use super::types::{CommandError, CommandOutcome, CommandSpec, CommandStatus, OutputChunk, OutputFilter};
use crate::sandbox::{HelperBinary, SandboxSpec};

/// Characters of the random prefix of an id; none of them is easily confused with another.
const ID_LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
const PREFIX_LENGTH: usize = 4;

/// Configuration for the commands of a pod.
#[derive(Clone)]
pub struct CommandsConfig {
    pub backend: SandboxBackend,
    /// Returns the current sandbox specification; called at every start.
    pub spec: Arc<dyn Fn() -> SandboxSpec + Send + Sync>,
    /// Directory for output that does not fit inline.
    pub output_dir: PathBuf,
    /// Creates the redaction filter for one stream.
    pub output_filter: Arc<dyn Fn() -> Box<dyn OutputFilter> + Send + Sync>,
    /// The binary that sets up the sandbox.
    pub helper: HelperBinary,
    /// Compares the repositories of the scope before and after each command.
    pub guard: RepositoryGuard,
}

/// All commands of a pod.
pub struct Commands {
    config: CommandsConfig,
    id_prefix: String,
    ids_issued: AtomicU64,
    table: Arc<CommandTable>,
    helper_pool: HelperPool,
}

impl Commands {
    pub fn new(config: CommandsConfig) -> Commands {
        // Random, so that a restarted pod does not reuse the ids of earlier commands.
        let mut random = RandomState::new().build_hasher().finish();
        let mut id_prefix = String::new();
        for _ in 0..PREFIX_LENGTH {
            id_prefix.push(char::from(ID_LETTERS[(random % 32) as usize]));
            random /= 32;
        }
        Commands {
            config,
            id_prefix,
            ids_issued: AtomicU64::new(0),
            table: Arc::default(),
            helper_pool: HelperPool::default(),
        }
    }

    /// Returns an id that is unique in this pod.
    pub fn new_id(&self) -> String {
        format!("{}-{}", self.id_prefix, self.ids_issued.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(super) fn config(&self) -> &CommandsConfig {
        &self.config
    }

    pub fn backend(&self) -> SandboxBackend {
        self.config.backend
    }

    /// Runs a command until it ends. Dropping the future kills its process tree.
    pub async fn run_command(
        &self,
        order: CommandSpec,
        news: &CommandEventSink,
    ) -> Result<CommandOutcome, CommandError> {
        let began = Instant::now();
        order.validate()?;
        let row = self.command_info(&order, false);
        let _entered = self.table.reserve_slot(row.clone())?;
        let output = self.new_collector(&order, news);
        let (launched, _, watch) = self.launch_in_sandbox(&order, false).await?;
        let reporter = EndReporter::report_start(&output, row, &order);
        let end = supervise_command(launched, &output, order.timeout, std::future::pending()).await;
        let notes = finish_watch(watch).await;
        let end = reporter.report_end(end)?;
        self.refill_pool();
        let heard = lock_output(&output);
        Ok(CommandOutcome {
            exit: end.exit,
            timed_out: end.timed_out,
            tail: heard.tail_since(0).text,
            lines: heard.line_total(),
            bytes: heard.byte_total(),
            dropped: heard.dropped_bytes(),
            file: heard.spill_path(),
            spill_error: heard.spill_error(),
            set_id_refused: heard.set_id_refused(),
            notes,
            elapsed: began.elapsed(),
        })
    }

    /// Starts a command that runs until it ends, is killed, or the pod exits.
    pub async fn start_background(
        &self,
        order: CommandSpec,
        news: &CommandEventSink,
    ) -> Result<(), CommandError> {
        order.validate()?;
        let row = self.command_info(&order, true);
        let entered = self.table.reserve_slot(row.clone())?;
        let output = self.new_collector(&order, news);
        let (launched, input, watch) = self.launch_in_sandbox(&order, true).await?;
        let background = BackgroundCommand::new(row.clone(), order.tty, Arc::clone(&output), input)?;
        let background = Arc::new(background);
        self.table.add_background(&background);
        let mut reporter = EndReporter::report_start(&output, row, &order);
        reporter.keep_file = true;
        let (stop, attended) = (background.stop_requested(), Arc::clone(&background));
        let task = tokio::spawn(async move {
            let end = supervise_command(launched, &output, order.timeout, stop).await;
            attended.set_notes(finish_watch(watch).await);
            let end = reporter.report_end(end).unwrap_or_else(|error| {
                // No caller waits for it; the next read of its output reports the error.
                lock_output(&output).record_error(error.to_string());
                CommandExit::KILLED
            });
            // Release the slot before the exit becomes visible.
            entered.release_and_keep();
            attended.set_ended(end).await;
        });
        background.set_task(task.abort_handle());
        self.refill_pool();
        Ok(())
    }

    /// Returns output of a background command: since the last read, or from an offset.
    pub async fn read_output(&self, id: &str, from: Option<u64>) -> Result<OutputChunk, CommandError> {
        let background = self.table.find_background(id)?;
        match from {
            None => Ok(background.read_new_output()),
            Some(from) => {
                let looked = tokio::task::spawn_blocking(move || background.read_output_from(from)).await;
                looked.unwrap_or_else(|e| Err(CommandError::Internal(e.to_string())))
            }
        }
    }

    /// Waits until a background command has unread output, ends, or the time has passed.
    pub async fn wait_for_output(&self, id: &str, longest: Duration) -> Result<(), CommandError> {
        let background = self.table.find_background(id)?;
        // A timeout is not an error here.
        let _in_time = tokio::time::timeout(longest, background.wait_for_output()).await;
        Ok(())
    }

    /// Writes to the input of a background command.
    pub async fn write_input(&self, id: &str, bytes: &[u8]) -> Result<(), CommandError> {
        self.table.find_background(id)?.write_input(bytes).await
    }

    /// Closes the input of a background command.
    pub async fn close_input(&self, id: &str) -> Result<(), CommandError> {
        self.table.find_background(id)?.close_input().await
    }

    /// Kills a background command with its process tree and waits until it has exited. The returned status says whether
    /// it was killed or had already ended.
    pub async fn kill_command(&self, id: &str) -> Result<CommandStatus, CommandError> {
        Ok(self.table.find_background(id)?.kill_and_wait().await)
    }

    /// Kills all background commands, waits until they have exited, and drops the spare helper.
    pub async fn stop_all(&self) {
        self.helper_pool.clear_spare();
        let all = self.table.background_commands();
        all.iter().for_each(|one| one.request_stop());
        for one in &all {
            one.kill_and_wait().await;
        }
    }

    /// Returns the background commands, oldest first, including remembered ones that have ended.
    pub fn list_background(&self) -> Vec<(CommandInfo, CommandStatus)> {
        let all = self.table.background_commands();
        let mut list: Vec<_> = all.iter().map(|one| (one.info.clone(), one.status())).collect();
        list.sort_by_key(|(row, _)| row.started_at);
        list
    }

    /// Returns all running commands, oldest first.
    pub fn running_commands(&self) -> Vec<CommandInfo> {
        self.table.running_commands()
    }

    fn command_info(&self, order: &CommandSpec, background: bool) -> CommandInfo {
        let mut veil = (self.config.output_filter)();
        let mut command = veil.filter_bytes(order.command.as_bytes());
        command.extend(veil.finish());
        let command = String::from_utf8_lossy(&command).into_owned();
        CommandInfo {
            id: order.id.clone(),
            command,
            started_at: Instant::now(),
            background,
            write_scope: None,
        }
    }

    fn new_collector(&self, order: &CommandSpec, news: &CommandEventSink) -> SharedOutput {
        let path = self.config.output_dir.join(format!("{}.txt", order.id));
        let teller = OutputPublisher { id: order.id.clone(), news: news.clone() };
        Arc::new(Mutex::new(OutputCollector::new((self.config.output_filter)(), path, teller)))
    }

    /// Starts a spare helper for the next command. Called after a command, so that the command does not wait for it.
    fn refill_pool(&self) {
        self.helper_pool.refill_spare(&self.config.helper, self.config.backend);
    }

    async fn launch_in_sandbox(
        &self,
        order: &CommandSpec,
        with_input: bool,
    ) -> Result<(LaunchedCommand, Option<OwnedFd>, Option<CommandWatch>), CommandError> {
        let (config, order, spare) = (self.config.clone(), order.clone(), self.helper_pool.take_spare());
        // If the caller drops this future, the command is dropped, and so killed, as soon as it has started.
        let table = Arc::clone(&self.table);
        tokio::task::spawn_blocking(move || {
            let mut spec = (config.spec)();
            table.set_write_scope(&order.id, spec.write_scope(config.backend));
            let watch = begin_watch(&config, &mut spec)?;
            let (launched, input) = launch_command(&config, spec, &order, with_input, spare)?;
            Ok((launched, input, watch))
        })
        .await
        .unwrap_or_else(|e| Err(CommandError::Internal(e.to_string())))
    }
}

/// Starts the repository watch of a command that runs in a sandbox with write access.
fn begin_watch(
    config: &CommandsConfig,
    spec: &mut SandboxSpec,
) -> Result<Option<CommandWatch>, CommandError> {
    if spec.read_only || config.backend == SandboxBackend::Off {
        return Ok(None);
    }
    let ground = GuardScope {
        scope: spec.scope.clone(),
        denied: spec.findings.denied.clone(),
        lifted: spec.lifted.clone(),
    };
    let watch = config.guard.begin_command(ground).map_err(|source| CommandError::Io {
        what: "write the list of git repositories in the scope",
        source,
    })?;
    spec.findings.survey = Some(Arc::clone(&watch.survey));
    Ok(Some(watch))
}

/// Returns the changes that an ended command made to repositories.
async fn finish_watch(watch: Option<CommandWatch>) -> Vec<String> {
    let Some(watch) = watch else { return Vec::new() };
    match tokio::task::spawn_blocking(move || watch.finish_watch().to_lines()).await {
        Ok(lines) => lines,
        Err(e) => {
            vec![format!("could not compare the git repositories ({e}): this is a defect of Minke")]
        }
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        self.table.background_commands().iter().for_each(|one| one.abort_task());
    }
}

/// Reports the end of a command whose start was reported, even if the caller has stopped waiting.
struct EndReporter {
    output: SharedOutput,
    /// The output file was named in a result, so it stays when the command is cancelled.
    keep_file: bool,
    is_finished: bool,
}

impl EndReporter {
    fn report_start(output: &SharedOutput, row: CommandInfo, order: &CommandSpec) -> EndReporter {
        lock_output(output).publish_started(row.command, &order.cwd);
        EndReporter { output: Arc::clone(output), keep_file: false, is_finished: false }
    }

    fn report_end(mut self, end: Result<CommandExit, CommandError>) -> Result<CommandExit, CommandError> {
        self.is_finished = true;
        let (how, exit_code) = end.as_ref().map_or((CommandEnd::Failed, None), |exit| exit.command_end());
        lock_output(&self.output).publish_ended(how, exit_code);
        end
    }
}

impl Drop for EndReporter {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        let mut output = lock_output(&self.output);
        output.publish_ended(CommandEnd::Cancelled, None);
        if !self.keep_file {
            output.abandon();
        }
    }
}
