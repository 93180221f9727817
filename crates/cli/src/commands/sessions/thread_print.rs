//! Prints answers about threads as lines.
//!
//! Elsewhere: the answers (`host`), the commands (`thread`).

use minke_thread::{ThreadObject, ThreadStatus};
use serde_json::Value;

use crate::context::now_millis;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

pub(crate) fn print_threads(answer: &Value, output: &CliOutput) -> Result<(), CliError> {
    let threads: Vec<ThreadObject> = serde_json::from_value(answer["threads"].clone())
        .map_err(|e| CliError::new(ExitKind::Failed, "could not read the list").with_reason(e))?;
    if threads.is_empty() {
        output.print_note("no matching threads; `minke exec \"…\"` starts one");
    }
    for thread in &threads {
        output.print_line(&thread_line(thread))?;
    }
    if let Some(next) = answer["data"]["next_cursor"].as_str() {
        output.print_note(&format!("more: `--cursor {next}`"));
    }
    Ok(())
}

/// `idle         5m  tale            fix the parser`
fn thread_line(thread: &ThreadObject) -> String {
    let seconds = (now_millis() / 1_000).saturating_sub(thread.updated_at);
    let age = match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    };
    let away = if thread.archived { " (archived)" } else { "" };
    let name = thread.name.as_deref().unwrap_or(&thread.id);
    format!(
        "{:<11} {age:>5}  {name:<20} {}{away}",
        if thread.damaged.is_some() { "damaged" } else { status_word(thread.status) },
        thread.preview
    )
}

fn status_word(status: ThreadStatus) -> &'static str {
    match status {
        ThreadStatus::Running => "running",
        ThreadStatus::Waiting => "waiting",
        ThreadStatus::Paused => "paused",
        ThreadStatus::Interrupted => "interrupted",
        ThreadStatus::Idle => "idle",
    }
}

/// Prints every member on a line.
pub(crate) fn print_thread(thread: &Value, output: &CliOutput) -> Result<(), CliError> {
    // In the documented order, which an object read from JSON does not keep.
    let thread: ThreadObject = serde_json::from_value(thread.clone())
        .map_err(|e| CliError::new(ExitKind::Failed, "could not read the thread").with_reason(e))?;
    let value = serde_json::to_value(&thread)
        .map_err(|e| CliError::new(ExitKind::Failed, "could not write a thread as JSON").with_reason(e))?;
    for (key, value) in value.as_object().into_iter().flatten() {
        let shown = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        output.print_line(&format!("{key:<15} {shown}"))?;
    }
    Ok(())
}

pub(crate) fn print_history(rows: &Value, screen: &CliOutput) -> Result<(), CliError> {
    for row in rows.as_array().into_iter().flatten() {
        let text = |key: &str| row[key].as_str().unwrap_or_default();
        screen.print_line(&format!("{:<9} {}", text("role"), text("content").trim_end()))?;
    }
    Ok(())
}

pub(crate) fn print_hits(hits: &Value, output: &CliOutput) -> Result<(), CliError> {
    let hits = hits.as_array().map(Vec::as_slice).unwrap_or_default();
    if hits.is_empty() {
        output.print_note("no matches");
    }
    for hit in hits {
        let text = |key: &str| hit[key].as_str().unwrap_or_default();
        output.print_line(&format!(
            "{}  {:<9} {}",
            text("thread_id"),
            text("role"),
            text("snippet").replace('\n', " ")
        ))?;
    }
    Ok(())
}

pub(crate) fn print_checkpoint(point: &Value, output: &CliOutput) -> Result<(), CliError> {
    match point["checkpoint_id"].as_str() {
        Some(id) => output.print_line(&format!("{id}  {}", point["state"])),
        None => {
            output.print_note("the thread has no messages yet");
            Ok(())
        }
    }
}
