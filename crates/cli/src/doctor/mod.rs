//! `minke doctor`: what this machine gives to pods, what is missing, and what to do about it.
//!
//! Here: what a finding is, and how findings are shown. Elsewhere: fences and what the kernel offers (`fences`,
//! `kernel`), directories (`places`), programs (`programs`), the model and keys (`models`), jobs (`jobs`). Described in
//! `docs/reference/doctor.md`.
//! Invariant: it looks and tries, and leaves nothing behind (`doctor_makes_nothing`); it never shows a key
//! (`doctor_says_where_a_key_is_and_not_what_it_is`).

mod fences;
mod jobs;
mod kernel;
mod models;
mod places;
mod programs;

use std::time::Instant;

use clap::Args;
use serde_json::{Value, json};

use crate::around::Surroundings;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

#[derive(Debug, Args)]
pub(crate) struct Doctor {}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    name: String,
    state: State,
    text: String,
    /// What to do, or why nothing need be done.
    hint: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Good,
    /// Less than there could be; everything works.
    Note,
    /// Something that is needed is missing.
    Problem,
}

impl Finding {
    fn good(name: &str, text: impl Into<String>) -> Finding {
        Finding { name: name.to_owned(), state: State::Good, text: text.into(), hint: None }
    }

    fn note(name: &str, text: impl Into<String>, hint: impl Into<String>) -> Finding {
        let hint = Some(hint.into());
        Finding { name: name.to_owned(), state: State::Note, text: text.into(), hint }
    }

    fn problem(name: &str, text: impl Into<String>, hint: impl Into<String>) -> Finding {
        Finding { state: State::Problem, ..Finding::note(name, text, hint) }
    }

    fn lines(&self, width: usize) -> String {
        let state = match self.state {
            State::Good => "ok",
            State::Note => "note",
            State::Problem => "FIX",
        };
        let mut lines = format!("{state:<5} {:<width$}  {}", self.name, self.text);
        for line in self.hint.iter().flat_map(|hint| hint.lines()) {
            lines.push_str(&format!("\n      {:<width$}  -> {line}", ""));
        }
        lines
    }

    fn json(&self) -> Value {
        json!({ "what": self.name, "why": self.text, "do": self.hint })
    }
}

/// What one look gave: for people, and for programs.
struct Looked {
    findings: Vec<Finding>,
    value: Value,
}

/// The same as lines, for whoever shows them.
pub(crate) fn lines(around: &Surroundings) -> Result<Vec<String>, Failure> {
    let began = Instant::now();
    let paths = around.paths()?;
    let (model, providers) = models::look(&paths, around);
    let looks = [
        fences::look(&paths.runtime),
        programs::look(around),
        places::look(&paths, around),
        model,
        providers,
        jobs::look(&paths, around),
    ];
    let findings: Vec<&Finding> = looks.iter().flat_map(|look| &look.findings).collect();
    let width = width(&findings);
    let mut lines = vec![closing(&of(&findings, State::Problem), began), String::new()];
    for finding in findings {
        lines.extend(finding.lines(width).lines().map(str::to_owned));
    }
    Ok(lines)
}

fn width(findings: &[&Finding]) -> usize {
    findings.iter().map(|finding| finding.name.chars().count()).max().unwrap_or(0)
}

fn closing(problems: &[&Finding], began: Instant) -> String {
    let took = began.elapsed().as_millis();
    match problems {
        [] => format!("everything that is needed is there ({took} ms)"),
        [one] => format!("{} must be put right ({took} ms)", one.name),
        many => format!("{} things must be put right ({took} ms)", many.len()),
    }
}

pub(crate) fn run(_: &Doctor, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let began = Instant::now();
    let paths = around.paths()?;
    let sandbox = fences::look(&paths.runtime);
    let programs = programs::look(around);
    let places = places::look(&paths, around);
    let (model, providers) = models::look(&paths, around);
    let jobs = jobs::look(&paths, around);
    let looks = [&sandbox, &programs, &places, &model, &providers, &jobs];
    let findings: Vec<&Finding> = looks.iter().flat_map(|look| &look.findings).collect();
    let problems: Vec<&Finding> = of(&findings, State::Problem);
    let done = if problems.is_empty() { Exit::Done } else { Exit::Failed };
    if screen.json {
        let json = |some: &[&Finding]| some.iter().map(|finding| finding.json()).collect::<Value>();
        screen.object(&json!({
            "ok": problems.is_empty(),
            "version": env!("CARGO_PKG_VERSION"),
            "sandbox": sandbox.value,
            "programs": programs.value,
            "directories": places.value,
            "model": model.value,
            "providers": providers.value,
            "jobs_due": jobs.value,
            "notes": json(&of(&findings, State::Note)),
            "problems": json(&problems),
            "took_ms": u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        }))?;
        return Ok(done);
    }
    let width = width(&findings);
    findings.iter().try_for_each(|finding| screen.line(&finding.lines(width)))?;
    screen.note(&closing(&problems, began));
    Ok(done)
}

fn of<'a>(findings: &[&'a Finding], state: State) -> Vec<&'a Finding> {
    findings.iter().filter(|finding| finding.state == state).copied().collect()
}
