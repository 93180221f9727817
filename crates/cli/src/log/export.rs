//! `minke log export`: the log's own lines, which `log verify` and `sha256sum` can check, or the conversation as
//! Markdown for people.
//!
//! An export goes to strangers. What looks like a key is masked in Markdown; the log's own lines stay as they are, and
//! the person is told which of them to look at (`what_looks_like_a_key_is_masked_or_told`). Markdown is for people, who may
//! print the file on a terminal, so it is clean as the screen is.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use minke_client::Home;
use minke_record::{Entry, Item, Kind, Role, SessionId};
use minke_secrets::{mask_shapes, shape};
use minke_session::ScanEnd;

use crate::around::Surroundings;
use crate::exec::json::message_text;
use crate::failure::{Exit, Failure};
use crate::log::{chosen, each_entry};
use crate::screen::{Screen, clean};
use crate::transcript::said;

#[derive(Debug, Args)]
pub(crate) struct Export {
    /// A live pod's name, a session's id, or a name that a session had (default: the newest session)
    session: Option<String>,
    /// What to write
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Where to (default: stdout); a file that is there is not overwritten
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// The lines of the log, byte for byte
    #[default]
    Jsonl,
    /// The conversation
    Markdown,
}

pub(crate) fn run(export: &Export, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let home = around.home()?;
    let session = chosen(&home, export.session.as_deref())?;
    let to = match &export.output {
        None => To::Screen(screen),
        Some(path) => To::file(around.cwd.join(path))?,
    };
    let suspect = give(&home, session, export.format, to)?;
    suspect.words().iter().for_each(|words| screen.warn(words));
    Ok(Exit::Done)
}

/// Writes a session to a file that is not there yet, in the form that its ending says; gives what to know of it.
pub(crate) fn to_file(home: &Home, session: SessionId, path: &Path) -> Result<Option<String>, Failure> {
    let format = match path.extension().and_then(|ending| ending.to_str()) {
        Some("md" | "markdown") => Format::Markdown,
        Some("jsonl") => Format::Jsonl,
        _ => {
            return Err(Failure::usage(format!("the ending of {} says no format", path.display()))
                .hint("`.md` is the conversation for people, `.jsonl` the log as it stands"));
        }
    };
    Ok(give(home, session, format, To::file(path.to_owned())?)?.words())
}

fn give(home: &Home, session: SessionId, format: Format, mut to: To<'_>) -> Result<Suspects, Failure> {
    let reader = home.store.reader(session)?;
    let mut suspect = Suspects::default();
    let end = each_entry(&*reader, 0, |sealed| {
        let text = match format {
            Format::Jsonl => {
                suspect.look(sealed.entry.seq, &sealed.line);
                Some(format!("{}\n", sealed.line))
            }
            Format::Markdown => markdown(&sealed.entry).map(|text| clean(&mask_shapes(&text)).into_owned()),
        };
        text.map_or(Ok(()), |text| to.write(&text))
    })?;
    to.end()?;
    match end {
        ScanEnd::Clean { .. } | ScanEnd::Stopped => Ok(suspect),
        ScanEnd::Damaged(damage) => {
            let failure = Failure::new(Exit::Failed, &damage).code("damaged").hint(format!(
                "what stands before it was exported; `minke log repair {session}` shows the rest"
            ));
            Err(match suspect.words() {
                Some(words) => failure.why(words),
                None => failure,
            })
        }
    }
}

/// Entries that look as if they held a key.
#[derive(Default)]
struct Suspects {
    first: Vec<u64>,
    count: usize,
}

impl Suspects {
    /// So many are told by their numbers.
    const TOLD: usize = 10;

    fn look(&mut self, seq: u64, line: &str) {
        if shape(line).is_some() {
            self.count += 1;
            if self.first.len() < Suspects::TOLD {
                self.first.push(seq);
            }
        }
    }

    fn words(&self) -> Option<String> {
        let numbers: Vec<String> = self.first.iter().map(ToString::to_string).collect();
        let more = if self.count > self.first.len() { ", …" } else { "" };
        (self.count > 0).then(|| {
            format!(
                "{} of these entries look as if they held a key ({}{more}): look before you pass them on",
                self.count,
                numbers.join(", ")
            )
        })
    }
}

enum To<'a> {
    Screen(&'a Screen),
    File(std::io::BufWriter<std::fs::File>, PathBuf),
}

impl To<'_> {
    /// A file that is not there yet.
    fn file(path: PathBuf) -> Result<To<'static>, Failure> {
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let file = file.map_err(|e| {
            Failure::new(Exit::Storage, format!("cannot write {}", path.display()))
                .why(e)
                .hint("choose a file that is not there yet")
        })?;
        Ok(To::File(std::io::BufWriter::new(file), path))
    }

    fn write(&mut self, text: &str) -> Result<(), Failure> {
        match self {
            To::Screen(screen) => screen.json_bytes(text),
            To::File(file, path) => file.write_all(text.as_bytes()).map_err(|e| unwritten(path, e)),
        }
    }

    fn end(self) -> Result<(), Failure> {
        match self {
            To::Screen(_) => Ok(()),
            To::File(mut file, path) => {
                file.flush().and_then(|()| file.get_ref().sync_all()).map_err(|e| unwritten(&path, e))
            }
        }
    }
}

fn unwritten(path: &std::path::Path, error: std::io::Error) -> Failure {
    Failure::new(Exit::Storage, format!("cannot write {}", path.display()))
        .why(error)
        .hint("make room on that disk")
}

/// An entry's part of the conversation, if it has one.
fn markdown(entry: &Entry) -> Option<String> {
    match &entry.kind {
        Kind::SessionStart(e) => Some(format!("# {} (s_{})\n\nin `{}`\n\n", e.name, e.session, e.cwd)),
        Kind::UserInput(e) => Some(format!("## Person\n\n{}\n\n", said(&e.segments))),
        Kind::AssistantItem(e) => match &e.item {
            Item::Message { role: Role::Assistant, content } => {
                Some(format!("## Model\n\n{}\n\n", message_text(content)))
            }
            Item::ToolCall { name, arguments, .. } => Some(format!("**{name}** `{}`\n\n", arguments.show())),
            _ => None,
        },
        Kind::ToolResult(e) => match &e.item {
            Item::ToolResult { summary, .. } => Some(format!("→ {}: {summary}\n\n", e.outcome)),
            _ => None,
        },
        Kind::RunErrored(e) => Some(format!("*run failed: {}: {}*\n\n", e.code, e.message)),
        _ => None,
    }
}
