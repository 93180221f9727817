//! What a person sees when something could not be done: what was tried, why it failed, what to do; and the exit code.
//!
//! Here: the one shape of an error, as text and as JSON, and how the errors of the hands become one. Nothing prints a
//! debug form (`bad_input_is_refused_before_a_session_is_made`, `every_command_says_who_is_not_there`).

use std::error::Error;
use std::fmt::Display;
use std::process::ExitCode;

use minke_client::{ConnectionError, DeliverError, Failed, FindError, LaunchError};
use minke_protocol::Refusal;
use minke_record::{ErrorCode, SessionId};
use minke_registry::{PathsError, RegistryError};
use minke_session::{AppendError, Holder, StoreError, SyncError};
use serde_json::{Value, json};

use crate::around::now;
use crate::screen::clean;

/// What the exit code means; `docs/reference/cli.md` has the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Done,
    Failed,
    Usage,
    Refused,
    Limit,
    Provider,
    /// The model refused to answer, or a filter of the provider stopped the reply.
    ModelRefused,
    Storage,
    TryLater,
    Signal,
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Refused => 3,
            Exit::Limit => 4,
            Exit::Provider => 5,
            Exit::ModelRefused => 6,
            Exit::Storage => 74,
            Exit::TryLater => 75,
            Exit::Signal => 130,
        }
    }

    /// The exit of a run, or of a method, that failed with this code.
    pub(crate) fn of(code: &ErrorCode) -> Exit {
        match code {
            ErrorCode::ProviderError => Exit::Provider,
            ErrorCode::Refused => Exit::ModelRefused,
            ErrorCode::StorageFailed => Exit::Storage,
            ErrorCode::BudgetExceeded => Exit::Limit,
            ErrorCode::Denied => Exit::Refused,
            ErrorCode::InvalidRequest | ErrorCode::NotFound => Exit::Usage,
            ErrorCode::TooMany => Exit::TryLater,
            ErrorCode::AlreadyRunning
            | ErrorCode::NotRunning
            | ErrorCode::NotPaused
            | ErrorCode::Conflict
            | ErrorCode::ToolError
            | ErrorCode::Internal
            | ErrorCode::Other(_) => Exit::Failed,
        }
    }

    /// The word for it in JSON, where no more precise one is known.
    fn word(self) -> &'static str {
        match self {
            Exit::Done => "done",
            Exit::Failed => "failed",
            Exit::Usage => "usage",
            Exit::Refused => "denied",
            Exit::Limit => "limit_reached",
            Exit::Provider => "provider_error",
            Exit::ModelRefused => "refused",
            Exit::Storage => "storage_failed",
            Exit::TryLater => "try_later",
            Exit::Signal => "cancelled",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// Something could not be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    code: String,
    message: String,
    why: Vec<String>,
    hint: Option<String>,
    /// Everything was said already, or nobody is left to read it.
    silent: bool,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Display) -> Failure {
        Failure {
            exit,
            code: exit.word().to_owned(),
            message: message.to_string(),
            why: Vec::new(),
            hint: None,
            silent: false,
        }
    }

    pub(crate) fn usage(message: impl Display) -> Failure {
        Failure::new(Exit::Usage, message)
    }

    /// Stdout was closed by whoever read it: the work is over and nobody wants to hear of it.
    pub(crate) fn unread() -> Failure {
        Failure { silent: true, ..Failure::new(Exit::Done, "stdout was closed") }
    }

    /// An exit code with nothing more to say.
    pub(crate) fn said(exit: Exit) -> Failure {
        Failure { silent: true, ..Failure::new(exit, "") }
    }

    pub(crate) fn is_unread(&self) -> bool {
        self.silent && self.exit == Exit::Done
    }

    pub(crate) fn code(mut self, code: impl Display) -> Failure {
        self.code = code.to_string();
        self
    }

    pub(crate) fn why(mut self, why: impl Display) -> Failure {
        self.why.push(why.to_string());
        self
    }

    pub(crate) fn hint(mut self, hint: impl Display) -> Failure {
        self.hint = Some(hint.to_string());
        self
    }

    /// The reason is whatever lies below an error.
    fn because(mut self, error: &dyn Error) -> Failure {
        let mut source = error.source();
        while let Some(cause) = source {
            self.why.push(cause.to_string());
            source = cause.source();
        }
        self
    }

    /// The word that programs know it by.
    pub(crate) fn word(&self) -> &str {
        &self.code
    }

    /// Everything in one line, for those who have only one.
    pub(crate) fn sentence(&self) -> String {
        let mut text = self.message.clone();
        for why in &self.why {
            text.push_str(&format!(": {why}"));
        }
        if let Some(hint) = &self.hint {
            text.push_str(&format!("; {hint}"));
        }
        text
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.silent
    }

    /// For people, one screen. File names and refusals may hold anything, so control characters are made visible.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("error: {}\n", indent(&self.message));
        for why in &self.why {
            text.push_str(&format!("  why: {}\n", indent(why)));
        }
        if let Some(hint) = &self.hint {
            text.push_str(&format!("  try: {}\n", indent(hint)));
        }
        clean(&text).into_owned()
    }

    /// The same as an object.
    pub(crate) fn json(&self) -> Value {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(error) = error.as_object_mut() {
            if !self.why.is_empty() {
                error.insert("why".to_owned(), self.why.join("; ").into());
            }
            if let Some(hint) = &self.hint {
                error.insert("hint".to_owned(), hint.clone().into());
            }
        }
        json!({ "error": error })
    }
}

