//! `minke job`: background work that is retried and survives restarts. Every subcommand is a request to the
//! host's engine in this process; a host is started to run the jobs.
//!
//! Elsewhere: the requests and the scheduler (`host`), the state of a job (`thread`), other threads
//! (`thread`).

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use crate::commands::run::exec::read_stdin;
use crate::commands::sessions::thread_print as shown;
use crate::context::CliContext;
use crate::engine_client::EngineClient;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

/// How often a job is polled while waiting for it.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum length of a detail in a list.
const MAX_DETAIL_CHARS: usize = 60;

/// Start, list, pause, resume and cancel background jobs
#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// Start a job in the background
    Run(Box<JobRunArgs>),
    /// List jobs, the last changed first
    List(JobListArgs),
    /// Show a job and its history
    Show(JobNameArgs),
    /// Show the messages of its thread
    Logs(JobNameArgs),
    /// Pause a job at a safe point
    Pause(JobChangeArgs),
    /// Resume a job now
    Resume(JobChangeArgs),
    /// Cancel a job
    Cancel(JobChangeArgs),
    /// Retry an ended job, in a fork of its thread
    Retry(JobNameArgs),
}

#[derive(Debug, Args)]
pub(crate) struct JobRunArgs {
    /// Objective of the job; `-` reads it from stdin
    objective: String,
    /// PROVIDER/MODEL
    #[arg(long)]
    model: Option<String>,
    /// Working directory (default: this one)
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Profile: NAME, `builtin:NAME`, `user:NAME`, `project:NAME` or PATH
    #[arg(long, value_name = "SELECTOR")]
    profile: Option<String>,
    /// Name of the job (default: the profile's or the directory's)
    #[arg(long)]
    name: Option<String>,
    /// Shell command that must succeed; a failure's output is the next input
    #[arg(long, value_name = "COMMAND")]
    acceptance: Option<String>,
    /// Retry at most N times (default: 3)
    #[arg(long, value_name = "TIMES")]
    retries: Option<u32>,
    /// Fail the job after N seconds
    #[arg(long, value_name = "SECONDS")]
    within: Option<u64>,
    /// When to restart: on_crash (default), never or always
    #[arg(long, value_name = "WHEN")]
    restart: Option<String>,
    /// Cron schedule `minute hour day month weekday`, such as '30 3 * * 1-5'
    #[arg(long, value_name = "TIMES", conflicts_with_all = ["every", "wait"])]
    cron: Option<String>,
    /// Time zone of the schedule (default: this machine's)
    #[arg(long, value_name = "ZONE", requires = "cron")]
    tz: Option<String>,
    /// Start it at an interval: 90s, 10m, 6h, 7d
    #[arg(long, value_name = "TIME", conflicts_with = "wait")]
    every: Option<String>,
    /// Call this hook of hooks.toml when it ends or pauses; repeatable
    #[arg(long, value_name = "HOOK")]
    notify: Vec<String>,
    /// The whole mandate as JSON, instead of these options
    #[arg(long, value_name = "JSON",
          conflicts_with_all = ["acceptance", "retries", "within", "restart", "cron", "tz", "every", "notify"])]
    mandate: Option<String>,
    /// Wait until the job ends; exit with 0 if it was completed
    #[arg(long)]
    wait: bool,
}

#[derive(Debug, Args)]
pub(crate) struct JobListArgs {
    /// Maximum number of jobs (default: 100, at most 1,000)
    #[arg(long, short = 'n', value_name = "N")]
    limit: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct JobNameArgs {
    /// Name, id or id prefix of the job
    name: String,
}

#[derive(Debug, Args)]
pub(crate) struct JobChangeArgs {
    /// Name, id or id prefix of the job
    name: String,
    /// Reason, stored with the job
    #[arg(long)]
    detail: Option<String>,
}

pub(crate) async fn run(
    jobs: JobCommand,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let client = EngineClient::new(context, output, "`minke job list` lists the jobs")?;
    match jobs {
        JobCommand::Run(run) => client.start_job(*run).await,
        JobCommand::List(wanted) => {
            let limit = wanted.limit.map_or_else(|| json!({}), |limit| json!({ "limit": limit }));
            let answer = client.call("jobs", limit).await?;
            client.print_answer(&answer, |answer| print_jobs(&answer["data"], output))
        }
        JobCommand::Show(named) => {
            let answer =
                client.call("jobs/get", json!({ "id": client.resolve_thread(&named.name)? })).await?;
            client.print_answer(&answer, |answer| print_job(&answer["data"]["job"], output))
        }
        JobCommand::Logs(named) => {
            let fields = json!({ "thread_id": client.resolve_thread(&named.name)? });
            let answer = client.call("thread/read", fields).await?;
            client.print_answer(&answer, |answer| shown::print_history(&answer["data"]["history"], output))
        }
        JobCommand::Pause(change) => client.change_job("pause", &change).await,
        JobCommand::Resume(wish) => client.change_job("resume", &wish).await,
        JobCommand::Cancel(wish) => client.change_job("cancel", &wish).await,
        JobCommand::Retry(named) => {
            client.change_job("retry", &JobChangeArgs { name: named.name, detail: None }).await
        }
    }
}

impl EngineClient<'_> {
    async fn start_job(&self, run: JobRunArgs) -> Result<ExitKind, CliError> {
        let wait = run.wait;
        let cwd = minke_launch::working_directory(run.cwd.as_deref(), &self.context.env)?;
        let mandate = build_mandate(&run)?;
        let fields = json!({
            "mandate": mandate, "model": run.model, "cwd": cwd, "profile": run.profile, "name": run.name,
        });
        let answer = self.call("jobs/start", fields).await?;
        let id = answer["thread_id"].as_str().unwrap_or_default().to_owned();
        minke_host::ensure_running(&self.context.open_home()?.paths).await?;
        if wait {
            return self.wait_for_job(&id).await;
        }
        self.print_answer(&answer, |_| {
            self.output.print_line(&id)?;
            let next = next_firing(&answer["data"]["job"]).unwrap_or_else(|| "queued".to_owned());
            self.output.print_note(&format!("{next}; `minke job show {id}` shows its state"));
            Ok(())
        })
    }

