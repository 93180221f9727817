//! Calls the host's engine from the command line: resolves the thread, sends the request, prints the answer
//! or error.
//!
//! Elsewhere: the requests (`host`), the subcommands for threads and jobs (`thread`, `job`).

use minke_client::{FindError, find_session};
use minke_host::{ApiError, Engine, FullConversation};
use minke_record::{Actor, ErrorCode};
use serde_json::Value;

use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

pub(crate) struct EngineClient<'a> {
    pub(crate) engine: Engine,
    pub(crate) context: &'a CliContext,
    pub(crate) output: &'a CliOutput,
    /// Hint for a thread or job that is not found.
    list_hint: &'static str,
}

/// Opens the engine of the host in this process.
pub(crate) fn open_engine(context: &CliContext) -> Result<Engine, CliError> {
    Ok(Engine::new(context.open_home()?, context.env.clone()))
}

impl<'a> EngineClient<'a> {
    pub(crate) fn new(
        context: &'a CliContext,
        output: &'a CliOutput,
        list_hint: &'static str,
    ) -> Result<EngineClient<'a>, CliError> {
        Ok(EngineClient { engine: open_engine(context)?, context, output, list_hint })
    }

    /// Returns the id for a name or id. An unknown one is passed on, so that the engine reports the error.
    pub(crate) fn resolve_thread(&self, word: &str) -> Result<String, CliError> {
        match find_session(&self.context.open_home()?, word) {
            Ok(found) => Ok(format!("s_{}", found.session)),
            Err(FindError::NotFound { .. } | FindError::NoSession { .. }) => Ok(word.to_owned()),
            Err(other) => Err(other.into()),
        }
    }

    /// Sends one request. Members that are null are left out.
    pub(crate) async fn call(&self, method: &str, mut fields: Value) -> Result<Value, CliError> {
        if let Some(fields) = fields.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        let by = Actor::from_person("cli");
        self.engine.call(method, fields, &by).await.map_err(|fault| self.to_error(fault))
    }

    /// Returns a full conversation.
    pub(crate) async fn read_conversation(&self, thread: &str) -> Result<FullConversation, CliError> {
        self.engine.read_conversation(thread).await.map_err(|fault| self.to_error(fault))
    }

    /// Converts an error of the engine. With `--json`, prints its answer if it has one.
    fn to_error(&self, fault: ApiError) -> CliError {
        let failure = CliError::from(fault.clone());
        match fault.response.filter(|_| self.output.json) {
            Some(answer) => match self.output.print_json(&answer) {
                Ok(()) => CliError::already_reported(failure.exit),
                Err(unread) => unread,
            },
            None if fault.code == ErrorCode::NotFound => failure.with_hint(self.list_hint),
            None => failure,
        }
    }

    pub(crate) fn print_answer(
        &self,
        answer: &Value,
        human: impl FnOnce(&Value) -> Result<(), CliError>,
    ) -> Result<ExitKind, CliError> {
        if self.output.json {
            self.output.print_json(answer)?;
        } else {
            human(answer)?;
        }
        Ok(ExitKind::Success)
    }
}
