//! Jobs that are due while no host runs.

use std::path::Path;

use minke_host::{Owed, owed, running};
use minke_registry::Paths;
use serde_json::{Value, json};

use super::{Finding, Looked};
use crate::around::Surroundings;

/// How many are named to a person.
const NAMED: usize = 3;

/// Nothing is made here: where there are no sessions there are no jobs.
pub(super) fn look(paths: &Paths, around: &Surroundings) -> Looked {
    let nothing = Looked { findings: Vec::new(), value: json!([]) };
    if running(paths).is_some() || !Path::new(&paths.sessions()).exists() {
        return nothing;
    }
    // That the places cannot be had is said where they are looked at.
    let Ok(home) = around.home() else { return nothing };
    match owed(&home).map_err(|fault| fault.message) {
        Ok(due) if due.is_empty() => nothing,
        Ok(due) => {
            let names: Vec<&str> = due.iter().take(NAMED).map(|job| job.name.as_str()).collect();
            let more = if due.len() > NAMED { ", …" } else { "" };
            let text = format!("{} due and no host runs: {}{more}", due.len(), names.join(", "));
            let hint = "`minke host --ensure` starts one; the next `minke job` or `minke ps` does, too";
            let value = due.iter().map(object).collect();
            Looked { findings: vec![Finding::note("jobs", text, hint)], value }
        }
        Err(why) => {
            let hint = "`minke index rebuild` makes the index anew";
            let findings = vec![Finding::problem("jobs", format!("cannot be looked at: {why}"), hint)];
            Looked { findings, value: Value::Null }
        }
    }
}

fn object(due: &Owed) -> Value {
    json!({ "id": format!("s_{}", due.session), "name": due.name, "status": due.state, "since": due.since / 1_000 })
}
