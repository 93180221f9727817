//! API errors: a code, a message, and the corresponding HTTP and JSON-RPC numbers.

use minke_record::ErrorCode;
use serde_json::Value;
use thiserror::Error;

/// An error response, the same for every transport.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{message}")]
pub struct ApiError {
    pub code: ErrorCode,
    pub message: String,
    /// The complete response, if this error has a documented one (an unknown thread).
    pub response: Option<Box<Value>>,
}

impl ApiError {
    pub fn new(code: ErrorCode, message: impl ToString) -> ApiError {
        ApiError { code, message: message.to_string(), response: None }
    }

    /// Returns an error for an invalid request.
    pub fn invalid(message: impl ToString) -> ApiError {
        ApiError::new(ErrorCode::InvalidRequest, message)
    }

    pub fn http_status(&self) -> u16 {
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

    pub fn json_rpc_code(&self) -> i32 {
        match self.code {
            ErrorCode::InvalidRequest => -32_602,
            ErrorCode::NotFound => -32_004,
            _ => -32_000,
        }
    }
}
