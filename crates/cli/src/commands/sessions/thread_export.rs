//! `minke thread export`: exports a full conversation in the format of Minke, Claude Code or Codex, or as
//! Markdown.
//!
//! An export may be given to other people: known keys and text that looks like a key are redacted in every
//! format (`an_export_holds_no_key_and_overwrites_nothing`).
//! Elsewhere: the formats (`exchange`), the log byte for byte (`log::export`).

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use minke_exchange::{
    ConversationInfo, FileFormat, PortableConversation, TimedItem, normalize_conversation, to_markdown,
};
use minke_host::FullConversation;
use minke_llm::{ResolveContext, build_key_redactor};
use minke_record::{Item, Text};
use serde_json::{Value, json};

use crate::commands::sessions::thread_import::{describe_omissions, format_values};
use crate::engine_client::EngineClient;
use crate::error::{CliError, ExitKind};
use crate::output::{escape_json, sanitize_text};

#[derive(Debug, Args)]
pub(crate) struct ThreadExportArgs {
    /// Name of a pod, or id or id prefix of a session
    name: String,
    /// Output format
    #[arg(long, default_value = OWN_FORMAT, value_parser = format_values(&[MARKDOWN_FORMAT]))]
    format: String,
    /// Write to this new file instead of stdout
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite an existing file
    #[arg(long, requires = "output")]
    force: bool,
}

/// Text for users.
const MARKDOWN_FORMAT: &str = "markdown";
/// Minke's format: every item unchanged, images included.
const OWN_FORMAT: &str = "minke";

pub(crate) async fn run(client: &EngineClient<'_>, export: &ThreadExportArgs) -> Result<ExitKind, CliError> {
    let whole = client.read_conversation(&client.resolve_thread(&export.name)?).await?;
    let problems = whole.warnings.clone();
    let id = whole.thread.id.clone();
    let (mut conversation, left) = normalize_conversation(to_conversation(whole));
    let masked = mask_conversation(&mut conversation, client)?;
    let text = match FileFormat::from_name(&export.format) {
        Some(format) => escape_json(&minke_exchange::write_file(&conversation, format).0).into_owned(),
        // The Markdown may be printed on a terminal.
        None => sanitize_text(&to_markdown(&conversation)).into_owned(),
    };
    let output = client.output;
    match &export.output {
        None => output.print_text(&text)?,
        Some(path) => {
            let path = client.context.env.cwd.join(path);
            write_file(&path, &text, export.force)?;
            if output.json {
                let omissions: Vec<Value> =
                    left.iter().map(|left| json!({ "what": left.what, "count": left.count })).collect();
                output.print_json(&json!({
                    "thread_id": id, "file": path, "items": conversation.items.len(), "masked": masked, "left": omissions,
                }))?;
            }
            output.print_note(&format!(
                "{} items of {id} are in {}",
                conversation.items.len(),
                path.display()
            ));
        }
    }
    if masked > 0 {
        output.print_warning(&format!("redacted a key, or text that looks like one, in {masked} texts"));
    }
    if !left.is_empty() {
        output.print_note(&format!("omitted or changed: {}", describe_omissions(&left)));
    }
    for trouble in &problems {
        output.print_warning(trouble);
    }
    Ok(if problems.is_empty() { ExitKind::Success } else { ExitKind::Failed })
}

fn to_conversation(whole: FullConversation) -> PortableConversation {
    let FullConversation { thread, items, blobs, .. } = whole;
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    let info = ConversationInfo {
        session: some(thread.id.trim_start_matches("s_").to_owned()),
        title: thread.name,
        cwd: some(thread.cwd),
        branch: thread.git.and_then(|git| git.branch),
        model: some(thread.model),
        version: some(thread.cli_version),
        began: Some(thread.created_at.saturating_mul(1_000)),
        ended: Some(thread.updated_at.saturating_mul(1_000)),
    };
    let said = items.into_iter().map(|(item, at)| TimedItem { item, at: Some(at) }).collect();
    PortableConversation { info, items: said, blobs }
}

/// Redacts every text. Returns the number of changed texts.
fn mask_conversation(
    conversation: &mut PortableConversation,
    client: &EngineClient<'_>,
) -> Result<u64, CliError> {
    let cover = build_key_redactor(ResolveContext::for_process(
        &client.context.env.cwd,
        Some(client.context.find_paths()?.config),
    ));
    let mut count = 0;
    let mut mask = |text: &mut String| -> Result<(), CliError> {
        let before = text.len();
        let mut new = minke_secrets::mask_keys(text).into_owned();
        cover.redact(&mut [&mut new]).map_err(|e| {
            CliError::usage("nothing was exported, because the text could not be checked for keys")
                .with_reason(e)
        })?;
        if new.len() != before || new != *text {
            count += 1;
            *text = new;
        }
        Ok(())
    };
    for TimedItem { item, .. } in &mut conversation.items {
        for_each_text(item, &mut mask)?;
    }
    let about = &mut conversation.info;
    for word in [&mut about.title, &mut about.cwd, &mut about.branch, &mut about.model].into_iter().flatten()
    {
        mask(word)?;
    }
    Ok(count)
}

/// Calls `visit` for every text of an item, summaries included. Visits strings of arguments one by one, so
/// that they stay JSON.
pub(crate) fn for_each_text(
    item: &mut Item,
    visit: &mut dyn FnMut(&mut String) -> Result<(), CliError>,
) -> Result<(), CliError> {
    if let Item::ToolCall { arguments: Text::Inline(arguments), .. } = item {
        return match serde_json::from_str::<Value>(arguments) {
            Ok(mut value) => {
                let whole = value.clone();
                for_each_string(&mut value, visit)?;
                if value != whole {
                    *arguments = value.to_string();
                }
                Ok(())
            }
            Err(_) => visit(arguments),
        };
    }
    let mut failed = Ok(());
    item.visit_texts_mut(&mut |text| {
        if let (Text::Inline(text), true) = (text, failed.is_ok()) {
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

fn for_each_string(
    value: &mut Value,
    visit: &mut dyn FnMut(&mut String) -> Result<(), CliError>,
) -> Result<(), CliError> {
    match value {
        Value::String(text) => visit(text),
        Value::Array(parts) => parts.iter_mut().try_for_each(|part| for_each_string(part, visit)),
        Value::Object(fields) => fields.iter_mut().try_for_each(|(_, field)| for_each_string(field, visit)),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

/// Writes a file that only its owner can read, completely or not at all.
fn write_file(path: &Path, text: &str, force: bool) -> Result<(), CliError> {
    if !force && path.symlink_metadata().is_ok() {
        return Err(CliError::new(ExitKind::Storage, format!("{} already exists", path.display()))
            .with_hint("choose another file, or overwrite this one with --force"));
    }
    let failed = |e: std::io::Error| {
        CliError::new(ExitKind::Storage, format!("could not write {}", path.display()))
            .with_reason(e)
            .with_hint("choose a writable directory with free space")
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let beside = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(&beside).map_err(failed)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    let placed =
        written.and_then(|()| if force { std::fs::rename(&beside, path) } else { link_file(&beside, path) });
    // Fails after a rename, because the file has moved.
    drop(std::fs::remove_file(&beside));
    placed.map_err(failed)
}

/// Links the file to its final name. Unlike a rename, this cannot replace a file that was created meanwhile.
/// On a file system without links it falls back to a rename.
fn link_file(from: &Path, to: &Path) -> std::io::Result<()> {
    match std::fs::hard_link(from, to) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists && to.symlink_metadata().is_err() => {
            std::fs::rename(from, to)
        }
        linked => linked,
    }
}
