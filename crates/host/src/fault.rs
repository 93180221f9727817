//! Why a request is refused: a code, words, and the numbers by which HTTP and JSON-RPC call it.

use minke_record::ErrorCode;
use serde_json::Value;
use thiserror::Error;

/// A refusal, the same through every door.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{message}")]
pub struct Fault {
    pub code: ErrorCode,
    pub message: String,
    /// The whole answer, where one is documented for this refusal (an unknown thread).
    pub answer: Option<Box<Value>>,
}

impl Fault {
    pub fn new(code: ErrorCode, message: impl ToString) -> Fault {
        Fault { code, message: message.to_string(), answer: None }
    }

    /// What was asked is not what can be asked.
    pub fn invalid(message: impl ToString) -> Fault {
        Fault::new(ErrorCode::InvalidRequest, message)
    }

    pub fn http(&self) -> u16 {
        match self.code {
            ErrorCode::InvalidRequest => 400,
            ErrorCode::Denied => 403,
            ErrorCode::NotFound => 404,
            ErrorCode::Refused => 422,
            ErrorCode::TooMany => 429,
            ErrorCode::ProviderError => 502,
            ErrorCode::StorageFailed => 507,
            ErrorCode::ToolError | ErrorCode::Internal => 500,
            _ => 409,
        }
    }

    pub fn json_rpc(&self) -> i32 {
        match self.code {
            ErrorCode::InvalidRequest => -32_602,
            ErrorCode::NotFound => -32_004,
            _ => -32_000,
        }
    }
}
