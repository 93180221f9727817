//! Converts errors of the adapters to API errors: the action, the cause, and the code.

use std::error::Error;

use minke_client::ConnectionError;
use minke_index::IndexError;
use minke_launch::{DeliverError, LaunchError, SetupError, SetupRefusal, SetupRefusalKind};
use minke_protocol::Refusal;
use minke_record::ErrorCode;
use minke_registry::{PathsError, RegistryError};
use minke_session::StoreError;

use crate::error::ApiError;

/// Returns an error and its sources in one line.
fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> ApiError {
        ApiError::new(refusal.code, refusal.message)
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> ApiError {
        let code = match &error {
            StoreError::NotFound { .. } => ErrorCode::NotFound,
            StoreError::NoSuchEntry { .. } => ErrorCode::InvalidRequest,
            StoreError::Exists { .. }
            | StoreError::Held { .. }
            | StoreError::HeldByOtherHome { .. }
            | StoreError::WorkspaceOnOtherHost { .. }
            | StoreError::HasForks { .. }
            | StoreError::CannotFork { .. }
            | StoreError::NewerFormat { .. } => ErrorCode::Conflict,
            StoreError::WrongLease { .. } => ErrorCode::Internal,
            StoreError::Damaged { .. }
            | StoreError::Lineage { .. }
            | StoreError::Blob { .. }
            | StoreError::Io { .. }
            | StoreError::Append { .. } => ErrorCode::StorageFailed,
        };
        ApiError::new(code, format!("{}; {}", error_chain(&error), error.hint()))
    }
}

impl From<RegistryError> for ApiError {
    fn from(error: RegistryError) -> ApiError {
        let code = match &error {
            RegistryError::TooMany { .. } => ErrorCode::TooMany,
            RegistryError::TableDamaged { .. }
            | RegistryError::LeaseLost { .. }
            | RegistryError::Io { .. } => ErrorCode::StorageFailed,
            RegistryError::UnknownPod { .. } => ErrorCode::NotFound,
            _ => ErrorCode::Conflict,
        };
        ApiError::new(code, error_chain(&error))
    }
}

impl From<ConnectionError> for ApiError {
    fn from(error: ConnectionError) -> ApiError {
        let code = match &error {
            ConnectionError::TooLarge { .. } => ErrorCode::InvalidRequest,
            ConnectionError::Refused { refusal } => refusal.code.clone(),
            _ => ErrorCode::Internal,
        };
        ApiError::new(code, format!("{}; {}", error_chain(&error), error.hint()))
    }
}

impl From<LaunchError> for ApiError {
    fn from(error: LaunchError) -> ApiError {
        let code = match &error {
            LaunchError::Failed { why, .. } => why.code.clone(),
            LaunchError::Io { .. } | LaunchError::Registry(_) => ErrorCode::StorageFailed,
            LaunchError::Exited { .. } | LaunchError::NotReady { .. } => ErrorCode::Internal,
        };
        let stderr_text = error.stderr_lines().join(" / ");
        let said = if stderr_text.is_empty() { stderr_text } else { format!("; its output: {stderr_text}") };
        ApiError::new(code, format!("{}{said}", error_chain(&error)))
    }
}

impl From<DeliverError> for ApiError {
    fn from(error: DeliverError) -> ApiError {
        match error {
            DeliverError::Refused { refusal, .. } => refusal.into(),
            DeliverError::Store(error) => error.into(),
            DeliverError::Registry(error) => error.into(),
            DeliverError::Launch(error) => error.into(),
            DeliverError::Connection(error) => error.into(),
            DeliverError::Stopping { .. } => ApiError::new(ErrorCode::Conflict, error_chain(&error)),
            DeliverError::Damaged { .. }
            | DeliverError::Append { .. }
            | DeliverError::Sync { .. }
            | DeliverError::Lease { .. } => ApiError::new(ErrorCode::StorageFailed, error_chain(&error)),
        }
    }
}

impl From<SetupRefusal> for ApiError {
    fn from(refusal: SetupRefusal) -> ApiError {
        let code = match (refusal.code, refusal.kind) {
            (Some("not_found"), _) => ErrorCode::NotFound,
            (_, SetupRefusalKind::Invalid) => ErrorCode::InvalidRequest,
            (_, SetupRefusalKind::Conflict) => ErrorCode::Conflict,
            (_, SetupRefusalKind::Storage) => ErrorCode::StorageFailed,
            (_, SetupRefusalKind::Failed) => ErrorCode::Internal,
        };
        ApiError::new(code, refusal)
    }
}

impl From<SetupError> for ApiError {
    fn from(error: SetupError) -> ApiError {
        match error {
            SetupError::Refused(refusal) => refusal.into(),
            SetupError::Registry(error) => error.into(),
            SetupError::Store(error) => error.into(),
            SetupError::Paths(error) => {
                let code = match error {
                    PathsError::NoHome | PathsError::NotAbsolute { .. } => ErrorCode::InvalidRequest,
                    PathsError::CannotMake { .. }
                    | PathsError::NotYours { .. }
                    | PathsError::NotADirectory { .. } => ErrorCode::StorageFailed,
                };
                ApiError::new(code, format!("{}; `minke paths` prints the directories", error_chain(&error)))
            }
        }
    }
}

impl From<IndexError> for ApiError {
    fn from(error: IndexError) -> ApiError {
        match error {
            IndexError::Store(error) => error.into(),
            IndexError::BadCursor { .. } => ApiError::invalid(format!("cursor: {error}")),
            IndexError::Database { .. } | IndexError::DamagedFile { .. } | IndexError::File { .. } => {
                let message = format!("{}; run `minke index rebuild`", error_chain(&error));
                ApiError::new(ErrorCode::StorageFailed, message)
            }
        }
    }
}
