//! The host: serves all threads to programs. It stores no conversations; all its data comes from the logs.
//!
//! Here: requests (`engine`, `request`), responses (`response`) and errors (`error`), and the methods themselves; the
//! frames of a thread (`frames`, `live_frames`, `subscribe`); the transports (`http`, with `openapi` and `metrics`;
//! `rpc`, which implements JSON-RPC, and `stdio`, which carries it). Elsewhere: session summaries (`thread`), the
//! connection to a pod (`client`), the creation of a session (`launch`).

mod engine;
mod error;
mod error_map;
mod frames;
pub mod http;
mod instance;
mod jobs;
mod metrics;
mod openapi;
mod pods;
mod request;
mod response;
mod rpc;
mod single_flight;
mod stderr;
mod threads;

pub use engine::{Engine, NewThread};
pub use error::ApiError;
pub use frames::subscribe::FrameSubscription;
pub use frames::{
    Frame, FrameContent, FrameFold, FrameId, FramePosition, McpServerStatus, McpServerUpdate, OutputChannel,
    ThreadFrame, ThreadGoal, UserInput,
};
pub use instance::{
    HostError, HostExit, HostInfo, HostOptions, InstanceLock, ensure_running, find_running, run_host,
};
pub use jobs::pending::{PendingJob, pending_jobs, wake_host};
pub use openapi::openapi_document;
pub use request::{REQUEST_KINDS, ThreadName, ThreadRequest};
pub use response::ThreadResponse;
pub use rpc::RpcConnection;
pub use rpc::stdio::serve_stdio;
pub use threads::conversation::FullConversation;
pub use threads::lists::IndexAnswer;
