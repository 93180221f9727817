//! What comes to the terminal's mind, and what it wants done: two closed lists.

use std::path::PathBuf;

use minke_protocol::{Frame, Method, ReplyData};
use minke_record::{InputSegment, SessionId};

use crate::composer::Draft;
use crate::event::TermEvent;
use crate::keep::Settings;
use crate::outside::{Answer, Holder, Question, Trouble, Where};

/// Something has happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Msg {
    Term(TermEvent),
    /// The pod said something.
    Frame(Box<Frame>),
    /// The pod answered the method that was sent with this token.
    Reply {
        token: u64,
        data: ReplyData,
    },
    Link(Link),
    /// The program around answered.
    Told {
        token: u64,
        result: Box<Result<Answer, Trouble>>,
    },
    /// The person's own editor is closed.
    Edited(Result<String, String>),
    /// Time has passed.
    Tick,
    /// It is time to see who lives and who asks.
    Around,
}

/// News of the connection.
#[derive(Debug, Clone, PartialEq)]
pub enum Link {
    /// A pod is reached; everything it says follows. With the draft that was kept for its session.
    Joined { session: SessionId, name: String, draft: Option<Draft> },
    /// It was not.
    Failed(Trouble),
    /// No session was begun: somebody else writes there.
    Held(Holder),
    /// The connection has ended.
    Lost,
}

/// Something is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Do {
    /// To the pod that is attached.
    Send {
        token: u64,
        method: Method,
    },
    /// An input for it; words in it may refer to something.
    Say {
        token: u64,
        input: Vec<InputSegment>,
        mode: minke_protocol::RunMode,
        op_id: String,
    },
    /// To the pod at this socket: the answer to a child's question.
    SendTo {
        token: u64,
        socket: PathBuf,
        method: Method,
    },
    /// Leave the pod that is attached, if one is, and join this one. `again`: it is the same, go on where it stood.
    Attach {
        session: SessionId,
        again: bool,
    },
    /// A new session; its pod is joined.
    Launch {
        input: Vec<InputSegment>,
        model: Option<String>,
        place: Where,
    },
    /// The terminal is the tour's until it ends; then this is answered.
    Tour {
        token: u64,
    },
    Ask {
        token: u64,
        question: Question,
    },
    /// To the clipboard, through the terminal.
    Copy(String),
    /// The person's own editor with this text.
    Edit(String),
    Suspend,
    Redraw,
    SaveDraft {
        of: Option<SessionId>,
        draft: Draft,
    },
    AddPast(String),
    SaveSettings(Settings),
    Quit,
}
