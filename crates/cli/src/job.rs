//! `minke job`: work that is done by itself, tried again, and survives restarts. Every subcommand is a request to the
//! host's engine, in this process; a host is started for whatever is to run.
//!
//! Elsewhere: the requests and who looks after jobs (`host`), what a job is (`thread`), threads in general (`thread`).

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use crate::around::Surroundings;
use crate::asking::Asking;
use crate::exec::read_stdin;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::threads_shown as shown;

/// How often a job that is waited for is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// How much of a detail a list shows.
const DETAIL_CHARS: usize = 60;

#[derive(Debug, Subcommand)]
pub(crate) enum Jobs {
    /// Begin a job; it runs by itself, in the background
    Run(Box<Run>),
    /// Jobs, the one that changed last first
    List(List),
    /// One job, and what happened to it
    Show(Named),
    /// What was said in its thread
    Logs(Named),
    /// Stop it at a safe point
    Pause(Wish),
    /// Go on with it now
    Resume(Wish),
    /// End it
    Cancel(Wish),
    /// Begin one that is over again, as a fork of its thread
    Retry(Named),
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// What is to be done; `-` reads it from stdin
    objective: String,
    /// PROVIDER/MODEL
    #[arg(long)]
    model: Option<String>,
    /// The directory to work in (default: this one)
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    #[arg(long)]
    profile: Option<String>,
    #[arg(long)]
    name: Option<String>,
    /// A shell line that must exit with 0; what it says is the input of the next attempt
    #[arg(long, value_name = "COMMAND")]
    acceptance: Option<String>,
    /// How often it is tried again (default: 3)
    #[arg(long, value_name = "TIMES")]
    retries: Option<u32>,
    /// It has failed after so many seconds
    #[arg(long, value_name = "SECS")]
    within: Option<u64>,
    /// It goes on after a crash (on_crash, the default) or not (never), or is begun again after every end, too (always)
    #[arg(long, value_name = "WHEN")]
    restart: Option<String>,
    /// Begin it at these times: `minute hour day month weekday`, such as '30 3 * * 1-5'
    #[arg(long, value_name = "TIMES", conflicts_with_all = ["every", "wait"])]
    cron: Option<String>,
    /// The zone of these times (default: this machine's)
    #[arg(long, value_name = "ZONE", requires = "cron")]
    tz: Option<String>,
    /// Begin it again and again after so long: 90s, 10m, 6h, 7d
    #[arg(long, value_name = "TIME", conflicts_with = "wait")]
    every: Option<String>,
    /// Call this hook (by its name in hooks.toml) when it is over or paused; may be given several times
    #[arg(long, value_name = "HOOK")]
    notify: Vec<String>,
    /// The whole mandate as JSON, instead of these options
    #[arg(long, value_name = "JSON",
          conflicts_with_all = ["acceptance", "retries", "within", "restart", "cron", "tz", "every", "notify"])]
    mandate: Option<String>,
    /// Wait until it is over; exit 0 if it was completed
    #[arg(long)]
    wait: bool,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// How many; 100 if nothing is said, 1,000 at most
    #[arg(long, short = 'n', value_name = "N")]
    limit: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct Named {
    /// The job: its name, its id or the beginning of that
    name: String,
}

#[derive(Debug, Args)]
pub(crate) struct Wish {
    /// The job: its name, its id or the beginning of that
    name: String,
    /// Why, for whoever looks later
    #[arg(long)]
    detail: Option<String>,
}

