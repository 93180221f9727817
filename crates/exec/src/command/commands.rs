//! All commands of a pod: those that a call waits for, and those in the background.
//!
//! Dropping the future of `run` ends its command; dropping `Commands` ends all of them.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use minke_git::{Ground, Guard, Watch};
use minke_policy::Tier;
use minke_tool::{CommandEnd, News};

use super::attend::{End, Launched, attend, launch};
use super::background::Background;
use super::heard::{Heard, Teller};
use super::listen::{Shared, lock};
use super::order::{CommandError, Finished, Piece, RunOrder, Status, Veil};
use super::spares::Spares;
use super::table::{Row, Table};
use crate::fence::{FenceSpec, Helper};

/// Letters of the part of an id that is this process's own: none that look like another.
const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
const PREFIX_LETTERS: usize = 4;

/// What the commands of a pod need to know.
#[derive(Clone)]
pub struct CommandsConfig {
    pub tier: Tier,
    /// What commands may touch, as it is now: asked at every start.
    pub spec: Arc<dyn Fn() -> FenceSpec + Send + Sync>,
    /// Where output goes that does not fit inline.
    pub output_dir: PathBuf,
    /// Makes the veil of one stream.
    pub cover: Arc<dyn Fn() -> Box<dyn Veil> + Send + Sync>,
    /// The binary that puts up the walls.
    pub helper: Helper,
    /// Compares the repositories of the scope before and after each command.
    pub guard: Guard,
}

/// All commands of a pod.
pub struct Commands {
    config: CommandsConfig,
    prefix: String,
    made: AtomicU64,
    table: Arc<Table>,
    spares: Spares,
}

impl Commands {
    pub fn new(config: CommandsConfig) -> Commands {
        // Random, so that a restarted pod does not give its commands the names of earlier ones.
        let mut random = RandomState::new().build_hasher().finish();
        let mut prefix = String::new();
        for _ in 0..PREFIX_LETTERS {
            prefix.push(char::from(LETTERS[(random % 32) as usize]));
            random /= 32;
        }
        Commands { config, prefix, made: AtomicU64::new(0), table: Arc::default(), spares: Spares::default() }
    }

