//! One hook that is told what happened: reads the log, delivers in order, tries again, keeps its place.
//!
//! Elsewhere: all of them together (`observe`), which entry is which event (`map`), where lines go (`sink`, `http`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use minke_exec::command::HookExit;
use minke_exec::fence::Exit;
use minke_record::{Entry, Millis};
use tokio::sync::watch;

use crate::around::Around;
use crate::cursor::{At, Cursor, Found};
use crate::event::Event;
use crate::hook::{Handler, Hook};
use crate::http::Web;
use crate::map::{Happened, Mapper};
use crate::observe::{Observing, Progress};
use crate::payload::payload;
use crate::sink;
use crate::steer::{self, ANSWER_BYTES};
use crate::work::Work;

/// Entries before the cursor that are read again, to know the calls that they began.
const BEFORE: u64 = 256;
/// Between tries: doubled each time, up to the second.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Lines that are given at once to a file or a socket.
const BATCH_BYTES: usize = 1024 * 1024;

/// One hook that is told what happened.
pub(crate) struct Observer {
    pub(crate) hook: Arc<Hook>,
    pub(crate) around: Around,
    pub(crate) web: Web,
    pub(crate) observing: Observing,
    pub(crate) cursor: Cursor,
    pub(crate) head: watch::Receiver<Option<u64>>,
    pub(crate) ending: watch::Receiver<bool>,
    pub(crate) progress: Arc<Progress>,
    /// The mandate names it: it hears of the job's ends and pauses, also of those before this life.
    pub(crate) named: bool,
    /// Other events than those it hears of from here on.
    pub(crate) since: u64,
}

/// A line for an entry.
struct Line {
    at: At,
    text: Vec<u8>,
}

/// Why nothing more is told in this life.
enum Over {
    /// The pod ends.
    Ending,
    /// It cannot be told at all.
    Never,
}

/// Why something was not delivered.
pub(crate) enum Undelivered {
    /// It may be later.
    Later(String),
    /// It never will: told, and left out.
    LeftOut(String),
    /// No hook of this kind works in this life.
    Never(String),
}

impl Observer {
    pub(crate) async fn observe(mut self) {
        let mut mapper = Mapper::new(Arc::clone(&self.observing.frames));
        let mut next = self.begin(&mut mapper).await;
        loop {
            self.progress.next.store(next, Ordering::Relaxed);
            self.caught_up(next);
            let head = match self.more_than(next).await {
                Ok(head) => head,
                Err(_) => return,
            };
            let entries = match self.read(next).await {
                Ok(entries) => entries,
                Err(_) => return,
            };
            let mut entries: Vec<Entry> = entries.into_iter().filter(|entry| entry.seq <= head).collect();
            entries.retain(|entry| entry.seq >= next);
            let Some(last) = entries.last().map(at) else {
                // The driver said that it is there: it will be.
                if self.pause(FIRST_PAUSE).await.is_err() {
                    return;
                }
                continue;
            };
            let lines: Vec<Line> = entries.iter().flat_map(|entry| self.lines(&mut mapper, entry)).collect();
            if self.deliver(lines).await.is_err() {
                return;
            }
            self.keep(last).await;
            next = last.seq + 1;
        }
    }

    /// Where it goes on; the calls that were begun before are known then.
    async fn begin(&mut self, mapper: &mut Mapper) -> u64 {
        let cursor = self.cursor.clone();
        let found = blocking(move || cursor.find()).await.unwrap_or(Found::New);
        if matches!(found, Found::New) {
            self.since = self.observing.from;
        }
        let mut next = match &found {
            Found::New if self.named => 0,
            Found::New => self.observing.from,
            Found::At(at) => at.seq + 1,
            Found::Lost(why) => {
                self.tell(format!("its cursor cannot be read ({why}), so it is told everything again"));
                0
            }
        };
        // What became of a job is known from its beginning only.
        let wants_jobs = self.named || matches!(self.hook.event, Event::Job | Event::Lifecycle);
        let mut from =
            if wants_jobs && next > 0 && self.is_job().await { 0 } else { next.saturating_sub(BEFORE) };
        while from < next {
            let Ok(entries) = self.read(from).await else { return next };
            let Some(last) = entries.last().map(|entry| entry.seq) else { break };
            for entry in entries.iter().filter(|entry| entry.seq < next) {
                if let Found::At(at) = &found
                    && at.seq == entry.seq
                    && at.h != entry.h
                {
                    self.tell(
                        "the log is another one than it was told of, so it is told everything".to_owned(),
                    );
                    next = 0;
                    break;
                }
                mapper.take(entry);
            }
            from = last + 1;
        }
        next
    }

    async fn is_job(&mut self) -> bool {
        let first = self.read(0).await.unwrap_or_default();
        first.first().is_some_and(|entry| Work::begun(entry).is_some())
    }

    /// Waits for entries from `next` on; the last that is there.
    async fn more_than(&mut self, next: u64) -> Result<u64, Over> {
        loop {
            if let Some(head) = *self.head.borrow_and_update()
                && head >= next
            {
                return Ok(head);
            }
            if *self.ending.borrow_and_update() {
                return Err(Over::Ending);
            }
            tokio::select! {
                changed = self.head.changed() => changed.map_err(|_| Over::Ending)?,
                changed = self.ending.changed() => changed.map_err(|_| Over::Ending)?,
            }
        }
    }

