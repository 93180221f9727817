//! `minke thread export`: a whole conversation as a file of ours, of Claude Code or of Codex, or as Markdown for people.
//!
//! An export goes to strangers: known keys and what looks like one are masked in every format
//! (`an_export_holds_no_key_and_overwrites_nothing`).
//! Elsewhere: the formats (`exchange`), the log byte for byte (`log::export`).

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use minke_exchange::{About, Conversation, Format, Said, give, markdown, settle};
use minke_host::Whole;
use minke_llm::{Around, Cover};
use minke_record::{Item, Text};
use minke_secrets::mask_shapes;
use serde_json::{Value, json};

use crate::asking::Asking;
use crate::failure::{Exit, Failure};
use crate::screen::{clean, escape_json};
use crate::thread_import::{formats, left_out};

#[derive(Debug, Args)]
pub(crate) struct Export {
    /// The thread: a pod's name, a session's id or its beginning
    name: String,
    /// What to write: a file of that program, or text for people
    #[arg(long, default_value = OWN, value_parser = formats(&[MARKDOWN]))]
    format: String,
    /// Where to (default: stdout); a file that is there is not overwritten
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite a file that is there
    #[arg(long, requires = "output")]
    force: bool,
}

/// For people.
const MARKDOWN: &str = "markdown";
/// Our own form: every item as it is, images included.
const OWN: &str = "minke";

pub(crate) async fn run(desk: &Asking<'_>, export: &Export) -> Result<Exit, Failure> {
    let whole = desk.whole(&desk.meant(&export.name)?).await?;
    let trouble = whole.trouble.clone();
    let id = whole.thread.id.clone();
    let (mut conversation, left) = settle(conversation(whole));
    let masked = masked(&mut conversation, desk)?;
    let text = match Format::of(&export.format) {
        Some(format) => escape_json(&give(&conversation, format).0).into_owned(),
        // People may print the file on a terminal.
        None => clean(&markdown(&conversation)).into_owned(),
    };
    let screen = desk.screen;
    match &export.output {
        None => screen.out(&text)?,
        Some(path) => {
            let path = desk.around.cwd.join(path);
            write(&path, &text, export.force)?;
            if screen.json {
                let told: Vec<Value> =
                    left.iter().map(|left| json!({ "what": left.what, "count": left.count })).collect();
                screen.object(&json!({
                    "thread_id": id, "file": path, "items": conversation.said.len(), "masked": masked, "left": told,
                }))?;
            }
            screen.note(&format!("{} items of {id} are in {}", conversation.said.len(), path.display()));
        }
    }
    if masked > 0 {
        screen.warn(&format!("{masked} texts held a key or what looks like one, which is masked"));
    }
    if !left.is_empty() {
        screen.note(&format!("left out or changed: {}", left_out(&left)));
    }
    for trouble in &trouble {
        screen.warn(trouble);
    }
    Ok(if trouble.is_empty() { Exit::Done } else { Exit::Failed })
}

fn conversation(whole: Whole) -> Conversation {
    let Whole { thread, items, blobs, .. } = whole;
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    let about = About {
        session: some(thread.id.trim_start_matches("s_").to_owned()),
        title: thread.name,
        cwd: some(thread.cwd),
        branch: thread.git.and_then(|git| git.branch),
        model: some(thread.model),
        version: some(thread.cli_version),
        began: Some(thread.created_at.saturating_mul(1_000)),
        ended: Some(thread.updated_at.saturating_mul(1_000)),
    };
    let said = items.into_iter().map(|(item, at)| Said { item, at: Some(at) }).collect();
    Conversation { about, said, blobs }
}

/// Masks every text, and gives in how many something was masked.
fn masked(conversation: &mut Conversation, desk: &Asking<'_>) -> Result<u64, Failure> {
    let cover = Cover::new(Around::here(&desk.around.cwd, Some(desk.around.paths()?.config)));
    let mut count = 0;
    let mut mask = |text: &mut String| -> Result<(), Failure> {
        let before = text.len();
        let mut new = mask_shapes(text).into_owned();
        cover.hide(&mut [&mut new]).map_err(|e| {
            Failure::usage("nothing was exported, since keys could not be looked for in it").why(e)
        })?;
        if new.len() != before || new != *text {
            count += 1;
            *text = new;
        }
        Ok(())
    };
    for Said { item, .. } in &mut conversation.said {
        each_text(item, &mut mask)?;
    }
    let about = &mut conversation.about;
    for word in [&mut about.title, &mut about.cwd, &mut about.branch, &mut about.model].into_iter().flatten()
    {
        mask(word)?;
    }
    Ok(count)
}

/// Visits every text of an item, summaries included. Arguments are visited string by string, so that they stay JSON.
pub(crate) fn each_text(
    item: &mut Item,
    visit: &mut dyn FnMut(&mut String) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if let Item::ToolCall { arguments: Text::Here(arguments), .. } = item {
        return match serde_json::from_str::<Value>(arguments) {
            Ok(mut value) => {
                let whole = value.clone();
                each_string(&mut value, visit)?;
                if value != whole {
                    *arguments = value.to_string();
                }
                Ok(())
            }
            Err(_) => visit(arguments),
        };
    }
    let mut failed = Ok(());
    item.texts_mut(&mut |text| {
        if let (Text::Here(text), true) = (text, failed.is_ok()) {
            failed = visit(text);
        }
    });
    failed?;
    match item {
        Item::ToolResult { summary, .. } => visit(summary),
        Item::Reasoning { summary, .. } => summary.iter_mut().try_for_each(&mut *visit),
        Item::Message { .. } | Item::ToolCall { .. } | Item::Unknown => Ok(()),
    }
}

fn each_string(
    value: &mut Value,
    visit: &mut dyn FnMut(&mut String) -> Result<(), Failure>,
) -> Result<(), Failure> {
    match value {
        Value::String(text) => visit(text),
        Value::Array(parts) => parts.iter_mut().try_for_each(|part| each_string(part, visit)),
        Value::Object(fields) => fields.iter_mut().try_for_each(|(_, field)| each_string(field, visit)),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

/// Writes a file that only its owner reads, whole or not at all.
fn write(path: &Path, text: &str, force: bool) -> Result<(), Failure> {
    if !force && path.symlink_metadata().is_ok() {
        return Err(Failure::new(Exit::Storage, format!("{} is there already", path.display()))
            .hint("choose a file that is not there yet, or overwrite it with --force"));
    }
    let failed = |e: std::io::Error| {
        Failure::new(Exit::Storage, format!("cannot write {}", path.display()))
            .why(e)
            .hint("choose a place that can be written to and has room")
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let beside = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(&beside).map_err(failed)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    let placed =
        written.and_then(|()| if force { std::fs::rename(&beside, path) } else { put(&beside, path) });
    // After a rename there is nothing left to remove.
    drop(std::fs::remove_file(&beside));
    placed.map_err(failed)
}

/// A link, unlike a new name, does not take the place of a file that has come meanwhile. Where a disk has no links, there is
/// a moment in which it would.
fn put(from: &Path, to: &Path) -> std::io::Result<()> {
    match std::fs::hard_link(from, to) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists && to.symlink_metadata().is_err() => {
            std::fs::rename(from, to)
        }
        linked => linked,
    }
}
