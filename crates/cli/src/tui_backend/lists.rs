//! Lists of the terminal UI: pods, threads, and a preview of the end of a thread.

use minke_record::{Content, Item, Kind, Role, Scope, SessionId, Text};
use minke_session::Reader;
use minke_thread::{ThreadObject, ThreadStatus};
use minke_tui::panes::ThreadRow;
use minke_tui::{BackendResponse, ThreadPreview};
use minke_view::PodRow;
use serde_json::json;

use super::CliTuiBackend;
use crate::error::{CliError, ExitKind};
use crate::render::pod_tree::{PodTreeView, TreeExtent};
use crate::render::transcript::input_text;

/// Maximum number of threads in a list.
const MAX_THREADS: usize = 100;
/// How many entries at the end of a log a preview reads, per page and in total.
const PREVIEW_PAGE: u64 = 200;
const PREVIEW_ENTRIES: u64 = 2_000;
const PREVIEW_BYTES: usize = 8 * 1024 * 1024;
/// Maximum length of a text in a preview.
const PREVIEW_CHARS: usize = 4_000;

impl CliTuiBackend {
    /// Reads logs, which may take a moment, so it must not block the key input.
    pub(super) async fn list_pods(&self) -> Result<BackendResponse, CliError> {
        let (home, cache) = (self.home.clone(), self.state_cache.clone());
        let result = self.run_blocking("the list of pods", move || {
            let mut folds = cache.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let tree = PodTreeView::load(&home, TreeExtent::WithEndedPods, &mut folds)?;
            Ok(tree.nodes.iter().map(pod_row).collect())
        });
        Ok(BackendResponse::Pods(result.await?))
    }

    pub(super) async fn list_threads(
        &self,
        words: &str,
        everywhere: bool,
    ) -> Result<BackendResponse, CliError> {
        let words = Some(words.trim()).filter(|words| !words.is_empty());
        let mut fields = json!({ "limit": MAX_THREADS });
        if let Some(fields) = fields.as_object_mut() {
            fields.extend(words.map(|words| ("query".to_owned(), json!(words))));
            // A search includes archived threads.
            fields.insert("include_archived".to_owned(), json!(words.is_some()));
            if !everywhere {
                let cwd =
                    self.context.env.cwd.canonicalize().unwrap_or_else(|_| self.context.env.cwd.clone());
                fields.insert("cwd".to_owned(), json!(cwd));
            }
        }
        let answer = self.call_engine("thread/list", fields).await?;
        let threads: Vec<ThreadObject> = serde_json::from_value(answer["threads"].clone())
            .map_err(|e| CliError::new(ExitKind::Failed, "could not read the list").with_reason(e))?;
        Ok(BackendResponse::Threads(threads.into_iter().filter_map(thread_row).collect()))
    }

    /// Returns the last input of a session and the reply to it.
    pub(super) async fn preview_thread(&self, session: SessionId) -> Result<BackendResponse, CliError> {
        let home = self.home.clone();
        let result = self.run_blocking("the end of the thread", move || {
            let reader = home.store.open_reader(session)?;
            read_thread_end(&*reader, session)
        });
        Ok(BackendResponse::Preview(result.await?))
    }
}

/// Reads the log backward until it finds an input.
fn read_thread_end(reader: &dyn Reader, session: SessionId) -> Result<ThreadPreview, CliError> {
    let mut look = ThreadPreview { session, last_input: String::new(), last_reply: String::new() };
    let Some(head) = reader.head_position()? else { return Ok(look) };
    let mut until = head.seq + 1;
    let least = until.saturating_sub(PREVIEW_ENTRIES);
    while until > least && look.last_input.is_empty() {
        let from = until.saturating_sub(PREVIEW_PAGE).max(least);
        let many = usize::try_from(until - from).unwrap_or(usize::MAX);
        let page = reader.read_page(from, many, PREVIEW_BYTES)?;
        let (mut said_here, mut replied_here) = (String::new(), String::new());
        for sealed in page.entries.iter().filter(|sealed| sealed.entry.seq < until) {
            match &sealed.entry.kind {
                Kind::UserInput(input) => {
                    said_here = truncate_text(&input_text(&input.segments));
                    replied_here.clear();
                }
                Kind::AssistantItem(e) => {
                    if let Item::Message { role: Role::Assistant, content } = &e.item {
                        replied_here = truncate_text(&content_text(content));
                    }
                }
                _ => {}
            }
        }
        if look.last_reply.is_empty() {
            look.last_reply = replied_here;
        }
        look.last_input = said_here;
        until = from;
    }
    Ok(look)
}

fn content_text(content: &[Content]) -> String {
    let text = |part: &Content| match part {
        Content::Text { text: Text::Inline(text) } | Content::Refusal { text: Text::Inline(text) } => {
            Some(text.clone())
        }
        Content::Text { text: Text::Blob(_) } | Content::Refusal { text: Text::Blob(_) } => {
            Some("(a long text)".to_owned())
        }
        Content::Image { .. } | Content::Unknown => None,
    };
    content.iter().filter_map(text).collect()
}

fn truncate_text(text: &str) -> String {
    text.chars().take(PREVIEW_CHARS).collect()
}

fn pod_row(node: &crate::render::pod_tree::PodNode) -> PodRow {
    let usage = node.facts.as_ref().map(|known| &known.usage);
    PodRow {
        session: node.session,
        name: node.name.clone(),
        parent: node.parent,
        state: node.state.clone(),
        activity: node.activity.clone().unwrap_or_default(),
        scope: node.scope.as_ref().map(Scope::summary).unwrap_or_default(),
        tokens: node.tokens(),
        cost_micros: usage.filter(|usage| usage.unknown_cost == 0).map(|usage| to_micros(usage.cost_usd)),
        model: String::new(),
        asks: u32::try_from(node.open_asks()).unwrap_or(u32::MAX),
        is_live: node.pid.is_some(),
        updated_at: None,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a sum of prices, never negative"
)]
fn to_micros(dollars: f64) -> u64 {
    (dollars * 1_000_000.0).round() as u64
}

fn thread_row(thread: ThreadObject) -> Option<ThreadRow> {
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
        summary: thread.preview,
        state: state.to_owned(),
        cwd: thread.cwd,
        updated_at: thread.updated_at.saturating_mul(1_000),
        is_archived: thread.archived,
    })
}
