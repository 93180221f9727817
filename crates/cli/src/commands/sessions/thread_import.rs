//! `minke thread import`: creates a thread from a session file of Claude Code, Codex or Minke.
//!
//! Here: reading the file up to a size limit, redacting keys, checking images, detecting repeated imports.
//! Elsewhere: the formats (`exchange`), creating the thread (`host`), the supported content
//! (`docs/guide/import.md`).
//! Invariant: a refused file creates no thread, and no file is imported twice unless requested
//! (`a_file_is_imported_once_unless_it_is_wished_again`).

use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::PossibleValuesParser;
use minke_exchange::{
    ConversationInfo, FileFormat, ImportError, ImportedFile, MAX_FILE_BYTES, OmittedPart,
    PortableConversation, TimedItem, spill_texts,
};
use minke_host::NewThread;
use minke_llm::{ResolveContext, build_key_redactor};
use minke_record::{Actor, Blob, Kind, PodName, SessionId};
use minke_registry::RuntimeDir;
use minke_secrets::first_kind_in;
use minke_tools::{FileContent, classify_content};
use serde_json::{Value, json};

use crate::commands::sessions::thread_export::for_each_text;
use crate::commands::sessions::thread_import_list;
use crate::engine_client::EngineClient;
use crate::error::{CliError, ExitKind};

#[derive(Debug, Args)]
pub(crate) struct ThreadImportArgs {
    /// The session file; `-` reads it from stdin
    #[arg(value_name = "FILE", required_unless_present = "list")]
    file: Option<PathBuf>,
    /// List session files in a directory or the usual ones; import nothing
    #[arg(long)]
    list: bool,
    /// Format of the file (default: detect it)
    #[arg(long, default_value = AUTO_FORMAT, value_parser = format_values(&[AUTO_FORMAT]), hide_default_value = true)]
    format: String,
    /// Name of the thread (default: from the conversation's title)
    #[arg(long)]
    name: Option<String>,
    /// Working directory (default: this one)
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Model of the thread, as PROVIDER/MODEL
    #[arg(long)]
    model: Option<String>,
    /// Profile: NAME, `builtin:NAME`, `user:NAME`, `project:NAME` or PATH
    #[arg(long, value_name = "SELECTOR")]
    profile: Option<String>,
    /// Import a file again that was imported before
    #[arg(long)]
    again: bool,
}

/// Detects the format from the content.
const AUTO_FORMAT: &str = "auto";

