//! `minke log export`: the lines of the log, which `log verify` and `sha256sum` can check, or the
//! conversation as Markdown.
//!
//! An export may be given to other people. Markdown redacts everything that looks like a key. The lines of
//! the log stay unchanged, and the user is warned about suspect ones
//! (`what_looks_like_a_key_is_masked_or_told`). Markdown is sanitized like terminal output, because it may be
//! printed on a terminal.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use minke_client::UserHome;
use minke_record::{Entry, Item, Kind, Role, SessionId};
use minke_secrets::{first_kind_in, mask_keys};
use minke_session::ScanEnd;

use crate::commands::run::exec::json::message_text;
use crate::commands::sessions::log::{for_each_entry, resolve_session};
use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::output::{CliOutput, sanitize_text};
use crate::render::transcript::input_text;

#[derive(Debug, Args)]
pub(crate) struct LogExportArgs {
    /// Name of a live pod, or id or name of a session (default: the newest)
    session: Option<String>,
    /// Format to write
    #[arg(long, value_enum, default_value_t)]
    format: LogExportFormat,
    /// Write to this new file instead of stdout
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum LogExportFormat {
    // The lines of the log, byte for byte.
    #[default]
    Jsonl,
    // The conversation.
    Markdown,
}

pub(crate) fn run(
    export: &LogExportArgs,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let home = context.open_home()?;
    let session = resolve_session(&home, export.session.as_deref())?;
    let target = match &export.output {
        None => ExportTarget::Stdout(output),
        Some(path) => ExportTarget::create_file(context.env.cwd.join(path))?,
    };
    let suspects = write_export(&home, session, export.format, target)?;
    suspects.warning().iter().for_each(|words| output.print_warning(words));
    Ok(ExitKind::Success)
}

/// Writes a session to a new file, in the format of its extension. Returns a warning about possible keys.
pub(crate) fn export_to_file(
    home: &UserHome,
    session: SessionId,
    path: &Path,
) -> Result<Option<String>, CliError> {
    let format = match path.extension().and_then(|ending| ending.to_str()) {
        Some("md" | "markdown") => LogExportFormat::Markdown,
        Some("jsonl") => LogExportFormat::Jsonl,
        _ => {
            return Err(CliError::usage(format!("cannot infer the format from `{}`", path.display()))
                .with_hint("`.md` is the conversation as Markdown, `.jsonl` the lines of the log"));
        }
    };
    Ok(write_export(home, session, format, ExportTarget::create_file(path.to_owned())?)?.warning())
}

fn write_export(
    home: &UserHome,
    session: SessionId,
    format: LogExportFormat,
    mut target: ExportTarget<'_>,
) -> Result<SuspectedKeys, CliError> {
    let reader = home.store.open_reader(session)?;
    let mut suspects = SuspectedKeys::default();
    let end = for_each_entry(&*reader, 0, |sealed| {
        let text = match format {
            LogExportFormat::Jsonl => {
                suspects.check_line(sealed.entry.seq, &sealed.line);
                Some(format!("{}\n", sealed.line))
            }
            LogExportFormat::Markdown => {
                entry_markdown(&sealed.entry).map(|text| sanitize_text(&mask_keys(&text)).into_owned())
            }
        };
        text.map_or(Ok(()), |text| target.write_text(&text))
    })?;
    target.finish()?;
    match end {
        ScanEnd::Clean { .. } | ScanEnd::Stopped => Ok(suspects),
        ScanEnd::Damaged(damage) => {
            let failure = CliError::new(ExitKind::Failed, &damage).with_code("damaged").with_hint(format!(
                "the entries before the damage were exported; `minke log repair {session}` shows the rest"
            ));
            Err(match suspects.warning() {
                Some(words) => failure.with_reason(words),
                None => failure,
            })
        }
    }
}

/// Entries that may contain a key.
#[derive(Default)]
struct SuspectedKeys {
    first_seqs: Vec<u64>,
    count: usize,
}

impl SuspectedKeys {
    /// Maximum number of listed entries.
    const MAX_LISTED: usize = 10;

    fn check_line(&mut self, seq: u64, line: &str) {
        if first_kind_in(line).is_some() {
            self.count += 1;
            if self.first_seqs.len() < SuspectedKeys::MAX_LISTED {
                self.first_seqs.push(seq);
            }
        }
    }

    fn warning(&self) -> Option<String> {
        let numbers: Vec<String> = self.first_seqs.iter().map(ToString::to_string).collect();
        let more = if self.count > self.first_seqs.len() { ", …" } else { "" };
        (self.count > 0).then(|| {
            format!(
                "{} of these entries may contain a key ({}{more}): check them before you share the file",
                self.count,
                numbers.join(", ")
            )
        })
    }
}

enum ExportTarget<'a> {
    Stdout(&'a CliOutput),
    File(std::io::BufWriter<std::fs::File>, PathBuf),
}

impl ExportTarget<'_> {
    /// Creates a new file.
    fn create_file(path: PathBuf) -> Result<ExportTarget<'static>, CliError> {
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let file = file.map_err(|e| {
            CliError::new(ExitKind::Storage, format!("could not write {}", path.display()))
                .with_reason(e)
                .with_hint("choose a file that does not exist yet")
        })?;
        Ok(ExportTarget::File(std::io::BufWriter::new(file), path))
    }

    fn write_text(&mut self, text: &str) -> Result<(), CliError> {
        match self {
            ExportTarget::Stdout(output) => output.print_json_bytes(text),
            ExportTarget::File(file, path) => {
                file.write_all(text.as_bytes()).map_err(|e| write_error(path, e))
            }
        }
    }

    fn finish(self) -> Result<(), CliError> {
        match self {
            ExportTarget::Stdout(_) => Ok(()),
            ExportTarget::File(mut file, path) => {
                file.flush().and_then(|()| file.get_ref().sync_all()).map_err(|e| write_error(&path, e))
            }
        }
    }
}

fn write_error(path: &std::path::Path, error: std::io::Error) -> CliError {
    CliError::new(ExitKind::Storage, format!("could not write {}", path.display()))
        .with_reason(error)
        .with_hint("free space on that disk")
}

/// Returns the Markdown of an entry, if it is part of the conversation.
fn entry_markdown(entry: &Entry) -> Option<String> {
    match &entry.kind {
        Kind::SessionStart(e) => Some(format!("# {} (s_{})\n\nin `{}`\n\n", e.name, e.session, e.cwd)),
        Kind::UserInput(e) => Some(format!("## Person\n\n{}\n\n", input_text(&e.segments))),
        Kind::AssistantItem(e) => match &e.item {
            Item::Message { role: Role::Assistant, content } => {
                Some(format!("## Model\n\n{}\n\n", message_text(content)))
            }
            Item::ToolCall { name, arguments, .. } => {
                Some(format!("**{name}** `{}`\n\n", arguments.display_text()))
            }
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