pub(crate) async fn run(jobs: Jobs, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let desk = Asking::new(around, screen, "`minke job list` lists the jobs")?;
    match jobs {
        Jobs::Run(run) => desk.begin(*run).await,
        Jobs::List(wanted) => {
            let limit = wanted.limit.map_or_else(|| json!({}), |limit| json!({ "limit": limit }));
            let answer = desk.call("jobs", limit).await?;
            desk.tell(&answer, |answer| list(&answer["data"], screen))
        }
        Jobs::Show(named) => {
            let answer = desk.call("jobs/get", json!({ "id": desk.meant(&named.name)? })).await?;
            desk.tell(&answer, |answer| show(&answer["data"]["job"], screen))
        }
        Jobs::Logs(named) => {
            let fields = json!({ "thread_id": desk.meant(&named.name)? });
            let answer = desk.call("thread/read", fields).await?;
            desk.tell(&answer, |answer| shown::history(&answer["data"]["history"], screen))
        }
        Jobs::Pause(wish) => desk.wish("pause", &wish).await,
        Jobs::Resume(wish) => desk.wish("resume", &wish).await,
        Jobs::Cancel(wish) => desk.wish("cancel", &wish).await,
        Jobs::Retry(named) => desk.wish("retry", &Wish { name: named.name, detail: None }).await,
    }
}