    /// An id that no other command of this pod has.
    pub fn new_id(&self) -> String {
        format!("{}-{}", self.prefix, self.made.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(super) fn config(&self) -> &CommandsConfig {
        &self.config
    }

    pub fn tier(&self) -> Tier {
        self.config.tier
    }

    /// Runs a command to its end. Dropping the future kills its whole tree.
    pub async fn run(&self, order: RunOrder, news: &News) -> Result<Finished, CommandError> {
        let began = Instant::now();
        order.check()?;
        let row = self.row(&order, false);
        let _entered = self.table.enter(row.clone())?;
        let heard = self.hear(&order, news);
        let (launched, _, watch) = self.launch(&order, false).await?;
        let telling = Telling::begin(&heard, row, &order);
        let end = attend(launched, &heard, order.timeout, std::future::pending()).await;
        let notes = compared(watch).await;
        let end = telling.end(end)?;
        self.refill();
        let heard = lock(&heard);
        Ok(Finished {
            exit: end.exit,
            timed_out: end.timed_out,
            tail: heard.last(0).1,
            lines: heard.lines(),
            bytes: heard.bytes(),
            dropped: heard.dropped(),
            file: heard.file(),
            unkept: heard.unkept(),
            set_id_refused: heard.set_id_refused(),
            notes,
            took: began.elapsed(),
        })
    }

    /// Starts a command that goes on by itself, until it ends, is killed, or the pod dies.
    pub async fn start(&self, order: RunOrder, news: &News) -> Result<(), CommandError> {
        order.check()?;
        let row = self.row(&order, true);
        let entered = self.table.enter(row.clone())?;
        let heard = self.hear(&order, news);
        let (launched, input, watch) = self.launch(&order, true).await?;
        let background = Background::new(row.clone(), order.tty, Arc::clone(&heard), input)?;
        let background = Arc::new(background);
        self.table.add(&background);
        let mut telling = Telling::begin(&heard, row, &order);
        telling.keep_file = true;
        let (stop, attended) = (background.stopped(), Arc::clone(&background));
        let task = tokio::spawn(async move {
            let end = attend(launched, &heard, order.timeout, stop).await;
            attended.learn(compared(watch).await);
            let end = telling.end(end).unwrap_or_else(|error| {
                // Nobody waits for it; whoever looks is told.
                lock(&heard).broke(error.to_string());
                End::KILLED
            });
            // Its place is free before anybody learns that it has ended.
            entered.remember();
            attended.ended(end).await;
        });
        background.attended_by(task.abort_handle());
        self.refill();
        Ok(())
    }

    /// What a background command has said: since the last look, or from an offset.
    pub async fn output(&self, id: &str, from: Option<u64>) -> Result<Piece, CommandError> {
        let background = self.table.find(id)?;
        match from {
            None => Ok(background.look()),
            Some(from) => {
                let looked = tokio::task::spawn_blocking(move || background.look_from(from)).await;
                looked.unwrap_or_else(|e| Err(CommandError::Defect(e.to_string())))
            }
        }
    }

    /// Waits until a background command says something that was not looked at, ends, or the time is over.
    pub async fn wait(&self, id: &str, longest: Duration) -> Result<(), CommandError> {
        let background = self.table.find(id)?;
        // That the time is over is an answer too.
        let _in_time = tokio::time::timeout(longest, background.news_or_end()).await;
        Ok(())
    }

    /// Gives a background command something to read.
    pub async fn input(&self, id: &str, bytes: &[u8]) -> Result<(), CommandError> {
        self.table.find(id)?.input(bytes).await
    }

    /// Lets a background command read the end of its input.
    pub async fn end_input(&self, id: &str) -> Result<(), CommandError> {
        self.table.find(id)?.end_input().await
    }

    /// Kills a background command with its whole tree and waits until it is gone. How it ended: one that had ended
    /// before was not killed.
    pub async fn kill(&self, id: &str) -> Result<Status, CommandError> {
        Ok(self.table.find(id)?.kill().await)
    }

    /// Kills all background commands and waits until they are gone. The helper of the next command goes, too.
    pub async fn stop_all(&self) {
        self.spares.clear();
        let all = self.table.background();
        all.iter().for_each(|one| one.stop());
        for one in &all {
            one.kill().await;
        }
    }

    /// The background commands, the oldest first, with those that have ended and are remembered.
    pub fn list(&self) -> Vec<(Row, Status)> {
        let all = self.table.background();
        let mut list: Vec<_> = all.iter().map(|one| (one.row.clone(), one.status())).collect();
        list.sort_by_key(|(row, _)| row.since);
        list
    }

    /// Every command that runs now, the oldest first.
    pub fn running(&self) -> Vec<Row> {
        self.table.alive()
    }

    fn row(&self, order: &RunOrder, background: bool) -> Row {
        let mut veil = (self.config.cover)();
        let mut command = veil.take(order.command.as_bytes());
        command.extend(veil.end());
        let command = String::from_utf8_lossy(&command).into_owned();
        Row { id: order.id.clone(), command, since: Instant::now(), background, writes: None }
    }

    fn hear(&self, order: &RunOrder, news: &News) -> Shared {
        let path = self.config.output_dir.join(format!("{}.txt", order.id));
        let teller = Teller { id: order.id.clone(), news: news.clone() };
        Arc::new(Mutex::new(Heard::new((self.config.cover)(), path, teller)))
    }

    /// A helper for the next command. After this one: it is not to wait for what it does not need.
    fn refill(&self) {
        self.spares.refill(&self.config.helper, self.config.tier);
    }

    async fn launch(
        &self,
        order: &RunOrder,
        with_input: bool,
    ) -> Result<(Launched, Option<OwnedFd>, Option<Watch>), CommandError> {
        let (config, order, spare) = (self.config.clone(), order.clone(), self.spares.take());
        // Given up meanwhile, the command is dropped as soon as it is there, which kills it.
        let table = Arc::clone(&self.table);
        tokio::task::spawn_blocking(move || {
            let mut spec = (config.spec)();
            table.held_to(&order.id, spec.writes(config.tier));
            let watch = watch(&config, &mut spec)?;
            let (launched, input) = launch(&config, spec, &order, with_input, spare)?;
            Ok((launched, input, watch))
        })
        .await
        .unwrap_or_else(|e| Err(CommandError::Defect(e.to_string())))
    }
}

/// The guard's watch over a command that can write anything and is held to a scope.
fn watch(config: &CommandsConfig, spec: &mut FenceSpec) -> Result<Option<Watch>, CommandError> {
    if spec.read_only || config.tier == Tier::Off {
        return Ok(None);
    }
    let ground = Ground {
        scope: spec.scope.clone(),
        denied: spec.findings.denied.clone(),
        lifted: spec.lifted.clone(),
    };
    let watch = config.guard.begin(ground).map_err(|source| CommandError::Io {
        what: "keep a list of the git repositories in the scope",
        source,
    })?;
    spec.findings.survey = Some(Arc::clone(&watch.survey));
    Ok(Some(watch))
}

/// What a command that has ended did to repositories.
async fn compared(watch: Option<Watch>) -> Vec<String> {
    let Some(watch) = watch else { return Vec::new() };
    match tokio::task::spawn_blocking(move || watch.end().lines()).await {
        Ok(lines) => lines,
        Err(e) => {
            vec![format!("the git repositories could not be compared ({e}): this is a defect of Minke")]
        }
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        self.table.background().iter().for_each(|one| one.give_up());
    }
}

/// Sees to it that a command whose start was told has its end told, also when nobody waits for it any more.
struct Telling {
    heard: Shared,
    /// The file was named to somebody, so it stays when the command is given up.
    keep_file: bool,
    over: bool,
}

impl Telling {
    fn begin(heard: &Shared, row: Row, order: &RunOrder) -> Telling {
        lock(heard).tell_started(row.command, &order.cwd);
        Telling { heard: Arc::clone(heard), keep_file: false, over: false }
    }

    fn end(mut self, end: Result<End, CommandError>) -> Result<End, CommandError> {
        self.over = true;
        let (how, exit_code) = end.as_ref().map_or((CommandEnd::Failed, None), End::told);
        lock(&self.heard).tell_ended(how, exit_code);
        end
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let mut heard = lock(&self.heard);
        heard.tell_ended(CommandEnd::Cancelled, None);
        if !self.keep_file {
            heard.abandon();
        }
    }
}
