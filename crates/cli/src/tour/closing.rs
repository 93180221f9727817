//! The end of the tour: logs are verified, tree, costs and diffs shown, and every claim told with whether it held.
//!
//! Elsewhere: what is claimed and how it is looked for (`claims`).

use std::fs;

use minke_client::Home;
use minke_pod::State;
use minke_record::Kind;
use serde_json::json;

use super::claims::{Claim, Judge};
use super::guide::{Witness, id};
use super::logs::Logs;
use super::place::{AFTERWARDS, FILES, FORBIDDEN, Place, diff, sha256};
use super::teller::Teller;
use crate::failure::{Exit, Failure};

pub(super) async fn check(
    witness: &Witness,
    home: &Home,
    place: &Place,
    mut teller: Teller,
) -> Result<Exit, Failure> {
    let logs = Logs::read(home)?;
    let verified = verify(home, &logs, &mut teller).await?;
    tree(&logs, &mut teller).await?;
    let changed = files(place, &mut teller).await?;
    let judge = Judge { witness, home, place, logs: &logs };
    let mut claims = judge.all(&changed)?;
    claims.push(verified);
    for claim in &claims {
        let facts = json!({ "claim": claim.name, "held": claim.held, "evidence": claim.evidence });
        let sign = if claim.held { "✓" } else { "✗" };
        teller
            .say("claim", facts, &format!("{sign} {}: {}", claim.name.replace('_', " "), claim.evidence))
            .await?;
    }
    let failed: Vec<&Claim> = claims.iter().filter(|claim| !claim.held).collect();
    let ms = teller.ms();
    let facts = json!({ "ok": failed.is_empty(), "claims": claims.len(), "sessions": logs.sessions.len() });
    let seconds = format!("{}.{} s", ms / 1_000, ms % 1_000 / 100);
    let line = match failed.len() {
        0 => format!("\nAll {} claims held, in {seconds}.", claims.len()),
        n => format!("\n{n} of {} claims did not hold.", claims.len()),
    };
    teller.say("done", facts, &line).await?;
    if failed.is_empty() {
        return Ok(Exit::Done);
    }
    let names: Vec<&str> = failed.iter().map(|claim| claim.name).collect();
    let failure =
        Failure::new(Exit::Failed, format!("not everything in this tour is true: {}", names.join(", ")));
    let failure = failed
        .iter()
        .fold(failure, |failure, claim| failure.why(format!("{}: {}", claim.name, claim.evidence)));
    Err(failure.hint("`minke tour --watch --keep` shows every step and leaves the logs; please report it"))
}

/// Every log, its numbers, chain, blobs and the invariants of runs and calls.
async fn verify(home: &Home, logs: &Logs, teller: &mut Teller) -> Result<Claim, Failure> {
    let mut problems = Vec::new();
    let mut count = 0;
    for (session, entries) in &logs.sessions {
        let verdict = crate::log::check(home.store.as_ref(), *session);
        let head = entries.last().map(|entry| entry.h.to_string());
        let ok = verdict.problems.is_empty();
        let facts = json!({
            "session": id(*session),
            "entries": verdict.entries,
            "head": head,
            "ok": ok,
            "problems": verdict.problems,
        });
        let word = if ok { "ok" } else { "BAD" };
        let line = format!(
            "log verify {} {word}, {} entries, head {}",
            id(*session),
            verdict.entries,
            short(head.as_deref())
        );
        teller.say("verified", facts, &line).await?;
        problems.extend(verdict.problems);
        count += verdict.entries;
    }
    let held = problems.is_empty() && !logs.sessions.is_empty();
    let evidence = match problems.first() {
        None => format!("{} logs with {count} entries", logs.sessions.len()),
        Some(first) => first.clone(),
    };
    Ok(Claim { name: "logs_verify", held, evidence })
}

fn short(hash: Option<&str>) -> String {
    hash.map(|hash| hash.chars().take(12).collect()).unwrap_or_default()
}

/// Who was there, and what each has used.
async fn tree(logs: &Logs, teller: &mut Teller) -> Result<(), Failure> {
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
            "session": id(*session),
            "parent": parent.map(id),
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
    teller.say("tree", json!({ "pods": pods }), &format!("\n{}", lines.join("\n"))).await
}

/// Files of the workspace that are not as they were, with what differs.
async fn files(place: &Place, teller: &mut Teller) -> Result<Vec<String>, Failure> {
    let mut changed = Vec::new();
    let names = FILES.iter().map(|(name, _)| *name).chain(FORBIDDEN).chain([AFTERWARDS]);
    for name in names {
        let before = FILES.iter().find(|(file, _)| *file == name).map(|(_, text)| *text);
        let after = match fs::read_to_string(place.path(name)) {
            Ok(text) => Some(text),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            Err(e) => {
                return Err(
                    Failure::new(Exit::Storage, format!("cannot read {name} of the workspace")).why(e)
                );
            }
        };
        if before == after.as_deref() {
            continue;
        }
        let lines = diff(before.unwrap_or_default(), after.as_deref().unwrap_or_default());
        let hash = |text: Option<&str>| text.map(|text| sha256(text.as_bytes().to_vec()));
        let facts = json!({
            "path": place.path(name),
            "before": hash(before),
            "sha256": hash(after.as_deref()),
            "diff": lines,
        });
        teller.say("file", facts, &format!("\n{name}\n{}", lines.join("\n"))).await?;
        changed.push(name.to_owned());
    }
    Ok(changed)
}
