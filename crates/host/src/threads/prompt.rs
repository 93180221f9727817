//! `prompt`: runs one prompt and waits for the model's answer.
//!
//! Without a thread it uses a temporary one, which is removed afterwards. Elsewhere: sending an input without waiting
//! (`message`).

use std::time::Duration;

use minke_launch::new_ids;
use minke_protocol::{Method, Run, RunMode, RunReply};
use minke_record::{
    Actor, Content, EndResult, Entry, ErrorCode, Item, Kind, Role, RunId, RunResult, SessionId, Text,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::engine::{Engine, NewThread, run_blocking};
use crate::error::ApiError;
use crate::frames::{Frame, FrameFold};
use crate::pods::stop_pod_of_session;
use crate::request::{RequestOverrides, ThreadName, parse_params};
use crate::response::format_session_id;

/// How long to wait for an answer: a run may wait for the user.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// The maximum length of a returned answer.
const MAX_OUTPUT_BYTES: usize = 16 * 1024 * 1024;

/// The maximum number of frames in a response; the thread has the rest.
const MAX_EVENTS: usize = 10_000;

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PromptParams {
    #[serde(default)]
    pub(crate) thread_id: Option<ThreadName>,
    pub(crate) prompt: String,
    #[serde(default)]
    pub(crate) model: Option<String>,
    #[serde(default)]
    pub(crate) cwd: Option<std::path::PathBuf>,
}

impl Engine {
    pub(crate) async fn handle_prompt(&self, params: Value, by: &Actor) -> Result<Value, ApiError> {
        let prompt: PromptParams = parse_params("prompt", params)?;
        let over = RequestOverrides {
            model: prompt.model.clone(),
            cwd: prompt.cwd.clone(),
            ..RequestOverrides::default()
        };
        if let Some(thread) = &prompt.thread_id {
            let session = self.resolve_session(thread, &over)?;
            self.apply_overrides(session, &over, by).await?;
            return self.run_prompt(session, &prompt.prompt, by).await;
        }
        let new = NewThread {
            cwd: Some(crate::threads::require_absolute(prompt.cwd.as_deref())?.to_owned()),
            model: prompt.model.clone(),
            ephemeral: true,
            ..NewThread::default()
        };
        let (engine, maker) = (self.clone(), by.clone());
        let session = run_blocking(move || Ok(engine.create_session(new, &maker)?.0)).await?;
        let answered = self.run_prompt(session, &prompt.prompt, by).await;
        stop_pod_of_session(&self.home, session, by).await?;
        // An ephemeral session is removed by its pod. If no pod started, it is removed here.
        self.move_to_trash(session).await?;
        answered
    }

    /// Sends the prompt and waits for the end of its run.
    async fn run_prompt(&self, session: SessionId, prompt: &str, by: &Actor) -> Result<Value, ApiError> {
        let input = self.prepare_input(session, &json!(prompt))?;
        self.unarchive_for_message(session, by).await?;
        let mut hearing = self.listen_to_pod(session, ANSWER_TIMEOUT, by).await?;
        let op_id = new_ids().next_uuid().to_string();
        let mut prompt_run = PromptRun::new(session, op_id.clone());
        let run = Method::Run(Run { input, mode: RunMode::Queue, op_id: Some(op_id) });
        let mut ended = None;
        let _: RunReply =
            hearing.call_pod(run, |entry| ended = ended.take().or_else(|| prompt_run.take(entry))).await?;
        let ended = match ended {
            Some(ended) => ended,
            None => hearing.wait_until(None, |entry| prompt_run.take(entry)).await?,
        };
        ended.map_err(|api_error| ApiError {
            message: format!("{} (thread {})", api_error.message, format_session_id(session)),
            ..api_error
        })?;
        let output = self.load_texts(session, &prompt_run.reply_texts)?;
        Ok(json!({
            "output": output,
            "model": prompt_run.model,
            "thread_id": format_session_id(session),
            "events": prompt_run.events,
        }))
    }

    fn load_texts(&self, session: SessionId, text_parts: &[Text]) -> Result<String, ApiError> {
        let mut output = String::new();
        for text in text_parts {
            match text {
                Text::Inline(text) => output.push_str(text),
                Text::Blob(name) => {
                    let bytes =
                        self.home.store.open_reader(session)?.read_blob(&name.blob, 0, MAX_OUTPUT_BYTES)?;
                    output.push_str(&String::from_utf8_lossy(&bytes));
                }
            }
        }
        Ok(output)
    }
}

/// One run as far as it was received.
struct PromptRun {
    op_id: String,
    run: Option<RunId>,
    model: String,
    /// The model's output since its last call.
    reply_texts: Vec<Text>,
    frames: FrameFold,
    /// The frames of the run; those of the newest run until ours starts.
    events: Vec<Frame>,
}

impl PromptRun {
    fn new(session: SessionId, op_id: String) -> PromptRun {
        PromptRun {
            op_id,
            run: None,
            model: String::new(),
            reply_texts: Vec::new(),
            frames: FrameFold::new(session),
            events: Vec::new(),
        }
    }

    /// Folds an entry. Returns the result of the run if the entry ends it.
    fn take(&mut self, entry: &Entry) -> Option<Result<(), ApiError>> {
        if self.run.is_none() && matches!(entry.kind, Kind::Invoke(_)) {
            self.events.clear();
        }
        let new_frames = self.frames.fold_entry(entry);
        if (self.run.is_none() || self.run == entry.run) && self.events.len() < MAX_EVENTS {
            self.events.extend(new_frames);
        }
        if let Kind::UserInput(input) = &entry.kind
            && input.op_id.as_deref() == Some(&self.op_id)
        {
            self.run = entry.run;
        }
        if self.run.is_none() || entry.run != self.run {
            return None;
        }
        match &entry.kind {
            Kind::LlmCall(call) => self.model.clone_from(&call.route.model),
            Kind::AssistantItem(text_parts) => {
                if let Item::Message { role: Role::Assistant, content } = &text_parts.item {
                    self.reply_texts.extend(content.iter().filter_map(|part| match part {
                        Content::Text { text } | Content::Refusal { text } => Some(text.clone()),
                        Content::Image { .. } | Content::Unknown => None,
                    }));
                }
            }
            Kind::ToolResult(result) if result.by.is_none() => self.reply_texts.clear(),
            Kind::RunCompleted(end) => {
                return Some(check_result(&EndResult::Completed(end.result.clone()), end.reason.as_deref()));
            }
            Kind::RunErrored(end) => {
                return Some(check_result(&EndResult::Errored(end.code.clone()), Some(&end.message)));
            }
            _ => {}
        }
        None
    }
}

/// Returns an error unless the run finished.
fn check_result(result: &EndResult, why: Option<&str>) -> Result<(), ApiError> {
    let because = why.map(|why| format!(": {why}")).unwrap_or_default();
    match result {
        EndResult::Completed(RunResult::Finished) => Ok(()),
        EndResult::Completed(RunResult::LimitReached) => {
            Err(ApiError::new(ErrorCode::BudgetExceeded, format!("the run reached a limit{because}")))
        }
        EndResult::Completed(other) => {
            Err(ApiError::new(ErrorCode::Conflict, format!("the run ended as {}{because}", other.as_str())))
        }
        EndResult::Errored(code) => Err(ApiError::new(code.clone(), format!("the run failed{because}"))),
    }
}
