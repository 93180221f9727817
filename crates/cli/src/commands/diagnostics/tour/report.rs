//! End of the tour: verifies the logs, prints tree, costs and diffs, and the result of every claim.
//!
//! Elsewhere: the claims and their checks (`checks`).

use std::fs;

use minke_client::UserHome;
use minke_pod::State;
use minke_record::Kind;
use serde_json::json;

use super::checks::{ClaimChecker, TourClaim};
use super::logs::TourLogs;
use super::printer::TourPrinter;
use super::scenario::{TourRecord, session_id};
use super::workspace::{FORBIDDEN_FILES, RETURNED_FILE, TourWorkspace, WORKSPACE_FILES, diff_lines, sha256};
use crate::error::{CliError, ExitKind};

pub(super) async fn check_claims(
    record: &TourRecord,
    home: &UserHome,
    workspace: &TourWorkspace,
    mut printer: TourPrinter,
) -> Result<ExitKind, CliError> {
    let logs = TourLogs::load(home)?;
    let verified = verify_logs(home, &logs, &mut printer).await?;
    print_tree(&logs, &mut printer).await?;
    let changed = print_changed_files(workspace, &mut printer).await?;
    let checker = ClaimChecker { record, home, workspace, logs: &logs };
    let mut claims = checker.check_all(&changed)?;
    claims.push(verified);
    for claim in &claims {
        let facts = json!({ "claim": claim.name, "held": claim.holds, "evidence": claim.evidence });
        let sign = if claim.holds { "✓" } else { "✗" };
        printer
            .print_event(
                "claim",
                facts,
                &format!("{sign} {}: {}", claim.name.replace('_', " "), claim.evidence),
            )
            .await?;
    }
    let failed: Vec<&TourClaim> = claims.iter().filter(|claim| !claim.holds).collect();
    let ms = printer.elapsed_ms();
    let facts = json!({ "ok": failed.is_empty(), "claims": claims.len(), "sessions": logs.sessions.len() });
    let seconds = format!("{}.{} s", ms / 1_000, ms % 1_000 / 100);
    let line = match failed.len() {
        0 => format!("\nAll {} claims held, in {seconds}.", claims.len()),
        n => format!("\n{n} of {} claims did not hold.", claims.len()),
    };
    printer.print_event("done", facts, &line).await?;
    if failed.is_empty() {
        return Ok(ExitKind::Success);
    }
    let names: Vec<&str> = failed.iter().map(|claim| claim.name).collect();
    let failure = CliError::new(
        ExitKind::Failed,
        format!("some claims of this tour do not hold: {}", names.join(", ")),
    );
    let failure = failed
        .iter()
        .fold(failure, |failure, claim| failure.with_reason(format!("{}: {}", claim.name, claim.evidence)));
    Err(failure
        .with_hint("`minke tour --watch --keep` prints every step and keeps the logs; please report it"))
}

/// Verifies numbers, hash chain, blobs and the invariants of runs and calls in every log.
async fn verify_logs(
    home: &UserHome,
    logs: &TourLogs,
    printer: &mut TourPrinter,
) -> Result<TourClaim, CliError> {
    let mut problems = Vec::new();
    let mut count = 0;
    for (session, entries) in &logs.sessions {
        let verdict = crate::commands::sessions::log::check_session(home.store.as_ref(), *session);
        let head = entries.last().map(|entry| entry.h.to_string());
        let ok = verdict.problems.is_empty();
        let facts = json!({
            "session": session_id(*session),
            "entries": verdict.entries,
            "head": head,
            "ok": ok,
            "problems": verdict.problems,
        });
        let word = if ok { "ok" } else { "BAD" };
        let line = format!(
            "log verify {} {word}, {} entries, head {}",
            session_id(*session),
            verdict.entries,
            short_hash(head.as_deref())
        );
        printer.print_event("verified", facts, &line).await?;
        problems.extend(verdict.problems);
        count += verdict.entries;
    }
    let holds = problems.is_empty() && !logs.sessions.is_empty();
    let evidence = match problems.first() {
        None => format!("{} logs with {count} entries", logs.sessions.len()),
        Some(first) => first.clone(),
    };
    Ok(TourClaim { name: "logs_verify", holds, evidence })
}

fn short_hash(hash: Option<&str>) -> String {
    hash.map(|hash| hash.chars().take(12).collect()).unwrap_or_default()
}

/// Prints the pods and their usage.
async fn print_tree(logs: &TourLogs, printer: &mut TourPrinter) -> Result<(), CliError> {
    let mut pods = Vec::new();
    let mut lines = Vec::new();
    for (session, entries) in &logs.sessions {
        let state = State::replay(entries);
        let Some(about) = &state.facts.about else { continue };
        let usage = &state.facts.usage;
        let name = state.facts.name.as_ref().map(ToString::to_string).unwrap_or_default();
        let parent = about.parent.as_ref().map(|parent| parent.session);
        let last = entries.iter().rev().find_map(|entry| match &entry.kind {
            Kind::RunCompleted(end) => Some(&end.result),
            _ => None,
        });
        pods.push(json!({
            "pod": name,
            "session": session_id(*session),
            "parent": parent.map(session_id),
            "usage": usage,
            "below": state.facts.children_spent,
            "last_result": last,
        }));
        let branch = if parent.is_some() { "├─ " } else { "" };
        lines.push(format!(
            "{:<12}{:>3} requests {:>7} tokens  ${:.4}",
            format!("{branch}{name}"),
            usage.calls,
            usage.input + usage.output,
            usage.cost_usd,
        ));
    }
    printer.print_event("tree", json!({ "pods": pods }), &format!("\n{}", lines.join("\n"))).await
}

/// Prints the changed files of the workspace with their diffs.
async fn print_changed_files(
    workspace: &TourWorkspace,
    teller: &mut TourPrinter,
) -> Result<Vec<String>, CliError> {
    let mut changed = Vec::new();
    let names = WORKSPACE_FILES.iter().map(|(name, _)| *name).chain(FORBIDDEN_FILES).chain([RETURNED_FILE]);
    for name in names {
        let before = WORKSPACE_FILES.iter().find(|(file, _)| *file == name).map(|(_, text)| *text);
        let after = match fs::read_to_string(workspace.file_path(name)) {
            Ok(text) => Some(text),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            Err(e) => {
                return Err(CliError::new(
                    ExitKind::Storage,
                    format!("could not read {name} of the workspace"),
                )
                .with_reason(e));
            }
        };
        if before == after.as_deref() {
            continue;
        }
        let lines = diff_lines(before.unwrap_or_default(), after.as_deref().unwrap_or_default());
        let hash = |text: Option<&str>| text.map(|text| sha256(text.as_bytes().to_vec()));
        let facts = json!({
            "path": workspace.file_path(name),
            "before": hash(before),
            "sha256": hash(after.as_deref()),
            "diff": lines,
        });
        teller.print_event("file", facts, &format!("\n{name}\n{}", lines.join("\n"))).await?;
        changed.push(name.to_owned());
    }
    Ok(changed)
}
