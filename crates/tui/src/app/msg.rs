//! Messages to the UI state machine, and its effects.

use std::path::PathBuf;

use minke_protocol::{Frame, Method, ReplyData};
use minke_record::{InputSegment, SessionId};

use crate::backend::{BackendError, BackendRequest, BackendResponse, ScopeHolder, WorkTarget};
use crate::composer::ComposerDraft;
use crate::event::TerminalEvent;
use crate::storage::TuiSettings;

/// A message to the UI.
#[derive(Debug, Clone, PartialEq)]
pub enum AppMessage {
    Terminal(TerminalEvent),
    /// A frame from the pod.
    Frame(Box<Frame>),
    /// The pod's reply to the method with this token.
    Reply {
        token: u64,
        data: ReplyData,
    },
    LinkEvent(LinkEvent),
    /// The response of the backend.
    Response {
        token: u64,
        result: Box<Result<BackendResponse, BackendError>>,
    },
    /// The external editor has exited.
    Edited(Result<String, String>),
    /// Time has passed.
    Tick,
    /// Time to poll running pods and open asks.
    Poll,
}

/// A change of the connection.
#[derive(Debug, Clone, PartialEq)]
pub enum LinkEvent {
    /// The pod is connected and sends frames. Contains the saved draft of the session.
    Joined { session: SessionId, name: String, draft: Option<ComposerDraft> },
    /// The connection failed.
    Failed(BackendError),
    /// No session was created, because another pod has write access to the directory.
    ScopeHeld(ScopeHolder),
    /// The connection has ended.
    Lost,
}

/// An effect that the main loop performs.
#[derive(Debug, Clone, PartialEq)]
pub enum AppEffect {
    /// Sends a method to the attached pod.
    Send {
        token: u64,
        method: Method,
    },
    /// Sends an input to the attached pod after resolving references.
    SendInput {
        token: u64,
        input: Vec<InputSegment>,
        mode: minke_protocol::RunMode,
        op_id: String,
    },
    /// Sends a method to the pod at this socket: the answer to a child's ask.
    SendTo {
        token: u64,
        socket: PathBuf,
        method: Method,
    },
    /// Detaches from the current pod and joins this one. With `rejoin`, continues at the last position.
    Attach {
        session: SessionId,
        rejoin: bool,
    },
    /// Creates a session and joins its pod.
    Launch {
        input: Vec<InputSegment>,
        model: Option<String>,
        place: WorkTarget,
    },
    /// Runs the tour in the terminal and then responds.
    Tour {
        token: u64,
    },
    Request {
        token: u64,
        request: BackendRequest,
    },
    /// Copies to the clipboard through the terminal.
    Copy(String),
    /// Opens the text in the user's editor.
    Edit(String),
    Suspend,
    Redraw,
    SaveDraft {
        session: Option<SessionId>,
        draft: ComposerDraft,
    },
    AddHistory(String),
    SaveSettings(TuiSettings),
    Quit,
}
