//! `prompt`: one answer of the model, waited for.
//!
//! Without a thread it runs in one that is made for it and removed afterwards. Elsewhere: saying something without waiting
//! (`message`).

use std::time::Duration;

use minke_protocol::{Method, Run, RunMode, RunReply};
use minke_record::{
    Actor, Content, EndResult, Entry, ErrorCode, Item, Kind, Role, RunId, RunResult, SessionId, Text,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::answer::id;
use crate::engine::{Engine, NewThread, off};
use crate::fault::Fault;
use crate::frames::{Frame, Frames};
use crate::pods::end_of;
use crate::request::{Override, ThreadName, params_of};
use crate::visits::ids;

/// How long an answer is waited for: a run may wait for a person.
const PATIENCE: Duration = Duration::from_secs(60 * 60);
/// The longest answer that is given back whole.
const OUTPUT_BYTES: usize = 16 * 1024 * 1024;

/// The most frames that an answer holds; the thread has the rest.
const EVENTS: usize = 10_000;

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Prompt {
    #[serde(default)]
    pub(crate) thread_id: Option<ThreadName>,
    pub(crate) prompt: String,
    #[serde(default)]
    pub(crate) model: Option<String>,
    #[serde(default)]
    pub(crate) cwd: Option<std::path::PathBuf>,
}

impl Engine {
    pub(crate) async fn prompt(&self, params: Value, by: &Actor) -> Result<Value, Fault> {
        let prompt: Prompt = params_of("prompt", params)?;
        let over = Override { model: prompt.model.clone(), cwd: prompt.cwd.clone(), ..Override::default() };
        if let Some(thread) = &prompt.thread_id {
            let session = self.session(thread, &over)?;
            self.otherwise(session, &over, by).await?;
            return self.answered(session, &prompt.prompt, by).await;
        }
        let new = NewThread {
            cwd: Some(crate::threads::absolute(prompt.cwd.as_deref())?.to_owned()),
            model: prompt.model.clone(),
            ephemeral: true,
            ..NewThread::default()
        };
        let (engine, maker) = (self.clone(), by.clone());
        let session = off(move || Ok(engine.maker.make(new, &maker)?.0)).await?;
        let answered = self.answered(session, &prompt.prompt, by).await;
        end_of(&self.home, session, by).await?;
        // The pod takes it along; where none came to live, nobody else does.
        self.remove(session).await?;
        answered
    }

    /// Says it and waits for the end of its run.
    async fn answered(&self, session: SessionId, prompt: &str, by: &Actor) -> Result<Value, Fault> {
        let input = self.input(session, &json!(prompt))?;
        self.take_out(session, by).await?;
        let mut hearing = self.hear(session, PATIENCE, by).await?;
        let op_id = ids().next_uuid().to_string();
        let mut heard = Heard::new(session, op_id.clone());
        let run = Method::Run(Run { input, mode: RunMode::Queue, op_id: Some(op_id) });
        let mut ended = None;
        let _: RunReply =
            hearing.ask(run, |entry| ended = ended.take().or_else(|| heard.take(entry))).await?;
        let ended = match ended {
            Some(ended) => ended,
            None => hearing.until(None, |entry| heard.take(entry)).await?,
        };
        ended.map_err(|fault| Fault {
            message: format!("{} (thread {})", fault.message, id(session)),
            ..fault
        })?;
        let output = self.texts(session, &heard.said)?;
        Ok(json!({
            "output": output,
            "model": heard.model,
            "thread_id": id(session),
            "events": heard.events,
        }))
    }

    fn texts(&self, session: SessionId, said: &[Text]) -> Result<String, Fault> {
        let mut output = String::new();
        for text in said {
            match text {
                Text::Here(text) => output.push_str(text),
                Text::Blob(name) => {
                    let bytes = self.home.store.reader(session)?.blob(&name.blob, 0, OUTPUT_BYTES)?;
                    output.push_str(&String::from_utf8_lossy(&bytes));
                }
            }
        }
        Ok(output)
    }
}

/// One run, as far as it was heard.
struct Heard {
    op_id: String,
    run: Option<RunId>,
    model: String,
    /// What the model said since its last call.
    said: Vec<Text>,
    frames: Frames,
    /// What was told of the run; of the newest one, as long as ours has not begun.
    events: Vec<Frame>,
}

impl Heard {
    fn new(session: SessionId, op_id: String) -> Heard {
        Heard {
            op_id,
            run: None,
            model: String::new(),
            said: Vec::new(),
            frames: Frames::new(session),
            events: Vec::new(),
        }
    }

    /// How the run ended, if this is its end.
    fn take(&mut self, entry: &Entry) -> Option<Result<(), Fault>> {
        if self.run.is_none() && matches!(entry.kind, Kind::Invoke(_)) {
            self.events.clear();
        }
        let told = self.frames.entry(entry);
        if (self.run.is_none() || self.run == entry.run) && self.events.len() < EVENTS {
            self.events.extend(told);
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
            Kind::AssistantItem(said) => {
                if let Item::Message { role: Role::Assistant, content } = &said.item {
                    self.said.extend(content.iter().filter_map(|part| match part {
                        Content::Text { text } | Content::Refusal { text } => Some(text.clone()),
                        Content::Image { .. } | Content::Unknown => None,
                    }));
                }
            }
            Kind::ToolResult(result) if result.by.is_none() => self.said.clear(),
            Kind::RunCompleted(end) => {
                return Some(over(&EndResult::Completed(end.result.clone()), end.reason.as_deref()));
            }
            Kind::RunErrored(end) => {
                return Some(over(&EndResult::Errored(end.code.clone()), Some(&end.message)));
            }
            _ => {}
        }
        None
    }
}

/// Only a run that finished has an answer.
fn over(result: &EndResult, why: Option<&str>) -> Result<(), Fault> {
    let because = why.map(|why| format!(": {why}")).unwrap_or_default();
    match result {
        EndResult::Completed(RunResult::Finished) => Ok(()),
        EndResult::Completed(RunResult::LimitReached) => {
            Err(Fault::new(ErrorCode::BudgetExceeded, format!("the run reached a limit{because}")))
        }
        EndResult::Completed(other) => {
            Err(Fault::new(ErrorCode::Conflict, format!("the run ended as {}{because}", other.as_str())))
        }
        EndResult::Errored(code) => Err(Fault::new(code.clone(), format!("the run failed{because}"))),
    }
}