/// Lines after the first stand below the text, not below `error:`.
fn indent(text: &str) -> String {
    text.trim_end().replace('\n', "\n       ")
}

impl From<PathsError> for Failure {
    fn from(error: PathsError) -> Failure {
        let exit = match error {
            PathsError::NoHome | PathsError::NotAbsolute { .. } => Exit::Usage,
            PathsError::CannotMake { .. }
            | PathsError::NotYours { .. }
            | PathsError::NotADirectory { .. } => Exit::Storage,
        };
        Failure::new(exit, &error).hint("`minke paths` shows where everything lies")
    }
}

impl From<RegistryError> for Failure {
    fn from(error: RegistryError) -> Failure {
        let exit = match error {
            RegistryError::DuplicateName { .. }
            | RegistryError::SessionHeld { .. }
            | RegistryError::WriteConflict { .. }
            | RegistryError::TooMany { .. }
            | RegistryError::StillHeld { .. }
            | RegistryError::LockBusy { .. } => Exit::TryLater,
            RegistryError::NoFreeName { .. }
            | RegistryError::NotWithin { .. }
            | RegistryError::BadTarget { .. }
            | RegistryError::TooDeep { .. }
            | RegistryError::UnknownPod { .. }
            | RegistryError::BadTicket { .. }
            | RegistryError::NeedsTicket { .. }
            | RegistryError::CannotYield { .. } => Exit::Usage,
            RegistryError::TableDamaged { .. }
            | RegistryError::LeaseLost { .. }
            | RegistryError::Io { .. } => Exit::Storage,
        };
        Failure::new(exit, &error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        if let StoreError::Held { id, who } = &error {
            return held(*id, who);
        }
        let exit = match &error {
            StoreError::NotFound { .. } | StoreError::NoSuchEntry { .. } | StoreError::Exists { .. } => {
                Exit::Usage
            }
            StoreError::Io { .. } | StoreError::Append { .. } => Exit::Storage,
            _ => Exit::Failed,
        };
        Failure::new(exit, &error).because(&error).hint(error.hint())
    }
}

/// Somebody else works on the session.
fn held(session: SessionId, who: &Holder) -> Failure {
    let since = who.since.map(|since| format!(", since {} s", now().saturating_sub(since) / 1_000));
    // Without its time, which is for programs.
    let whom = Holder { since: None, ..who.clone() };
    let name = who.name.as_ref().map_or_else(|| format!("s_{session}"), ToString::to_string);
    Failure::new(Exit::TryLater, format!("somebody else works on session s_{session}"))
        .code("held")
        .why(format!("{whom} holds it{}", since.unwrap_or_default()))
        .hint(format!(
            "`minke send {name} \"…\"` or `minke attach {name}` talks to it; `minke stop {name}` ends it"
        ))
}

impl From<AppendError> for Failure {
    fn from(error: AppendError) -> Failure {
        Failure::new(Exit::Storage, &error).because(&error).hint(error.hint())
    }
}

impl From<SyncError> for Failure {
    fn from(error: SyncError) -> Failure {
        Failure::new(Exit::Storage, &error).because(&error).hint(error.hint())
    }
}

impl From<ConnectionError> for Failure {
    fn from(error: ConnectionError) -> Failure {
        let exit = match &error {
            ConnectionError::Ended { refusal } => Exit::of(&refusal.code),
            _ => Exit::TryLater,
        };
        Failure::new(exit, &error).because(&error).hint(error.hint())
    }
}

impl From<LaunchError> for Failure {
    fn from(error: LaunchError) -> Failure {
        let exit = match &error {
            LaunchError::Failed { why, .. } if why.code == ErrorCode::Conflict => Exit::TryLater,
            LaunchError::Failed { why, .. } => Exit::of(&why.code),
            LaunchError::Registry(_) | LaunchError::Io { .. } => Exit::Storage,
            LaunchError::Died { .. } | LaunchError::Silent { .. } => Exit::Failed,
        };
        let mut failure = Failure::new(exit, &error).because(&error);
        // What the pod said on both ways is said once.
        let told = error.to_string();
        let news = |line: &&String| !told.contains(line.trim_start_matches("error: "));
        for line in error.said().iter().filter(news) {
            failure = failure.why(format!("the pod said: {line}"));
        }
        if let LaunchError::Failed { why: Failed { hint: Some(hint), .. }, .. } = &error {
            return failure.hint(hint);
        }
        failure.hint("nothing written is lost; `minke ps` and `minke paths` show what stands in the way")
    }
}

impl From<FindError> for Failure {
    fn from(error: FindError) -> Failure {
        match error {
            FindError::Registry(error) => error.into(),
            FindError::Store(error) => error.into(),
            FindError::Nobody { .. } | FindError::NoSession { .. } => {
                Failure::usage(&error).code("not_found").hint("`minke ps --all` lists live pods and sessions")
            }
            FindError::Several { .. } => Failure::usage(&error).hint("give more of the id"),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        let hint = match refusal.code {
            ErrorCode::AlreadyRunning => "wait for the run to end, or `minke cancel NAME`",
            ErrorCode::NotRunning => "`minke ps` shows what each pod does",
            ErrorCode::NotPaused => "there is nothing to resume; `minke send NAME TEXT` begins a run",
            ErrorCode::TooMany => "wait until some of it is done",
            ErrorCode::StorageFailed => "make room on the disk",
            _ => "`minke ps` shows what each pod does",
        };
        Failure::new(Exit::of(&refusal.code), &refusal.message).code(&refusal.code).hint(hint)
    }
}

impl From<DeliverError> for Failure {
    fn from(error: DeliverError) -> Failure {
        match error {
            DeliverError::Refused { refusal, .. } => refusal.into(),
            DeliverError::Store(error) => error.into(),
            DeliverError::Registry(error) => error.into(),
            DeliverError::Launch(error) => error.into(),
            DeliverError::Connection(error) => error.into(),
            DeliverError::Stopping { ref pod } => Failure::new(Exit::TryLater, &error)
                .why("it ends when its run does, or it hangs")
                .hint(format!("try again in a moment; `minke stop {pod} --kill` ends one that hangs")),
            DeliverError::Damaged { session, damage } => StoreError::Damaged { id: session, damage }.into(),
            DeliverError::Append { ref source, .. } => {
                Failure::new(Exit::Storage, &error).because(&error).hint(source.hint())
            }
            DeliverError::Sync { ref source, .. } => {
                Failure::new(Exit::Storage, &error).because(&error).hint(source.hint())
            }
            DeliverError::Lease { .. } => Failure::new(Exit::Failed, &error).because(&error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_screen_and_cannot_write_escape_sequences() {
        let failure = Failure::usage("no \u{1b}[31mpod").why("a\nb").hint("try `minke ps`");
        assert_eq!(failure.text(), "error: no ␛[31mpod\n  why: a\n       b\n  try: try `minke ps`\n");
        assert_eq!(
            failure.json().to_string(),
            r#"{"error":{"code":"usage","message":"no \u001b[31mpod","why":"a\nb","hint":"try `minke ps`"}}"#
        );
    }
}
