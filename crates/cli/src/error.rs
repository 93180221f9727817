//! Errors of the command line: message, reasons, hint and exit code.
//!
//! Here: the error type, its output as text and JSON, and the conversions from errors of other crates. Debug
//! output is never printed (`bad_input_is_refused_before_a_session_is_made`,
//! `every_command_says_who_is_not_there`).

use std::error::Error;
use std::fmt::Display;
use std::process::ExitCode;

use minke_client::{ConnectionError, FindError};
use minke_host::ApiError;
use minke_launch::{DeliverError, LaunchError, PodStartFailure, SetupError, SetupRefusal, SetupRefusalKind};
use minke_protocol::Refusal;
use minke_record::{ErrorCode, SessionId};
use minke_registry::{PathsError, RegistryError};
use minke_session::{AppendError, LeaseHolder, StoreError, SyncError};
use serde_json::{Value, json};

use crate::context::now_millis;
use crate::output::sanitize_text;

/// Exit codes; the table is in `docs/reference/cli.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitKind {
    Success,
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

impl ExitKind {
    pub(crate) fn code(self) -> u8 {
        match self {
            ExitKind::Success => 0,
            ExitKind::Failed => 1,
            ExitKind::Usage => 2,
            ExitKind::Refused => 3,
            ExitKind::Limit => 4,
            ExitKind::Provider => 5,
            ExitKind::ModelRefused => 6,
            ExitKind::Storage => 74,
            ExitKind::TryLater => 75,
            ExitKind::Signal => 130,
        }
    }

    /// Returns the exit code for a run or method that failed with this error code.
    pub(crate) fn from_error_code(code: &ErrorCode) -> ExitKind {
        match code {
            ErrorCode::ProviderError => ExitKind::Provider,
            ErrorCode::Refused => ExitKind::ModelRefused,
            ErrorCode::StorageFailed => ExitKind::Storage,
            ErrorCode::BudgetExceeded => ExitKind::Limit,
            ErrorCode::Denied => ExitKind::Refused,
            ErrorCode::InvalidRequest | ErrorCode::NotFound => ExitKind::Usage,
            ErrorCode::TooMany => ExitKind::TryLater,
            ErrorCode::AlreadyRunning
            | ErrorCode::NotRunning
            | ErrorCode::NotPaused
            | ErrorCode::Conflict
            | ErrorCode::ToolError
            | ErrorCode::Internal
            | ErrorCode::Other(_) => ExitKind::Failed,
        }
    }

    /// Default error code in JSON.
    fn default_code(self) -> &'static str {
        match self {
            ExitKind::Success => "done",
            ExitKind::Failed => "failed",
            ExitKind::Usage => "usage",
            ExitKind::Refused => "denied",
            ExitKind::Limit => "limit_reached",
            ExitKind::Provider => "provider_error",
            ExitKind::ModelRefused => "refused",
            ExitKind::Storage => "storage_failed",
            ExitKind::TryLater => "try_later",
            ExitKind::Signal => "cancelled",
        }
    }
}

impl From<ExitKind> for ExitCode {
    fn from(exit: ExitKind) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// An error for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CliError {
    pub(crate) exit: ExitKind,
    code: String,
    message: String,
    reasons: Vec<String>,
    hint: Option<String>,
    /// The error was already reported, or its reader is gone.
    silent: bool,
}

impl CliError {
    pub(crate) fn new(exit: ExitKind, message: impl Display) -> CliError {
        CliError {
            exit,
            code: exit.default_code().to_owned(),
            message: message.to_string(),
            reasons: Vec::new(),
            hint: None,
            silent: false,
        }
    }

    pub(crate) fn usage(message: impl Display) -> CliError {
        CliError::new(ExitKind::Usage, message)
    }

    /// Error for a closed stdout; it is not printed.
    pub(crate) fn stdout_closed() -> CliError {
        CliError { silent: true, ..CliError::new(ExitKind::Success, "stdout was closed") }
    }

    /// Returns an exit code without a message.
    pub(crate) fn already_reported(exit: ExitKind) -> CliError {
        CliError { silent: true, ..CliError::new(exit, "") }
    }

    pub(crate) fn is_stdout_closed(&self) -> bool {
        self.silent && self.exit == ExitKind::Success
    }

    pub(crate) fn with_code(mut self, code: impl Display) -> CliError {
        self.code = code.to_string();
        self
    }

    pub(crate) fn with_reason(mut self, why: impl Display) -> CliError {
        self.reasons.push(why.to_string());
        self
    }

    pub(crate) fn with_hint(mut self, hint: impl Display) -> CliError {
        self.hint = Some(hint.to_string());
        self
    }

    /// Adds the sources of an error as reasons.
    fn with_source_reasons(mut self, error: &dyn Error) -> CliError {
        let mut source = error.source();
        while let Some(cause) = source {
            self.reasons.push(cause.to_string());
            source = cause.source();
        }
        self
    }

