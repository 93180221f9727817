//! `minke doctor`: checks this machine and suggests fixes.
//!
//! Here: findings and their output. Elsewhere: sandbox and kernel (`sandbox`, `kernel`), directories
//! (`directories`), programs (`programs`), model and keys (`models`), jobs (`jobs`). Described in
//! `docs/reference/doctor.md`.
//! Invariant: the checks leave no files behind (`doctor_makes_nothing`) and never show a key
//! (`doctor_says_where_a_key_is_and_not_what_it_is`).

mod directories;
mod jobs;
mod kernel;
mod models;
mod programs;
mod sandbox;

use std::time::Instant;

use clap::Args;
use serde_json::{Value, json};

use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

/// Check this machine and suggest fixes
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {}

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    name: String,
    state: FindingState,
    text: String,
    /// The fix, or why none is needed.
    hint: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FindingState {
    Good,
    /// A better setup is possible; everything works.
    Note,
    /// Something required is missing.
    Problem,
}

impl Finding {
    fn good(name: &str, text: impl Into<String>) -> Finding {
        Finding { name: name.to_owned(), state: FindingState::Good, text: text.into(), hint: None }
    }

    fn note(name: &str, text: impl Into<String>, hint: impl Into<String>) -> Finding {
        let hint = Some(hint.into());
        Finding { name: name.to_owned(), state: FindingState::Note, text: text.into(), hint }
    }

    fn problem(name: &str, text: impl Into<String>, hint: impl Into<String>) -> Finding {
        Finding { state: FindingState::Problem, ..Finding::note(name, text, hint) }
    }

    fn to_lines(&self, width: usize) -> String {
        let state = match self.state {
            FindingState::Good => "ok",
            FindingState::Note => "note",
            FindingState::Problem => "FIX",
        };
        let mut lines = format!("{state:<5} {:<width$}  {}", self.name, self.text);
        for line in self.hint.iter().flat_map(|hint| hint.lines()) {
            lines.push_str(&format!("\n      {:<width$}  -> {line}", ""));
        }
        lines
    }

    fn to_json(&self) -> Value {
        json!({ "what": self.name, "why": self.text, "do": self.hint })
    }
}

/// Results of one group of checks, as findings and as JSON.
struct Inspection {
    findings: Vec<Finding>,
    value: Value,
}

/// Returns the report as lines, for the terminal UI.
pub(crate) fn report_lines(context: &CliContext) -> Result<Vec<String>, CliError> {
    let started = Instant::now();
    let paths = context.find_paths()?;
    let (model, providers) = models::inspect_models(&paths, context);
    let inspections = [
        sandbox::inspect_sandbox(&paths.runtime),
        programs::inspect_programs(context),
        directories::inspect_directories(&paths, context),
        model,
        providers,
        jobs::inspect_jobs(&paths, context),
    ];
    let findings: Vec<&Finding> = inspections.iter().flat_map(|inspection| &inspection.findings).collect();
    let width = name_width(&findings);
    let mut lines =
        vec![summary_line(&filter_by_state(&findings, FindingState::Problem), started), String::new()];
    for finding in findings {
        lines.extend(finding.to_lines(width).lines().map(str::to_owned));
    }
    Ok(lines)
}

fn name_width(findings: &[&Finding]) -> usize {
    findings.iter().map(|finding| finding.name.chars().count()).max().unwrap_or(0)
}

fn summary_line(problems: &[&Finding], started: Instant) -> String {
    let took = started.elapsed().as_millis();
    match problems {
        [] => format!("everything required is available ({took} ms)"),
        [one] => format!("{} needs a fix ({took} ms)", one.name),
        many => format!("{} findings need a fix ({took} ms)", many.len()),
    }
}

pub(crate) fn run(_: &DoctorArgs, context: &CliContext, output: &CliOutput) -> Result<ExitKind, CliError> {
    let started = Instant::now();
    let paths = context.find_paths()?;
    let sandbox = sandbox::inspect_sandbox(&paths.runtime);
    let programs = programs::inspect_programs(context);
    let places = directories::inspect_directories(&paths, context);
    let (model, providers) = models::inspect_models(&paths, context);
    let jobs = jobs::inspect_jobs(&paths, context);
    let inspections = [&sandbox, &programs, &places, &model, &providers, &jobs];
    let findings: Vec<&Finding> = inspections.iter().flat_map(|inspection| &inspection.findings).collect();
    let problems: Vec<&Finding> = filter_by_state(&findings, FindingState::Problem);
    let done = if problems.is_empty() { ExitKind::Success } else { ExitKind::Failed };
    if output.json {
        let json = |some: &[&Finding]| some.iter().map(|finding| finding.to_json()).collect::<Value>();
        output.print_json(&json!({
            "ok": problems.is_empty(),
            "version": env!("CARGO_PKG_VERSION"),
            "sandbox": sandbox.value,
            "programs": programs.value,
            "directories": places.value,
            "model": model.value,
            "providers": providers.value,
            "jobs_due": jobs.value,
            "notes": json(&filter_by_state(&findings, FindingState::Note)),
            "problems": json(&problems),
            "took_ms": u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        }))?;
        return Ok(done);
    }
    let width = name_width(&findings);
    findings.iter().try_for_each(|finding| output.print_line(&finding.to_lines(width)))?;
    output.print_note(&summary_line(&problems, started));
    Ok(done)
}

fn filter_by_state<'a>(findings: &[&'a Finding], state: FindingState) -> Vec<&'a Finding> {
    findings.iter().filter(|finding| finding.state == state).copied().collect()
}
