//! `minke read`: prints the messages of a pod from its log, whether it runs, sleeps or is stopped. Wakes no
//! pod.
//!
//! Elsewhere: the tool for agents, with a stored cursor (ReadPodOutput, in `pod`).

use clap::Args;
use minke_client::{UserHome, find_session};
use minke_record::{Content, Entry, Item, Kind, Role, SessionId, Text};
use serde_json::json;

use crate::commands::run::exec::read_blob;
use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;
use crate::render::pod_tree::{StateCache, sleeping_node};
use crate::render::transcript::EntryLines;

/// Size of one read of the log.
const PAGE_ENTRIES: usize = 1_000;
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Print the messages of a pod from its log
#[derive(Debug, Args)]
pub(crate) struct ReadArgs {
    /// A live pod's name, a session's id, or a name that a session had
    name: String,
    /// Start at this entry of the log (default: the last run)
    #[arg(long, value_name = "SEQ")]
    since: Option<u64>,
    /// Include inputs, calls and results in short form
    #[arg(long)]
    detail: bool,
    /// Print texts byte for byte; a terminal still gets clean text
    #[arg(long)]
    raw: bool,
}

pub(crate) fn run(read: &ReadArgs, context: &CliContext, output: &CliOutput) -> Result<ExitKind, CliError> {
    let home = context.open_home()?;
    let found = find_session(&home, &read.name)?;
    let state = match &found.live {
        Some(live) => {
            let activity = live.status.as_ref().and_then(|status| status.activity.as_deref());
            activity.map_or_else(
                || live.state_label().to_owned(),
                |what| format!("{}: {what}", live.state_label()),
            )
        }
        None => sleeping_node(&home, found.session, None, &mut StateCache::default()).state,
    };
    let mut texts =
        PodTexts { home: &home, session: found.session, lines: EntryLines::default(), texts: Vec::new() };
    let next = texts.read_entries(read)?;
    let text = texts.texts.join(if read.detail { "\n" } else { "\n\n" });
    if output.json {
        let session = format!("s_{}", found.session);
        output.print_json(&json!({ "session": session, "state": state, "text": text, "next": next }))?;
        return Ok(ExitKind::Success);
    }
    if text.is_empty() {
        output.print_note(&format!("nothing new · {state}"));
        return Ok(ExitKind::Success);
    }
    output.with_raw(read.raw).print_line(text.trim_end_matches('\n'))?;
    output.print_note(&format!("{state} · `minke read {} --since {next}` prints newer messages", read.name));
    Ok(ExitKind::Success)
}

/// Collected texts of a pod.
struct PodTexts<'a> {
    home: &'a UserHome,
    session: SessionId,
    lines: EntryLines,
    texts: Vec<String>,
}

impl PodTexts<'_> {
    /// Reads to the end of the log. Returns the number of the next entry.
    fn read_entries(&mut self, read: &ReadArgs) -> Result<u64, CliError> {
        let reader = self.home.store.open_reader(self.session)?;
        let mut next = read.since.unwrap_or(0);
        let mut from = Some(next);
        while let Some(seq) = from {
            let page = reader.read_page(seq, PAGE_ENTRIES, PAGE_BYTES)?;
            for sealed in &page.entries {
                next = sealed.entry.seq + 1;
                if read.since.is_none() && matches!(sealed.entry.kind, Kind::Invoke(_)) {
                    self.texts.clear();
                }
                self.add_entry(&sealed.entry, read.detail)?;
            }
            from = page.next_seq;
        }
        Ok(next)
    }

    fn add_entry(&mut self, entry: &Entry, detail: bool) -> Result<(), CliError> {
        if detail {
            self.texts.extend(self.lines.entry_lines(entry));
            return Ok(());
        }
        let Kind::AssistantItem(assistant) = &entry.kind else { return Ok(()) };
        let Item::Message { role: Role::Assistant, content } = &assistant.item else { return Ok(()) };
        let mut text = String::new();
        for part in content {
            match part {
                Content::Text { text: Text::Inline(here) }
                | Content::Refusal { text: Text::Inline(here) } => {
                    text.push_str(here);
                }
                Content::Text { text: Text::Blob(blob) } | Content::Refusal { text: Text::Blob(blob) } => {
                    text.push_str(&read_blob(self.home, self.session, blob)?);
                }
                Content::Image { .. } | Content::Unknown => {}
            }
        }
        if !text.is_empty() {
            self.texts.push(text);
        }
        Ok(())
    }
}