    /// Returns message, reasons and hint on a single line.
    pub(crate) fn single_line(&self) -> String {
        let mut text = self.message.clone();
        for why in &self.reasons {
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

    /// Formats the error for users. Replaces control characters, because file names and refusals may contain
    /// any.
    pub(crate) fn to_text(&self) -> String {
        let mut text = format!("error: {}\n", indent_lines(&self.message));
        for why in &self.reasons {
            text.push_str(&format!("  why: {}\n", indent_lines(why)));
        }
        if let Some(hint) = &self.hint {
            text.push_str(&format!("  try: {}\n", indent_lines(hint)));
        }
        sanitize_text(&text).into_owned()
    }

    /// Formats the error as a JSON object.
    pub(crate) fn to_json(&self) -> Value {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(error) = error.as_object_mut() {
            if !self.reasons.is_empty() {
                error.insert("why".to_owned(), self.reasons.join("; ").into());
            }
            if let Some(hint) = &self.hint {
                error.insert("hint".to_owned(), hint.clone().into());
            }
        }
        json!({ "error": error })
    }
}

/// Indents continuation lines to the start of the text.
fn indent_lines(text: &str) -> String {
    text.trim_end().replace('\n', "\n       ")
}

impl From<PathsError> for CliError {
    fn from(error: PathsError) -> CliError {
        let exit = match error {
            PathsError::NoHome | PathsError::NotAbsolute { .. } => ExitKind::Usage,
            PathsError::CannotMake { .. }
            | PathsError::NotYours { .. }
            | PathsError::NotADirectory { .. } => ExitKind::Storage,
        };
        CliError::new(exit, &error).with_hint("`minke paths` prints the directories")
    }
}

impl From<RegistryError> for CliError {
    fn from(error: RegistryError) -> CliError {
        let exit = match error {
            RegistryError::DuplicateName { .. }
            | RegistryError::SessionHeld { .. }
            | RegistryError::WriteConflict { .. }
            | RegistryError::TooMany { .. }
            | RegistryError::StillHeld { .. }
            | RegistryError::LockBusy { .. } => ExitKind::TryLater,
            RegistryError::NoFreeName { .. }
            | RegistryError::NotWithin { .. }
            | RegistryError::BadTarget { .. }
            | RegistryError::TooDeep { .. }
            | RegistryError::UnknownPod { .. }
            | RegistryError::BadTicket { .. }
            | RegistryError::NeedsTicket { .. }
            | RegistryError::CannotYield { .. } => ExitKind::Usage,
            RegistryError::TableDamaged { .. }
            | RegistryError::LeaseLost { .. }
            | RegistryError::Io { .. } => ExitKind::Storage,
        };
        CliError::new(exit, &error)
    }
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> CliError {
        if let StoreError::Held { id, who } = &error {
            return session_held_error(*id, who);
        }
        let exit = match &error {
            StoreError::NotFound { .. } | StoreError::NoSuchEntry { .. } | StoreError::Exists { .. } => {
                ExitKind::Usage
            }
            StoreError::Io { .. } | StoreError::Append { .. } => ExitKind::Storage,
            _ => ExitKind::Failed,
        };
        CliError::new(exit, &error).with_source_reasons(&error).with_hint(error.hint())
    }
}

/// Another process works on the session.
fn session_held_error(session: SessionId, who: &LeaseHolder) -> CliError {
    let since = who.since.map(|since| format!(", since {} s", now_millis().saturating_sub(since) / 1_000));
    // The holder without its start time, which is formatted separately.
    let whom = LeaseHolder { since: None, ..who.clone() };
    let name = who.name.as_ref().map_or_else(|| format!("s_{session}"), ToString::to_string);
    CliError::new(ExitKind::TryLater, format!("another process works on session s_{session}"))
        .with_code("held")
        .with_reason(format!("{whom} holds it{}", since.unwrap_or_default()))
        .with_hint(format!(
            "`minke send {name} \"…\"` or `minke attach {name}` talks to it; `minke stop {name}` ends it"
        ))
}

impl From<AppendError> for CliError {
    fn from(error: AppendError) -> CliError {
        CliError::new(ExitKind::Storage, &error).with_source_reasons(&error).with_hint(error.hint())
    }
}

impl From<SyncError> for CliError {
    fn from(error: SyncError) -> CliError {
        CliError::new(ExitKind::Storage, &error).with_source_reasons(&error).with_hint(error.hint())
    }
}

impl From<ConnectionError> for CliError {
    fn from(error: ConnectionError) -> CliError {
        let exit = match &error {
            ConnectionError::Ended { refusal } => ExitKind::from_error_code(&refusal.code),
            _ => ExitKind::TryLater,
        };
        CliError::new(exit, &error).with_source_reasons(&error).with_hint(error.hint())
    }
}

impl From<LaunchError> for CliError {
    fn from(error: LaunchError) -> CliError {
        let exit = match &error {
            LaunchError::Failed { why, .. } if why.code == ErrorCode::Conflict => ExitKind::TryLater,
            LaunchError::Failed { why, .. } => ExitKind::from_error_code(&why.code),
            LaunchError::Registry(_) | LaunchError::Io { .. } => ExitKind::Storage,
            LaunchError::Exited { .. } | LaunchError::NotReady { .. } => ExitKind::Failed,
        };
        let mut failure = CliError::new(exit, &error).with_source_reasons(&error);
        // The same message may arrive both as an error and on stderr; print it once.
        let told = error.to_string();
        let news = |line: &&String| !told.contains(line.trim_start_matches("error: "));
        for line in error.stderr_lines().iter().filter(news) {
            failure = failure.with_reason(format!("output of the pod: {line}"));
        }
        if let LaunchError::Failed { why: PodStartFailure { hint: Some(hint), .. }, .. } = &error {
            return failure.with_hint(hint);
        }
        failure.with_hint("no written entry is lost; `minke ps` and `minke paths` help to find the cause")
    }
}

impl From<FindError> for CliError {
    fn from(error: FindError) -> CliError {
        match error {
            FindError::Registry(error) => error.into(),
            FindError::Store(error) => error.into(),
            FindError::NotFound { .. } | FindError::NoSession { .. } => CliError::usage(&error)
                .with_code("not_found")
                .with_hint("`minke ps --all` lists live pods and sessions"),
            FindError::Ambiguous { .. } => CliError::usage(&error).with_hint("give more of the id"),
        }
    }
}

impl From<Refusal> for CliError {
    fn from(refusal: Refusal) -> CliError {
        let hint = match refusal.code {
            ErrorCode::AlreadyRunning => "wait for the run to end, or `minke cancel NAME`",
            ErrorCode::NotRunning => "`minke ps` shows the state of each pod",
            ErrorCode::NotPaused => "there is no paused run; `minke send NAME TEXT` starts a run",
            ErrorCode::TooMany => "wait until other work has finished",
            ErrorCode::StorageFailed => "free space on the disk",
            _ => "`minke ps` shows the state of each pod",
        };
        CliError::new(ExitKind::from_error_code(&refusal.code), &refusal.message)
            .with_code(&refusal.code)
            .with_hint(hint)
    }
}

impl From<SetupRefusal> for CliError {
    fn from(refusal: SetupRefusal) -> CliError {
        let exit = match refusal.kind {
            SetupRefusalKind::Invalid => ExitKind::Usage,
            SetupRefusalKind::Conflict => ExitKind::TryLater,
            SetupRefusalKind::Storage => ExitKind::Storage,
            SetupRefusalKind::Failed => ExitKind::Failed,
        };
        let SetupRefusal { code, message, reasons, hint, .. } = refusal;
        let code = code.unwrap_or(exit.default_code()).to_owned();
        CliError { exit, code, message, reasons, hint, silent: false }
    }
}

impl From<SetupError> for CliError {
    fn from(error: SetupError) -> CliError {
        match error {
            SetupError::Refused(refusal) => refusal.into(),
            SetupError::Paths(error) => error.into(),
            SetupError::Registry(error) => error.into(),
            SetupError::Store(error) => error.into(),
        }
    }
}

impl From<ApiError> for CliError {
    fn from(fault: ApiError) -> CliError {
        let exit = match fault.code {
            // The conflict may be gone later.
            ErrorCode::Conflict => ExitKind::TryLater,
            ref code => ExitKind::from_error_code(code),
        };
        CliError::new(exit, &fault.message).with_code(fault.code.as_str())
    }
}

impl From<DeliverError> for CliError {
    fn from(error: DeliverError) -> CliError {
        match error {
            DeliverError::Refused { refusal, .. } => refusal.into(),
            DeliverError::Store(error) => error.into(),
            DeliverError::Registry(error) => error.into(),
            DeliverError::Launch(error) => error.into(),
            DeliverError::Connection(error) => error.into(),
            DeliverError::Stopping { ref pod } => CliError::new(ExitKind::TryLater, &error)
                .with_reason("it ends after its run, or it hangs")
                .with_hint(format!("retry in a moment; `minke stop {pod} --kill` ends a pod that hangs")),
            DeliverError::Damaged { session, damage } => StoreError::Damaged { id: session, damage }.into(),
            DeliverError::Append { ref source, .. } => {
                CliError::new(ExitKind::Storage, &error).with_source_reasons(&error).with_hint(source.hint())
            }
            DeliverError::Sync { ref source, .. } => {
                CliError::new(ExitKind::Storage, &error).with_source_reasons(&error).with_hint(source.hint())
            }
            DeliverError::Lease { .. } => CliError::new(ExitKind::Failed, &error).with_source_reasons(&error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_screen_and_cannot_write_escape_sequences() {
        let failure = CliError::usage("no \u{1b}[31mpod").with_reason("a\nb").with_hint("try `minke ps`");
        assert_eq!(failure.to_text(), "error: no ␛[31mpod\n  why: a\n       b\n  try: try `minke ps`\n");
        assert_eq!(
            failure.to_json().to_string(),
            r#"{"error":{"code":"usage","message":"no \u001b[31mpod","why":"a\nb","hint":"try `minke ps`"}}"#
        );
    }
}
