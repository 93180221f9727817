//! `minke thread import`: a session file of Claude Code, Codex or Minke becomes a thread that goes on here.
//!
//! Here: reading the file within bounds, keys and images in it, whether it was imported before. Elsewhere: the formats
//! (`exchange`), making the thread (`host`), what comes along and what does not (`docs/guide/import.md`).
//! Invariant: nothing is made of a file that is refused, and none twice unless it is wished
//! (`a_file_is_imported_once_unless_it_is_wished_again`).

use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::PossibleValuesParser;
use minke_exchange::{About, Conversation, FILE_BYTES, Format, Left, Refused, Said, Taken, spill, take};
use minke_host::NewThread;
use minke_llm::{Around, Cover};
use minke_record::{Actor, Blob, Kind, PodName, SessionId};
use minke_registry::Runtime;
use minke_secrets::shape;
use minke_tools::{Sight, look_at};
use serde_json::{Value, json};

use crate::asking::Asking;
use crate::failure::{Exit, Failure};
use crate::thread_export::each_text;
use crate::thread_found;

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// The session file; `-` reads it from stdin
    #[arg(value_name = "FILE", required_unless_present = "list")]
    file: Option<PathBuf>,
    /// List the session files in a directory, or without one in the usual places, and import nothing
    #[arg(long)]
    list: bool,
    /// Whose file it is; `auto` tells by what it holds
    #[arg(long, default_value = AUTO, value_parser = formats(&[AUTO]), hide_default_value = true)]
    format: String,
    /// The thread's name (default: made from the conversation's title)
    #[arg(long)]
    name: Option<String>,
    /// The directory to work in (default: this one, wherever the conversation was begun)
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// PROVIDER/MODEL that goes on with it
    #[arg(long)]
    model: Option<String>,
    #[arg(long)]
    profile: Option<String>,
    /// Make another thread of a file that was imported before
    #[arg(long)]
    again: bool,
}

/// Not said: it is told by what the file holds.
const AUTO: &str = "auto";