    async fn read(&mut self, from: u64) -> Result<Vec<Entry>, Over> {
        let mut pause = FIRST_PAUSE;
        loop {
            let page = Arc::clone(&self.observing.page);
            let read = blocking(move || page(from)).await;
            match read.unwrap_or_else(|| Err("reading it stopped unexpectedly".to_owned())) {
                Ok(entries) => return Ok(entries),
                Err(why) => self.failed(format!("the log cannot be read: {why}")),
            }
            self.pause(pause).await?;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn lines(&self, mapper: &mut Mapper, entry: &Entry) -> Vec<Line> {
        let own = |happened: &Happened| {
            happened.event == self.hook.event
                && !self.hook.steers()
                && !self.hook.when.named
                && entry.seq >= self.since
                && self.hook.when.fits(happened.tool.as_deref(), &happened.paths, &self.around.cwd)
        };
        let fits = |happened: &Happened| (self.named && happened.job_ends) || own(happened);
        let all = mapper.take(entry).into_iter().filter(fits);
        all.map(|happened| Line { at: at(entry), text: self.line(entry.ts, happened) }).collect()
    }

    fn line(&self, ts: Millis, happened: Happened) -> Vec<u8> {
        let mut line = payload(&self.around, ts, happened.fields).to_string().into_bytes();
        line.push(b'\n');
        line
    }

    /// Delivers lines in their order, and tries again as long as that may help.
    async fn deliver(&mut self, lines: Vec<Line>) -> Result<(), Over> {
        let mut rest = lines.as_slice();
        let mut pause = FIRST_PAUSE;
        while !rest.is_empty() {
            let count = self.bite(rest);
            let (bite, others) = rest.split_at_checked(count).unwrap_or((rest, &[]));
            let text: Vec<u8> = bite.iter().flat_map(|line| line.text.iter().copied()).collect();
            match give(&self.hook, &self.around, &self.web, text).await {
                Ok(()) => {
                    if self.progress.set_why(None) {
                        self.tell("is told what happens again".to_owned());
                    }
                }
                Err(Undelivered::LeftOut(why)) => self.failed(why),
                Err(Undelivered::Never(why)) => {
                    self.failed(why);
                    return Err(Over::Never);
                }
                Err(Undelivered::Later(why)) => {
                    self.failed(why);
                    self.pause(pause).await?;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    continue;
                }
            }
            pause = FIRST_PAUSE;
            rest = others;
            // What comes next belongs to another entry: a kill from here on repeats nothing of this one.
            if let Some(last) = bite.last()
                && rest.first().is_some_and(|next| next.at.seq != last.at.seq)
            {
                self.progress.next.store(last.at.seq + 1, Ordering::Relaxed);
                self.keep(last.at).await;
            }
        }
        Ok(())
    }

    /// How many lines are given at once.
    fn bite(&self, lines: &[Line]) -> usize {
        if matches!(self.hook.handler, Handler::Command(_) | Handler::Http(_)) {
            return 1;
        }
        let mut bytes = 0;
        let fits = |line: &&Line| {
            bytes += line.text.len();
            bytes <= BATCH_BYTES
        };
        lines.iter().take_while(fits).count().max(1)
    }

    async fn keep(&self, at: At) {
        let cursor = self.cursor.clone();
        if let Some(Err(why)) = blocking(move || cursor.save(at)).await {
            self.failed(format!("how far it was told cannot be kept: {why}"));
        }
    }

    /// Waits before another try; in vain if the pod ends.
    async fn pause(&mut self, pause: Duration) -> Result<(), Over> {
        if *self.ending.borrow() {
            return Err(Over::Ending);
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => Ok(()),
            _ = self.ending.wait_for(|ending| *ending) => Err(Over::Ending),
        }
    }

    fn caught_up(&self, next: u64) {
        let behind = self.head.borrow().is_some_and(|head| head >= next);
        if !behind && self.progress.lag_told.swap(false, Ordering::Relaxed) {
            self.tell("has caught up".to_owned());
        }
    }

    /// Told once, until it works again.
    fn failed(&self, why: String) {
        if self.progress.set_why(Some(why.clone())) {
            self.tell(why);
        }
    }

    fn tell(&self, what: String) {
        let what = crate::payload::covered(&what, &self.around);
        (self.observing.tell)(format!("hook {}: {what}", self.hook.name));
    }
}

/// Gives lines to a hook.
pub(crate) async fn give(hook: &Hook, around: &Around, web: &Web, text: Vec<u8>) -> Result<(), Undelivered> {
    match &hook.handler {
        Handler::Command(line) => run(hook, around, line, &text).await,
        Handler::Http(url) => {
            web.post(url, text, hook.timeout, ANSWER_BYTES).await.map(|_| ()).map_err(|no| {
                if no.later {
                    Undelivered::Later(no.why)
                } else {
                    Undelivered::LeftOut(format!("{}; this event is left out", no.why))
                }
            })
        }
        Handler::File(path) => {
            let path = path.clone();
            let appended = blocking(move || sink::append(&path, &text)).await;
            appended
                .unwrap_or_else(|| Err("writing stopped unexpectedly".to_owned()))
                .map_err(Undelivered::Later)
        }
        Handler::Socket(path) => sink::send(path, &text, hook.timeout).await.map_err(Undelivered::Later),
        Handler::Broken(why) => Err(Undelivered::Never(why.clone())),
    }
}

/// A command that ran was told, whatever it made of it.
async fn run(hook: &Hook, around: &Around, line: &str, text: &[u8]) -> Result<(), Undelivered> {
    if around.commands.is_none() {
        return Err(Undelivered::Never(steer::NO_FENCE.to_owned()));
    }
    match steer::run(hook, around, line, text, ANSWER_BYTES).await {
        Ok(end) if end.how == HookExit::Exited(Exit::Code(0)) => Ok(()),
        Ok(end) => Err(Undelivered::LeftOut(steer::failure(hook, &end, ANSWER_BYTES))),
        Err(why) => Err(Undelivered::Later(why)),
    }
}

fn at(entry: &Entry) -> At {
    At { seq: entry.seq, h: entry.h }
}

/// Off the loop; nothing if it panicked.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}
