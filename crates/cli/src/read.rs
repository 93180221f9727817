//! `minke read`: what a pod said, from its log; it may run, sleep or be stopped. Wakes nobody.
//!
//! Elsewhere: the same for an agent, with a cursor of its own (ReadPodOutput, in `pod`).

use clap::Args;
use minke_client::{Home, find};
use minke_record::{Content, Entry, Item, Kind, Role, SessionId, Text};
use serde_json::json;

use crate::around::Surroundings;
use crate::exec::read_blob;
use crate::failure::{Exit, Failure};
use crate::family::{Folds, sleeping};
use crate::screen::Screen;
use crate::transcript::Lines;

/// A page of the log that is read at once.
const PAGE_ENTRIES: usize = 1_000;
const PAGE_BYTES: usize = 4 * 1024 * 1024;

#[derive(Debug, Args)]
pub(crate) struct Read {
    /// A live pod's name, a session's id, or a name that a session had
    name: String,
    /// From this entry of its log on (default: its last run)
    #[arg(long, value_name = "SEQ")]
    since: Option<u64>,
    /// With what it was told, its calls and their results, in short
    #[arg(long)]
    detail: bool,
    /// Print the texts byte for byte, control characters included; a terminal gets clean text all the same
    #[arg(long)]
    raw: bool,
}

pub(crate) fn run(read: &Read, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let home = around.home()?;
    let found = find(&home, &read.name)?;
    let state = match &found.live {
        Some(live) => {
            let activity = live.status.as_ref().and_then(|status| status.activity.as_deref());
            activity.map_or_else(|| live.state().to_owned(), |what| format!("{}: {what}", live.state()))
        }
        None => sleeping(&home, found.session, None, &mut Folds::default()).state,
    };
    let mut said = Said { home: &home, session: found.session, lines: Lines::default(), texts: Vec::new() };
    let next = said.gather(read)?;
    let text = said.texts.join(if read.detail { "\n" } else { "\n\n" });
    if screen.json {
        let session = format!("s_{}", found.session);
        screen.object(&json!({ "session": session, "state": state, "text": text, "next": next }))?;
        return Ok(Exit::Done);
    }
    if text.is_empty() {
        screen.note(&format!("nothing new · {state}"));
        return Ok(Exit::Done);
    }
    screen.with_raw(read.raw).line(text.trim_end_matches('\n'))?;
    screen.note(&format!("{state} · `minke read {} --since {next}` gives what comes after", read.name));
    Ok(Exit::Done)
}

/// What was said so far.
struct Said<'a> {
    home: &'a Home,
    session: SessionId,
    lines: Lines,
    texts: Vec<String>,
}

impl Said<'_> {
    /// Reads to the end of the log and gives the number of the entry that comes next.
    fn gather(&mut self, read: &Read) -> Result<u64, Failure> {
        let reader = self.home.store.reader(self.session)?;
        let mut next = read.since.unwrap_or(0);
        let mut from = Some(next);
        while let Some(seq) = from {
            let page = reader.page(seq, PAGE_ENTRIES, PAGE_BYTES)?;
            for sealed in &page.entries {
                next = sealed.entry.seq + 1;
                if read.since.is_none() && matches!(sealed.entry.kind, Kind::Invoke(_)) {
                    self.texts.clear();
                }
                self.entry(&sealed.entry, read.detail)?;
            }
            from = page.next_seq;
        }
        Ok(next)
    }

    fn entry(&mut self, entry: &Entry, detail: bool) -> Result<(), Failure> {
        if detail {
            self.texts.extend(self.lines.entry(entry));
            return Ok(());
        }
        let Kind::AssistantItem(assistant) = &entry.kind else { return Ok(()) };
        let Item::Message { role: Role::Assistant, content } = &assistant.item else { return Ok(()) };
        let mut text = String::new();
        for part in content {
            match part {
                Content::Text { text: Text::Here(here) } | Content::Refusal { text: Text::Here(here) } => {
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