/// Returns the values of `--format`: all formats and some others.
pub(crate) fn format_values(others: &[&'static str]) -> PossibleValuesParser {
    let words = FileFormat::ALL_FORMATS.map(FileFormat::as_str);
    PossibleValuesParser::new(words.iter().chain(others).copied())
}

pub(crate) async fn run(client: &EngineClient<'_>, import: &ThreadImportArgs) -> Result<ExitKind, CliError> {
    let path = match &import.file {
        Some(path) if !import.list => path,
        place => {
            let place = place.as_ref().map(|place| client.context.env.cwd.join(place));
            return thread_import_list::list_session_files(place.as_deref(), client.output);
        }
    };
    let file = read_file(path, client)?;
    let mut taken = minke_exchange::read_file(&file.content, FileFormat::from_name(&import.format))
        .map_err(|refused| import_error(path, &refused))?;
    if !import.again {
        check_not_imported(client, &file, &taken)?;
    }
    let problems = redact_and_check(&mut taken, client)?;
    let origin = origin_json(&taken, &file);
    let ImportedFile { format, mut conversation, omissions } = taken;
    let mut blobs = spill_texts(&mut conversation.items);
    blobs.extend(std::mem::take(&mut conversation.blobs).into_values().map(Blob::new));
    let cwd = import
        .cwd
        .as_ref()
        .map_or_else(|| client.context.env.cwd.clone(), |cwd| client.context.env.cwd.join(cwd));
    let items = conversation.items.len();
    let new = NewThread {
        name: match &import.name {
            Some(name) => Some(name.clone()),
            None => name_from_title(&conversation.info, client)?,
        },
        model: import.model.clone(),
        profile: import.profile.clone(),
        metadata: Some(json!({ "import": origin })),
        history: conversation.items.into_iter().map(|TimedItem { item, .. }| item).collect(),
        blobs,
        cwd: Some(cwd.clone()),
        ..NewThread::default()
    };
    let mut answer = client.engine.import_thread(new, &Actor::from_person("cli")).await?;
    let notes: Vec<Value> =
        omissions.iter().map(|left| json!({ "what": left.what, "count": left.count })).collect();
    answer["import"] = json!({ "format": format.as_str(), "items": items, "left": notes });
    for trouble in &problems {
        client.output.print_warning(trouble);
    }
    client.print_answer(&answer, |answer| {
        let id = answer["thread_id"].as_str().unwrap_or_default();
        client.output.print_line(id)?;
        client.output.print_note(&format!("{items} items of a {} session are in it", format.program()));
        if !omissions.is_empty() {
            client.output.print_note(&format!("omitted or changed: {}", describe_omissions(&omissions)));
        }
        if let Some(there) = conversation.info.cwd.as_deref().filter(|there| Path::new(there) != cwd) {
            client
                .output
                .print_note(&format!("it was started in {there}; this thread works in {}", cwd.display()));
        }
        client.output.print_note(&format!("`minke thread message {id} \"…\"` continues it"));
        Ok(())
    })
}

/// Lists omitted and changed content on one line.
pub(crate) fn describe_omissions(left: &[OmittedPart]) -> String {
    let notes: Vec<String> = left.iter().map(|left| format!("{} × {}", left.count, left.what)).collect();
    notes.join("; ")
}

/// Reads a file as a blob with its hash.
fn read_file(path: &Path, client: &EngineClient<'_>) -> Result<Blob, CliError> {
    let path = if path.as_os_str() == "-" { path.to_owned() } else { client.context.env.cwd.join(path) };
    let failed =
        |e: std::io::Error| CliError::usage(format!("could not read {}", path.display())).with_reason(e);
    let mut bytes = Vec::new();
    // One byte more than the limit, to detect a longer file.
    let most = MAX_FILE_BYTES + 1;
    if path.as_os_str() == "-" {
        std::io::stdin().lock().take(most).read_to_end(&mut bytes).map_err(failed)?;
    } else {
        if path.is_dir() {
            return Err(failed(std::io::ErrorKind::IsADirectory.into())
                .with_hint("name one session file in it; --list lists them"));
        }
        let file = std::fs::File::open(&path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        if length > MAX_FILE_BYTES {
            return Err(import_error(&path, &ImportError::TooLarge { bytes: length }));
        }
        file.take(most).read_to_end(&mut bytes).map_err(failed)?;
    }
    Ok(Blob::new(bytes))
}

fn import_error(path: &Path, refused: &ImportError) -> CliError {
    let hint = match refused {
        ImportError::TooLarge { .. } => "remove unneeded content, such as images",
        ImportError::UnknownFormat { .. } => {
            "Claude Code keeps them in ~/.claude/projects, Codex in ~/.codex/sessions; `minke thread export` writes one"
        }
        ImportError::WrongFormat { .. } => "omit --format",
        ImportError::SessionLog => "`minke thread export` writes a file that can be imported",
        ImportError::NoConversation { .. } => "choose the file of a session with messages",
    };
    CliError::usage(format!("could not import {}", path.display())).with_reason(refused).with_hint(hint)
}

/// Returns the origin of a conversation, as stored with its thread.
fn origin_json(taken: &ImportedFile, file: &Blob) -> Value {
    let ConversationInfo { session, title, cwd, branch, model, version, began, ended } =
        &taken.conversation.info;
    let mut origin = json!({
        "format": taken.format.as_str(),
        "sha256": file.name.blob,
        "session": session,
        "title": title,
        "cwd": cwd,
        "branch": branch,
        "model": model,
        "version": version,
        "began": began,
        "ended": ended,
    });
    if let Some(origin) = origin.as_object_mut() {
        origin.retain(|_, value| !value.is_null());
    }
    origin
}

/// Refuses a file that was imported before.
fn check_not_imported(client: &EngineClient<'_>, file: &Blob, taken: &ImportedFile) -> Result<(), CliError> {
    let home = client.context.open_home()?;
    let session = taken.conversation.info.session.as_deref();
    let same = |origin: &Value| origin["sha256"] == file.name.blob.as_str();
    let earlier = |origin: &Value| {
        session.is_some_and(|session| origin["session"] == session)
            && origin["format"] == taken.format.as_str()
    };
    let mut before: Option<(SessionId, bool)> = None;
    for id in home.store.list_sessions()? {
        let Some(origin) = import_origin(&home, id) else { continue };
        if same(&origin) || (earlier(&origin) && before.is_none()) {
            before = Some((id, same(&origin)));
        }
    }
    let Some((id, same)) = before else { return Ok(()) };
    let what = if same { "this file" } else { "an earlier state of this session" };
    Err(CliError::usage(format!("{what} was imported before"))
        .with_code("conflict")
        .with_reason(format!("thread s_{id} was created from it"))
        .with_hint(format!(
            "`minke thread message s_{id} \"…\"` continues it; --again creates another thread"
        )))
}

/// Returns the origin of an imported session. An unreadable session counts as not imported.
fn import_origin(home: &minke_client::UserHome, id: SessionId) -> Option<Value> {
    let reader = home.store.open_reader(id).ok()?;
    let mut origin = None;
    let first = &mut |sealed: minke_session::SealedEntry| {
        if let Kind::SessionStart(start) = sealed.entry.kind {
            origin = start.metadata.and_then(|metadata| metadata.get("import").cloned());
        }
        ControlFlow::Break(())
    };
    reader.scan_entries(0, first).ok()?;
    origin
}

/// Returns a name made from the title, unless a live pod has it.
fn name_from_title(about: &ConversationInfo, client: &EngineClient<'_>) -> Result<Option<String>, CliError> {
    let Some(title) = &about.title else { return Ok(None) };
    let name = PodName::from_text(title);
    let taken = RuntimeDir::new(&client.context.open_home()?.paths).live_pod_named(&name)?.is_some();
    Ok((!taken).then(|| name.as_str().to_owned()))
}

/// Redacts known keys in the texts and checks every image. Returns warnings for the user.
fn redact_and_check(taken: &mut ImportedFile, client: &EngineClient<'_>) -> Result<Vec<String>, CliError> {
    let ImportedFile { conversation, .. } = taken;
    let cover = build_key_redactor(ResolveContext::for_process(
        &client.context.env.cwd,
        Some(client.context.find_paths()?.config),
    ));
    let unlooked = |e| {
        CliError::usage("nothing was imported, because the text could not be checked for keys").with_reason(e)
    };
    let (mut hidden, mut shaped) = (0u64, 0u64);
    let mut hide = |text: &mut String| -> Result<(), CliError> {
        let before = text.clone();
        cover.redact(&mut [text]).map_err(unlooked)?;
        hidden += u64::from(*text != before);
        shaped += u64::from(first_kind_in(text).is_some());
        Ok(())
    };
    let PortableConversation { info, items, .. } = conversation;
    items.iter_mut().try_for_each(|said| for_each_text(&mut said.item, &mut hide))?;
    for word in [&mut info.title, &mut info.cwd, &mut info.branch, &mut info.model].into_iter().flatten() {
        hide(word)?;
    }
    let broken = conversation.convert_images(&mut |bytes| {
        if cover.contains_key(&bytes).map_err(|e| e.to_string())? {
            return Err("it contains a secret".to_owned());
        }
        match classify_content(bytes)? {
            FileContent::Image { image, .. } => Ok((image.media_type, image.bytes)),
            FileContent::Text { .. } | FileContent::Binary(_) => Err("it is not an image".to_owned()),
        }
    });
    let mut notes = Vec::new();
    if hidden > 0 {
        notes.push(format!("{hidden} texts contained a known key, replaced by `[secret …]`"));
    }
    if shaped > 0 {
        notes.push(format!("{shaped} texts may contain a key; they are sent to the model with the rest"));
    }
    if broken > 0 {
        notes.push(format!("{broken} images are broken and omitted"));
    }
    Ok(notes)
}