impl Asking<'_> {
    async fn begin(&self, run: Run) -> Result<Exit, Failure> {
        let wait = run.wait;
        let cwd = crate::create::working_directory(run.cwd.as_deref(), self.around)?;
        let mandate = mandate(&run)?;
        let fields = json!({
            "mandate": mandate, "model": run.model, "cwd": cwd, "profile": run.profile, "name": run.name,
        });
        let answer = self.call("jobs/start", fields).await?;
        let id = answer["thread_id"].as_str().unwrap_or_default().to_owned();
        minke_host::ensure(&self.around.home()?.paths).await?;
        if wait {
            return self.wait(&id).await;
        }
        self.tell(&answer, |_| {
            self.screen.line(&id)?;
            let next = next(&answer["data"]["job"]).unwrap_or_else(|| "queued".to_owned());
            self.screen.note(&format!("{next}; `minke job show {id}` says how it stands"));
            Ok(())
        })
    }

    /// Waits until a job is over, or somebody has to look at it.
    async fn wait(&self, id: &str) -> Result<Exit, Failure> {
        let mut looked = Instant::now();
        loop {
            let answer = self.call("jobs/get", json!({ "id": id })).await?;
            let status = answer["data"]["job"]["status"].as_str().unwrap_or_default().to_owned();
            let over = matches!(status.as_str(), "completed" | "failed" | "cancelled" | "paused");
            if over {
                self.tell(&answer, |answer| show(&answer["data"]["job"], self.screen))?;
                return Ok(if status == "completed" { Exit::Done } else { Exit::Failed });
            }
            // A host may have ended meanwhile: another one goes on.
            if looked.elapsed() > LOOK * 10 {
                minke_host::ensure(&self.around.home()?.paths).await?;
                looked = Instant::now();
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn wish(&self, verb: &str, wish: &Wish) -> Result<Exit, Failure> {
        let fields = json!({ "id": self.meant(&wish.name)?, "detail": wish.detail });
        let answer = self.call(&format!("jobs/{verb}"), fields).await?;
        if matches!(verb, "resume" | "retry") {
            minke_host::ensure(&self.around.home()?.paths).await?;
        }
        self.tell(&answer, |answer| {
            let job = &answer["data"]["job"];
            self.screen.line(&format!("{} is {}", word(job, "id"), word(job, "status")))
        })
    }
}

fn mandate(run: &Run) -> Result<Value, Failure> {
    let objective = if run.objective == "-" { read_stdin()? } else { run.objective.clone() };
    let mut mandate = match &run.mandate {
        Some(text) => match serde_json::from_str(text) {
            Ok(Value::Object(mandate)) => mandate,
            Ok(_) => return Err(Failure::usage("--mandate is no JSON object")),
            Err(e) => return Err(Failure::usage("--mandate cannot be read").why(e)),
        },
        None => Map::new(),
    };
    mandate.insert("objective".to_owned(), json!(objective));
    if let Some(command) = &run.acceptance {
        mandate.insert("acceptance".to_owned(), json!(command));
    }
    if let Some(times) = run.retries {
        mandate.insert("retry".to_owned(), json!({ "max": times }));
    }
    if let Some(seconds) = run.within {
        let now = crate::around::now() / 1_000;
        mandate.insert("deadline".to_owned(), json!(now.saturating_add(seconds)));
    }
    if let Some(when) = &run.restart {
        mandate.insert("restart".to_owned(), json!(when));
    }
    if !run.notify.is_empty() {
        mandate.insert("notify".to_owned(), json!(run.notify));
    }
    if let Some(cron) = &run.cron {
        let zone = run.tz.as_ref().map(|tz| json!({ "cron": cron, "tz": tz }));
        mandate.insert("schedule".to_owned(), zone.unwrap_or_else(|| json!({ "cron": cron })));
    }
    if let Some(every) = &run.every {
        let seconds = minke_manifest::seconds(every).ok_or_else(|| {
            Failure::usage(format!("--every {every} is no time")).hint("write it as 90s, 10m, 6h or 7d")
        })?;
        mandate.insert("schedule".to_owned(), json!({ "every_s": seconds }));
    }
    Ok(Value::Object(mandate))
}

/// When a job with a schedule fires next.
fn next(job: &Value) -> Option<String> {
    let at = job["schedule"]["next_at"].as_u64()?;
    Some(format!("fires next at {}", minke_thread::schedule::shown(at.saturating_mul(1_000))))
}

fn list(data: &Value, screen: &Screen) -> Result<(), Failure> {
    let jobs = data["jobs"].as_array().map(Vec::as_slice).unwrap_or_default();
    for job in jobs {
        let detail = next(job).unwrap_or_else(|| word(job, "detail").to_owned());
        let detail: String = detail.chars().take(DETAIL_CHARS).collect();
        let (id, status, name) = (word(job, "id"), word(job, "status"), word(job, "name"));
        let progress = job["progress"].as_u64().unwrap_or(0);
        screen.line(&format!("{id}  {status:<11} {progress:>3} %  {name}  {detail}"))?;
    }
    let older = data["total"].as_u64().unwrap_or(0).saturating_sub(jobs.len() as u64);
    if older > 0 {
        screen.note(&format!("and {older} that changed earlier; `--limit` shows more"));
    }
    Ok(())
}

fn show(job: &Value, screen: &Screen) -> Result<(), Failure> {
    let retry = &job["retry"];
    screen.line(&format!("{}  {}", word(job, "id"), word(job, "name")))?;
    screen.line(&format!(
        "{}, {} %, retry {} of {}",
        word(job, "status"),
        job["progress"],
        retry["attempt"],
        retry["max_attempts"]
    ))?;
    if let Some(schedule) = job["schedule"].as_object() {
        let times = match schedule.get("cron").and_then(Value::as_str) {
            Some(cron) => format!("{cron} {}", schedule.get("tz").and_then(Value::as_str).unwrap_or("UTC")),
            None => format!("every {} s", job["schedule"]["every_s"]),
        };
        let next = next(job).unwrap_or_else(|| "does not fire now".to_owned());
        let last = schedule.get("last").and_then(Value::as_str).map(|last| format!(", last as {last}"));
        let fired = &job["schedule"]["fired"];
        screen.line(&format!("{times}; {next}; fired {fired} times{}", last.unwrap_or_default()))?;
    }
    if let Some(of) = job["of"].as_str() {
        screen.line(&format!("made by the schedule of {of}"))?;
    }
    let begun = job["created_at"].as_u64().unwrap_or(0);
    for item in job["history"].as_array().into_iter().flatten() {
        let after = item["at"].as_u64().unwrap_or(begun).saturating_sub(begun);
        let (phase, detail) = (word(item, "phase"), word(item, "detail"));
        screen.line(&format!("  after {after:>6} s  {phase:<20} {detail}"))?;
    }
    Ok(())
}

fn word<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}
