//! How answers about threads look to a person: lines instead of objects.
//!
//! Elsewhere: the answers (`host`), who asks for them (`thread`).

use minke_thread::{Thread, ThreadStatus};
use serde_json::Value;

use crate::around::now;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

pub(crate) fn list(answer: &Value, screen: &Screen) -> Result<(), Failure> {
    let threads: Vec<Thread> = serde_json::from_value(answer["threads"].clone())
        .map_err(|e| Failure::new(Exit::Failed, "the list cannot be read").why(e))?;
    if threads.is_empty() {
        screen.note("no thread is like that; `minke exec \"…\"` begins one");
    }
    for thread in &threads {
        screen.line(&line(thread))?;
    }
    if let Some(next) = answer["data"]["next_cursor"].as_str() {
        screen.note(&format!("more: `--cursor {next}`"));
    }
    Ok(())
}

/// `idle         5m  tale            fix the parser`
fn line(thread: &Thread) -> String {
    let seconds = (now() / 1_000).saturating_sub(thread.updated_at);
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
        if thread.damaged.is_some() { "damaged" } else { word(thread.status) },
        thread.preview
    )
}

fn word(status: ThreadStatus) -> &'static str {
    match status {
        ThreadStatus::Running => "running",
        ThreadStatus::Waiting => "waiting",
        ThreadStatus::Paused => "paused",
        ThreadStatus::Interrupted => "interrupted",
        ThreadStatus::Idle => "idle",
    }
}

/// Every member on a line.
pub(crate) fn thread(thread: &Value, screen: &Screen) -> Result<(), Failure> {
    // In the order of the specification, which an object read from JSON no longer has.
    let thread: Thread = serde_json::from_value(thread.clone())
        .map_err(|e| Failure::new(Exit::Failed, "the thread cannot be read").why(e))?;
    let value = serde_json::to_value(&thread)
        .map_err(|e| Failure::new(Exit::Failed, "a thread cannot be written as JSON").why(e))?;
    for (key, value) in value.as_object().into_iter().flatten() {
        let shown = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        screen.line(&format!("{key:<15} {shown}"))?;
    }
    Ok(())
}

pub(crate) fn history(rows: &Value, screen: &Screen) -> Result<(), Failure> {
    for row in rows.as_array().into_iter().flatten() {
        let text = |key: &str| row[key].as_str().unwrap_or_default();
        screen.line(&format!("{:<9} {}", text("role"), text("content").trim_end()))?;
    }
    Ok(())
}

pub(crate) fn hits(hits: &Value, screen: &Screen) -> Result<(), Failure> {
    let hits = hits.as_array().map(Vec::as_slice).unwrap_or_default();
    if hits.is_empty() {
        screen.note("nobody said that");
    }
    for hit in hits {
        let text = |key: &str| hit[key].as_str().unwrap_or_default();
        screen.line(&format!(
            "{}  {:<9} {}",
            text("thread_id"),
            text("role"),
            text("snippet").replace('\n', " ")
        ))?;
    }
    Ok(())
}

pub(crate) fn checkpoint(point: &Value, screen: &Screen) -> Result<(), Failure> {
    match point["checkpoint_id"].as_str() {
        Some(id) => screen.line(&format!("{id}  {}", point["state"])),
        None => {
            screen.note("nothing was said yet");
            Ok(())
        }
    }
}
