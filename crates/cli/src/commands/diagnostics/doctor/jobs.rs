//! Jobs that are due while no host runs.

use std::path::Path;

use minke_host::{PendingJob, find_running, pending_jobs};
use minke_registry::UserPaths;
use serde_json::{Value, json};

use super::{Finding, Inspection};
use crate::context::CliContext;

/// How many jobs are named.
const MAX_NAMED: usize = 3;

/// Creates nothing: without a sessions directory there are no jobs.
pub(super) fn inspect_jobs(paths: &UserPaths, context: &CliContext) -> Inspection {
    let nothing = Inspection { findings: Vec::new(), value: json!([]) };
    if find_running(paths).is_some() || !Path::new(&paths.sessions_dir()).exists() {
        return nothing;
    }
    // The directory checks report a home that cannot be opened.
    let Ok(home) = context.open_home() else { return nothing };
    match pending_jobs(&home).map_err(|fault| fault.message) {
        Ok(due) if due.is_empty() => nothing,
        Ok(due) => {
            let names: Vec<&str> = due.iter().take(MAX_NAMED).map(|job| job.name.as_str()).collect();
            let more = if due.len() > MAX_NAMED { ", …" } else { "" };
            let text = format!("{} due and no host runs: {}{more}", due.len(), names.join(", "));
            let hint = "`minke host --ensure` starts one; so does the next `minke job` or `minke ps`";
            let value = due.iter().map(job_json).collect();
            Inspection { findings: vec![Finding::note("jobs", text, hint)], value }
        }
        Err(why) => {
            let hint = "`minke index rebuild` rebuilds the index";
            let findings = vec![Finding::problem("jobs", format!("could not read the jobs: {why}"), hint)];
            Inspection { findings, value: Value::Null }
        }
    }
}

fn job_json(due: &PendingJob) -> Value {
    json!({ "id": format!("s_{}", due.session), "name": due.name, "status": due.state, "since": due.since / 1_000 })
}
