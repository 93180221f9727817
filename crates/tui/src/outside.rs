//! Outside: what the terminal asks of the program around it, which knows sessions, pods and models.
//!
//! Everything that reaches beyond one pod's socket goes through this one door, so that the terminal can be tested with a
//! room of paper.

use std::path::PathBuf;
use std::pin::Pin;

use minke_record::{InputSegment, Item, Millis, SessionId};
use minke_view::PodRow;

use crate::panes::ThreadRow;

/// What is asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Question {
    /// A pod that lives on the session, started if none does.
    Reach(SessionId),
    /// A new session in this directory with a first input, and its pod. None of the model: the one that is set up.
    Launch {
        input: Vec<InputSegment>,
        model: Option<String>,
    },
    /// Everybody who lives, and who is remembered.
    Pods,
    /// Conversations; with words, those in which they were said. `everywhere`: of other directories, too.
    Threads {
        words: String,
        everywhere: bool,
    },
    /// Models that can be had here.
    Models,
    /// What somebody who is new could begin with.
    FirstRun,
    /// A new session that begins where this one stands.
    Fork(SessionId),
    /// What was said before this one was forked.
    Before(SessionId),
    Archive(SessionId),
    /// Ends the pod; its session stays.
    Stop(SessionId),
    /// Stops its run at a safe point.
    PausePod(SessionId),
    /// Remembers the model for every new session.
    SetModel(String),
}

/// What comes back.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Reached {
        session: SessionId,
        name: String,
        socket: PathBuf,
    },
    Pods(Vec<PodRow>),
    Threads(Vec<ThreadRow>),
    Models(Vec<ModelLine>),
    FirstRun(FirstRun),
    Forked(SessionId),
    Before(Vec<Item>),
    /// It was done; this is what to say.
    Done(String),
}

/// Why it could not be done: what, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    pub what: String,
    pub hint: Option<String>,
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, " ({hint})"))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelLine {
    pub reference: String,
    /// Whether it could be asked now.
    pub ready: bool,
    pub note: String,
}

/// What somebody finds who starts for the first time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FirstRun {
    /// The model that new pods ask, if one is set up.
    pub model: Option<String>,
    /// Those that could be asked now: their key is there, or they need none.
    pub ready: Vec<ModelLine>,
}

/// What is asked takes its time; the terminal goes on meanwhile.
pub type Asking<'a> = Pin<Box<dyn Future<Output = Result<Answer, Trouble>> + 'a>>;

/// The program around the terminal.
pub trait Outside {
    fn ask(&self, question: Question) -> Asking<'_>;

    /// Words that refer to something become references, as seen from where the session works.
    fn said(&self, session: SessionId, input: Vec<InputSegment>) -> Vec<InputSegment>;

    /// Milliseconds since 1970.
    fn now(&self) -> Millis;

    /// How this program introduces itself to pods.
    fn introduction(&self) -> minke_protocol::ClientInfo;
}