    /// Waits until a job has ended or is paused.
    async fn wait_for_job(&self, id: &str) -> Result<ExitKind, CliError> {
        let mut last_check = Instant::now();
        loop {
            let answer = self.call("jobs/get", json!({ "id": id })).await?;
            let status = answer["data"]["job"]["status"].as_str().unwrap_or_default().to_owned();
            let over = matches!(status.as_str(), "completed" | "failed" | "cancelled" | "paused");
            if over {
                self.print_answer(&answer, |answer| print_job(&answer["data"]["job"], self.output))?;
                return Ok(if status == "completed" { ExitKind::Success } else { ExitKind::Failed });
            }
            // The host may have ended meanwhile; make sure that one runs.
            if last_check.elapsed() > POLL_INTERVAL * 10 {
                minke_host::ensure_running(&self.context.open_home()?.paths).await?;
                last_check = Instant::now();
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn change_job(&self, verb: &str, change: &JobChangeArgs) -> Result<ExitKind, CliError> {
        let fields = json!({ "id": self.resolve_thread(&change.name)?, "detail": change.detail });
        let answer = self.call(&format!("jobs/{verb}"), fields).await?;
        if matches!(verb, "resume" | "retry") {
            minke_host::ensure_running(&self.context.open_home()?.paths).await?;
        }
        self.print_answer(&answer, |answer| {
            let job = &answer["data"]["job"];
            self.output.print_line(&format!("{} is {}", str_field(job, "id"), str_field(job, "status")))
        })
    }
}

fn build_mandate(run: &JobRunArgs) -> Result<Value, CliError> {
    let objective = if run.objective == "-" { read_stdin()? } else { run.objective.clone() };
    let mut mandate = match &run.mandate {
        Some(text) => match serde_json::from_str(text) {
            Ok(Value::Object(mandate)) => mandate,
            Ok(_) => return Err(CliError::usage("--mandate is not a JSON object")),
            Err(e) => return Err(CliError::usage("could not read --mandate").with_reason(e)),
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
        let now = crate::context::now_millis() / 1_000;
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
        let seconds = minke_manifest::parse_seconds(every).ok_or_else(|| {
            CliError::usage(format!("--every {every} is not a duration"))
                .with_hint("write it as 90s, 10m, 6h or 7d")
        })?;
        mandate.insert("schedule".to_owned(), json!({ "every_s": seconds }));
    }
    Ok(Value::Object(mandate))
}

/// Formats the next firing of a job with a schedule.
fn next_firing(job: &Value) -> Option<String> {
    let at = job["schedule"]["next_at"].as_u64()?;
    Some(format!("fires next at {}", minke_thread::schedule::format_time(at.saturating_mul(1_000))))
}

fn print_jobs(data: &Value, output: &CliOutput) -> Result<(), CliError> {
    let jobs = data["jobs"].as_array().map(Vec::as_slice).unwrap_or_default();
    for job in jobs {
        let detail = next_firing(job).unwrap_or_else(|| str_field(job, "detail").to_owned());
        let detail: String = detail.chars().take(MAX_DETAIL_CHARS).collect();
        let (id, status, name) = (str_field(job, "id"), str_field(job, "status"), str_field(job, "name"));
        let progress = job["progress"].as_u64().unwrap_or(0);
        output.print_line(&format!("{id}  {status:<11} {progress:>3} %  {name}  {detail}"))?;
    }
    let older = data["total"].as_u64().unwrap_or(0).saturating_sub(jobs.len() as u64);
    if older > 0 {
        output.print_note(&format!("and {older} older ones; `--limit` shows more"));
    }
    Ok(())
}

fn print_job(job: &Value, screen: &CliOutput) -> Result<(), CliError> {
    let retry = &job["retry"];
    screen.print_line(&format!("{}  {}", str_field(job, "id"), str_field(job, "name")))?;
    screen.print_line(&format!(
        "{}, {} %, retry {} of {}",
        str_field(job, "status"),
        job["progress"],
        retry["attempt"],
        retry["max_attempts"]
    ))?;
    if let Some(schedule) = job["schedule"].as_object() {
        let times = match schedule.get("cron").and_then(Value::as_str) {
            Some(cron) => format!("{cron} {}", schedule.get("tz").and_then(Value::as_str).unwrap_or("UTC")),
            None => format!("every {} s", job["schedule"]["every_s"]),
        };
        let next = next_firing(job).unwrap_or_else(|| "does not fire now".to_owned());
        let last = schedule.get("last").and_then(Value::as_str).map(|last| format!(", last as {last}"));
        let fired = &job["schedule"]["fired"];
        screen.print_line(&format!("{times}; {next}; fired {fired} times{}", last.unwrap_or_default()))?;
    }
    if let Some(of) = job["of"].as_str() {
        screen.print_line(&format!("created by the schedule of {of}"))?;
    }
    let begun = job["created_at"].as_u64().unwrap_or(0);
    for item in job["history"].as_array().into_iter().flatten() {
        let after = item["at"].as_u64().unwrap_or(begun).saturating_sub(begun);
        let (phase, detail) = (str_field(item, "phase"), str_field(item, "detail"));
        screen.print_line(&format!("  after {after:>6} s  {phase:<20} {detail}"))?;
    }
    Ok(())
}

fn str_field<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}
