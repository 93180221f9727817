//! How the errors of the hands become refusals: what was tried, why it failed, and the code.

use std::error::Error;

use minke_client::{ConnectionError, DeliverError, LaunchError};
use minke_index::IndexError;
use minke_protocol::Refusal;
use minke_record::ErrorCode;
use minke_registry::RegistryError;
use minke_session::StoreError;

use crate::fault::Fault;

/// An error and everything below it, in one line.
fn whole(error: &dyn Error) -> String {
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

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Fault {
        Fault::new(refusal.code, refusal.message)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Fault {
        let code = match &error {
            StoreError::NotFound { .. } => ErrorCode::NotFound,
            StoreError::NoSuchEntry { .. } => ErrorCode::InvalidRequest,
            StoreError::Exists { .. }
            | StoreError::Held { .. }
            | StoreError::HeldElsewhere { .. }
            | StoreError::WorkspaceElsewhere { .. }
            | StoreError::HasForks { .. }
            | StoreError::NoFork { .. }
            | StoreError::NewerFormat { .. } => ErrorCode::Conflict,
            StoreError::NotTheLease { .. } => ErrorCode::Internal,
            StoreError::Damaged { .. }
            | StoreError::Lineage { .. }
            | StoreError::Blob { .. }
            | StoreError::Io { .. }
            | StoreError::Append { .. } => ErrorCode::StorageFailed,
        };
        Fault::new(code, format!("{}; {}", whole(&error), error.hint()))
    }
}

impl From<RegistryError> for Fault {
    fn from(error: RegistryError) -> Fault {
        let code = match &error {
            RegistryError::TooMany { .. } => ErrorCode::TooMany,
            RegistryError::TableDamaged { .. }
            | RegistryError::LeaseLost { .. }
            | RegistryError::Io { .. } => ErrorCode::StorageFailed,
            RegistryError::UnknownPod { .. } => ErrorCode::NotFound,
            _ => ErrorCode::Conflict,
        };
        Fault::new(code, whole(&error))
    }
}

impl From<ConnectionError> for Fault {
    fn from(error: ConnectionError) -> Fault {
        let code = match &error {
            ConnectionError::TooLarge { .. } => ErrorCode::InvalidRequest,
            ConnectionError::Refused { refusal } => refusal.code.clone(),
            _ => ErrorCode::Internal,
        };
        Fault::new(code, format!("{}; {}", whole(&error), error.hint()))
    }
}

impl From<LaunchError> for Fault {
    fn from(error: LaunchError) -> Fault {
        let code = match &error {
            LaunchError::Failed { why, .. } => why.code.clone(),
            LaunchError::Io { .. } | LaunchError::Registry(_) => ErrorCode::StorageFailed,
            LaunchError::Died { .. } | LaunchError::Silent { .. } => ErrorCode::Internal,
        };
        let said = error.said().join(" / ");
        let said = if said.is_empty() { said } else { format!("; it said: {said}") };
        Fault::new(code, format!("{}{said}", whole(&error)))
    }
}

impl From<DeliverError> for Fault {
    fn from(error: DeliverError) -> Fault {
        match error {
            DeliverError::Refused { refusal, .. } => refusal.into(),
            DeliverError::Store(error) => error.into(),
            DeliverError::Registry(error) => error.into(),
            DeliverError::Launch(error) => error.into(),
            DeliverError::Connection(error) => error.into(),
            DeliverError::Stopping { .. } => Fault::new(ErrorCode::Conflict, whole(&error)),
            DeliverError::Damaged { .. }
            | DeliverError::Append { .. }
            | DeliverError::Sync { .. }
            | DeliverError::Lease { .. } => Fault::new(ErrorCode::StorageFailed, whole(&error)),
        }
    }
}

impl From<IndexError> for Fault {
    fn from(error: IndexError) -> Fault {
        match error {
            IndexError::Store(error) => error.into(),
            IndexError::BadCursor { .. } => Fault::invalid(format!("cursor: {error}")),
            IndexError::Database { .. } | IndexError::Damaged { .. } | IndexError::File { .. } => {
                let message = format!("{}; `minke index rebuild` makes it anew", whole(&error));
                Fault::new(ErrorCode::StorageFailed, message)
            }
        }
    }
}