/// The words for formats, and others.
pub(crate) fn formats(others: &[&'static str]) -> PossibleValuesParser {
    let words = Format::ALL.map(Format::as_str);
    PossibleValuesParser::new(words.iter().chain(others).copied())
}

pub(crate) async fn run(desk: &Asking<'_>, import: &Import) -> Result<Exit, Failure> {
    let path = match &import.file {
        Some(path) if !import.list => path,
        place => {
            let place = place.as_ref().map(|place| desk.around.cwd.join(place));
            return thread_found::list(place.as_deref(), desk.screen);
        }
    };
    let file = read(path, desk)?;
    let mut taken = take(&file.content, Format::of(&import.format)).map_err(|refused| not(path, &refused))?;
    if !import.again {
        new_here(desk, &file, &taken)?;
    }
    let trouble = cleaned(&mut taken, desk)?;
    let origin = origin(&taken, &file);
    let Taken { format, mut conversation, left } = taken;
    let mut blobs = spill(&mut conversation.said);
    blobs.extend(std::mem::take(&mut conversation.blobs).into_values().map(Blob::new));
    let cwd = import.cwd.as_ref().map_or_else(|| desk.around.cwd.clone(), |cwd| desk.around.cwd.join(cwd));
    let items = conversation.said.len();
    let new = NewThread {
        name: match &import.name {
            Some(name) => Some(name.clone()),
            None => free_name(&conversation.about, desk)?,
        },
        model: import.model.clone(),
        profile: import.profile.clone(),
        metadata: Some(json!({ "import": origin })),
        history: conversation.said.into_iter().map(|Said { item, .. }| item).collect(),
        blobs,
        cwd: Some(cwd.clone()),
        ..NewThread::default()
    };
    let mut answer = desk.engine.import(new, &Actor::person("cli")).await?;
    let told: Vec<Value> =
        left.iter().map(|left| json!({ "what": left.what, "count": left.count })).collect();
    answer["import"] = json!({ "format": format.as_str(), "items": items, "left": told });
    for trouble in &trouble {
        desk.screen.warn(trouble);
    }
    desk.tell(&answer, |answer| {
        let id = answer["thread_id"].as_str().unwrap_or_default();
        desk.screen.line(id)?;
        desk.screen.note(&format!("{items} items of a {} session are in it", format.program()));
        if !left.is_empty() {
            desk.screen.note(&format!("left out or changed: {}", left_out(&left)));
        }
        if let Some(there) = conversation.about.cwd.as_deref().filter(|there| Path::new(there) != cwd) {
            desk.screen.note(&format!("it was begun in {there}; this thread works in {}", cwd.display()));
        }
        desk.screen.note(&format!("`minke thread message {id} \"…\"` goes on with it"));
        Ok(())
    })
}

/// What did not come along, in one line.
pub(crate) fn left_out(left: &[Left]) -> String {
    let told: Vec<String> = left.iter().map(|left| format!("{} × {}", left.count, left.what)).collect();
    told.join("; ")
}

/// The bytes of a file, and the hash that they are known by.
fn read(path: &Path, desk: &Asking<'_>) -> Result<Blob, Failure> {
    let path = if path.as_os_str() == "-" { path.to_owned() } else { desk.around.cwd.join(path) };
    let failed = |e: std::io::Error| Failure::usage(format!("cannot read {}", path.display())).why(e);
    let mut bytes = Vec::new();
    // One more than is taken, which says that there is more.
    let most = FILE_BYTES + 1;
    if path.as_os_str() == "-" {
        std::io::stdin().lock().take(most).read_to_end(&mut bytes).map_err(failed)?;
    } else {
        if path.is_dir() {
            return Err(failed(std::io::ErrorKind::IsADirectory.into())
                .hint("name one session file in it; --list lists them"));
        }
        let file = std::fs::File::open(&path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        if length > FILE_BYTES {
            return Err(not(&path, &Refused::TooLarge { bytes: length }));
        }
        file.take(most).read_to_end(&mut bytes).map_err(failed)?;
    }
    Ok(Blob::new(bytes))
}

fn not(path: &Path, refused: &Refused) -> Failure {
    let hint = match refused {
        Refused::TooLarge { .. } => "leave out what is not needed of it, such as images",
        Refused::Strange { .. } => {
            "Claude Code keeps them in ~/.claude/projects, Codex in ~/.codex/sessions; `minke thread export` writes one"
        }
        Refused::Other { .. } => "leave out --format",
        Refused::Log => "`minke thread export` writes what can be imported",
        Refused::Empty { .. } => "choose the file of a session in which something was said",
    };
    Failure::usage(format!("{} cannot be imported", path.display())).why(refused).hint(hint)
}

/// Where a conversation comes from, as its thread keeps it.
fn origin(taken: &Taken, file: &Blob) -> Value {
    let About { session, title, cwd, branch, model, version, began, ended } = &taken.conversation.about;
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

/// Refuses a file that a thread was made of already.
fn new_here(desk: &Asking<'_>, file: &Blob, taken: &Taken) -> Result<(), Failure> {
    let home = desk.around.home()?;
    let session = taken.conversation.about.session.as_deref();
    let same = |origin: &Value| origin["sha256"] == file.name.blob.as_str();
    let earlier = |origin: &Value| {
        session.is_some_and(|session| origin["session"] == session)
            && origin["format"] == taken.format.as_str()
    };
    let mut before: Option<(SessionId, bool)> = None;
    for id in home.store.list()? {
        let Some(origin) = imported(&home, id) else { continue };
        if same(&origin) || (earlier(&origin) && before.is_none()) {
            before = Some((id, same(&origin)));
        }
    }
    let Some((id, same)) = before else { return Ok(()) };
    let what = if same { "this file" } else { "an earlier state of this session" };
    Err(Failure::usage(format!("{what} was imported before"))
        .code("conflict")
        .why(format!("thread s_{id} was made of it"))
        .hint(format!("`minke thread message s_{id} \"…\"` goes on there; --again makes another thread")))
}

/// Where the conversation of a session was imported from. One that cannot be read was not.
fn imported(home: &minke_client::Home, id: SessionId) -> Option<Value> {
    let reader = home.store.reader(id).ok()?;
    let mut origin = None;
    let first = &mut |sealed: minke_session::Sealed| {
        if let Kind::SessionStart(start) = sealed.entry.kind {
            origin = start.metadata.and_then(|metadata| metadata.get("import").cloned());
        }
        ControlFlow::Break(())
    };
    reader.scan(0, first).ok()?;
    origin
}

/// A name made from the title, unless a live pod has it.
fn free_name(about: &About, desk: &Asking<'_>) -> Result<Option<String>, Failure> {
    let Some(title) = &about.title else { return Ok(None) };
    let name = PodName::from_any(title);
    let taken = Runtime::new(&desk.around.home()?.paths).live_named(&name)?.is_some();
    Ok((!taken).then(|| name.as_str().to_owned()))
}

/// Takes known keys out of the texts and looks at every image; gives what the person should know.
fn cleaned(taken: &mut Taken, desk: &Asking<'_>) -> Result<Vec<String>, Failure> {
    let Taken { conversation, .. } = taken;
    let cover = Cover::new(Around::here(&desk.around.cwd, Some(desk.around.paths()?.config)));
    let unlooked =
        |e| Failure::usage("nothing was imported, since keys could not be looked for in it").why(e);
    let (mut hidden, mut shaped) = (0u64, 0u64);
    let mut hide = |text: &mut String| -> Result<(), Failure> {
        let before = text.clone();
        cover.hide(&mut [text]).map_err(unlooked)?;
        hidden += u64::from(*text != before);
        shaped += u64::from(shape(text).is_some());
        Ok(())
    };
    let Conversation { about, said, .. } = conversation;
    said.iter_mut().try_for_each(|said| each_text(&mut said.item, &mut hide))?;
    for word in [&mut about.title, &mut about.cwd, &mut about.branch, &mut about.model].into_iter().flatten()
    {
        hide(word)?;
    }
    let broken = conversation.look_at_images(&mut |bytes| {
        if cover.is_in(&bytes).map_err(|e| e.to_string())? {
            return Err("it holds a secret".to_owned());
        }
        match look_at(bytes)? {
            Sight::Image { image, .. } => Ok((image.media_type, image.bytes)),
            Sight::Text { .. } | Sight::Binary(_) => Err("it is no image".to_owned()),
        }
    });
    let mut told = Vec::new();
    if hidden > 0 {
        told.push(format!("{hidden} texts held a known key; `[secret …]` stands in its place"));
    }
    if shaped > 0 {
        told.push(format!("{shaped} texts look as if they held a key; they go to the model with the rest"));
    }
    if broken > 0 {
        told.push(format!("{broken} images are broken and left out"));
    }
    Ok(told)
}
