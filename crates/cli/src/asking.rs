//! Somebody who asks the host's engine at the command line: who is meant, what is asked, how an answer or a refusal is shown.
//!
//! Elsewhere: the requests (`host`), what is asked about threads and jobs (`thread`, `job`).

use minke_client::{FindError, find};
use minke_host::{Engine, Fault, Whole};
use minke_record::{Actor, ErrorCode};
use serde_json::Value;

use crate::around::Surroundings;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

pub(crate) struct Asking<'a> {
    pub(crate) engine: Engine,
    pub(crate) around: &'a Surroundings,
    pub(crate) screen: &'a Screen,
    /// What to do about something that is not there.
    lists: &'static str,
}

impl<'a> Asking<'a> {
    pub(crate) fn new(
        around: &'a Surroundings,
        screen: &'a Screen,
        lists: &'static str,
    ) -> Result<Asking<'a>, Failure> {
        Ok(Asking { engine: crate::desk::engine(around)?, around, screen, lists })
    }

    /// Whoever is not there is left to the engine, which says so as through every door.
    pub(crate) fn meant(&self, word: &str) -> Result<String, Failure> {
        match find(&self.around.home()?, word) {
            Ok(found) => Ok(format!("s_{}", found.session)),
            Err(FindError::Nobody { .. } | FindError::NoSession { .. }) => Ok(word.to_owned()),
            Err(other) => Err(other.into()),
        }
    }

    /// One request; members that are null were not given.
    pub(crate) async fn call(&self, method: &str, mut fields: Value) -> Result<Value, Failure> {
        if let Some(fields) = fields.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        let by = Actor::person("cli");
        self.engine.call(method, fields, &by).await.map_err(|fault| self.refused(fault))
    }

    /// A whole conversation.
    pub(crate) async fn whole(&self, thread: &str) -> Result<Whole, Failure> {
        self.engine.conversation(thread).await.map_err(|fault| self.refused(fault))
    }

    /// A refusal that is an answer is printed as one, for programs.
    fn refused(&self, fault: Fault) -> Failure {
        let failure = Failure::from(fault.clone());
        match fault.answer.filter(|_| self.screen.json) {
            Some(answer) => match self.screen.object(&answer) {
                Ok(()) => Failure::said(failure.exit),
                Err(unread) => unread,
            },
            None if fault.code == ErrorCode::NotFound => failure.hint(self.lists),
            None => failure,
        }
    }

    pub(crate) fn tell(
        &self,
        answer: &Value,
        human: impl FnOnce(&Value) -> Result<(), Failure>,
    ) -> Result<Exit, Failure> {
        if self.screen.json {
            self.screen.object(answer)?;
        } else {
            human(answer)?;
        }
        Ok(Exit::Done)
    }
}
