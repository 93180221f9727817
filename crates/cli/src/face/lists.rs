//! What the terminal's lists show: pods, threads, and a look at the end of a thread.

use minke_record::{Content, Item, Kind, Role, Scope, SessionId, Text};
use minke_session::Reader;
use minke_thread::{Thread, ThreadStatus};
use minke_tui::panes::ThreadRow;
use minke_tui::{Answer, Look};
use minke_view::PodRow;
use serde_json::json;

use super::Face;
use crate::failure::{Exit, Failure};
use crate::family::{Family, Reach};
use crate::transcript::said;

/// Threads that a list shows.
const THREADS: usize = 100;
/// Entries at the end of a log that are looked at, so many at once and in all.
const LOOK_PAGE: u64 = 200;
const LOOK_ENTRIES: u64 = 2_000;
const LOOK_BYTES: usize = 8 * 1024 * 1024;
/// What is shown of a text.
const LOOK_CHARS: usize = 4_000;

impl Face {
    /// Logs are read for it, which may take a moment: not where the keys are waited for.
    pub(super) async fn pods(&self) -> Result<Answer, Failure> {
        let (home, folds) = (self.home.clone(), self.folds.clone());
        let looked = self.beside("the list of pods", move || {
            let mut folds = folds.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let family = Family::look(&home, Reach::Remembered, &mut folds)?;
            Ok(family.members.iter().map(pod_row).collect())
        });
        Ok(Answer::Pods(looked.await?))
    }

    pub(super) async fn threads(&self, words: &str, everywhere: bool) -> Result<Answer, Failure> {
        let words = Some(words.trim()).filter(|words| !words.is_empty());
        let mut fields = json!({ "limit": THREADS });
        if let Some(fields) = fields.as_object_mut() {
            fields.extend(words.map(|words| ("query".to_owned(), json!(words))));
            // Who searches may search for what was put away.
            fields.insert("include_archived".to_owned(), json!(words.is_some()));
            if !everywhere {
                let cwd = self.around.cwd.canonicalize().unwrap_or_else(|_| self.around.cwd.clone());
                fields.insert("cwd".to_owned(), json!(cwd));
            }
        }
        let answer = self.call("thread/list", fields).await?;
        let threads: Vec<Thread> = serde_json::from_value(answer["threads"].clone())
            .map_err(|e| Failure::new(Exit::Failed, "the list cannot be read").why(e))?;
        Ok(Answer::Threads(threads.into_iter().filter_map(thread_row).collect()))
    }

    /// What was said last in a session, and what was answered.
    pub(super) async fn look(&self, session: SessionId) -> Result<Answer, Failure> {
        let home = self.home.clone();
        let looked = self.beside("the end of the thread", move || {
            let reader = home.store.reader(session)?;
            end_of(&*reader, session)
        });
        Ok(Answer::Look(looked.await?))
    }
}

/// From the end of the log backward, until something was said.
fn end_of(reader: &dyn Reader, session: SessionId) -> Result<Look, Failure> {
    let mut look = Look { session, said: String::new(), replied: String::new() };
    let Some(head) = reader.head()? else { return Ok(look) };
    let mut until = head.seq + 1;
    let least = until.saturating_sub(LOOK_ENTRIES);
    while until > least && look.said.is_empty() {
        let from = until.saturating_sub(LOOK_PAGE).max(least);
        let many = usize::try_from(until - from).unwrap_or(usize::MAX);
        let page = reader.page(from, many, LOOK_BYTES)?;
        let (mut said_here, mut replied_here) = (String::new(), String::new());
        for sealed in page.entries.iter().filter(|sealed| sealed.entry.seq < until) {
            match &sealed.entry.kind {
                Kind::UserInput(input) => {
                    said_here = short(&said(&input.segments));
                    replied_here.clear();
                }
                Kind::AssistantItem(e) => {
                    if let Item::Message { role: Role::Assistant, content } = &e.item {
                        replied_here = short(&text_of(content));
                    }
                }
                _ => {}
            }
        }
        if look.replied.is_empty() {
            look.replied = replied_here;
        }
        look.said = said_here;
        until = from;
    }
    Ok(look)
}

fn text_of(content: &[Content]) -> String {
    let text = |part: &Content| match part {
        Content::Text { text: Text::Here(text) } | Content::Refusal { text: Text::Here(text) } => {
            Some(text.clone())
        }
        Content::Text { text: Text::Blob(_) } | Content::Refusal { text: Text::Blob(_) } => {
            Some("(a long text)".to_owned())
        }
        Content::Image { .. } | Content::Unknown => None,
    };
    content.iter().filter_map(text).collect()
}

fn short(text: &str) -> String {
    text.chars().take(LOOK_CHARS).collect()
}

fn pod_row(member: &crate::family::Member) -> PodRow {
    let usage = member.known.as_ref().map(|known| &known.usage);
    PodRow {
        session: member.session,
        name: member.name.clone(),
        parent: member.parent,
        state: member.state.clone(),
        activity: member.activity.clone().unwrap_or_default(),
        scope: member.scope.as_ref().map(Scope::summary).unwrap_or_default(),
        tokens: member.tokens(),
        cost_micros: usage.filter(|usage| usage.unknown_cost == 0).map(|usage| micros(usage.cost_usd)),
        model: String::new(),
        asks: u32::try_from(member.asks()).unwrap_or(u32::MAX),
        live: member.pid.is_some(),
        updated: None,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a sum of prices, never negative"
)]
fn micros(dollars: f64) -> u64 {
    (dollars * 1_000_000.0).round() as u64
}

fn thread_row(thread: Thread) -> Option<ThreadRow> {
    let session = thread.id.strip_prefix("s_").unwrap_or(&thread.id).parse().ok()?;
    let state = match thread.status {
        ThreadStatus::Running => "running",
        ThreadStatus::Waiting => "waiting",
        ThreadStatus::Paused => "paused",
        ThreadStatus::Interrupted => "interrupted",
        ThreadStatus::Idle => "idle",
    };
    Some(ThreadRow {
        session,
        name: thread.name.unwrap_or_default(),
        preview: thread.preview,
        state: state.to_owned(),
        cwd: thread.cwd,
        updated: thread.updated_at.saturating_mul(1_000),
        archived: thread.archived,
    })
}
