//! Outside: what the terminal asks of the program around it, which knows sessions, pods and models.
//!
//! Everything that reaches beyond one pod's socket goes through this one door, so that the terminal can be tested with a
//! room of paper.

use std::path::PathBuf;
use std::pin::Pin;

use minke_protocol::{Completions, ListCompletions};
use minke_record::{AskId, Decision, InputSegment, Item, Millis, SessionId};
use minke_view::PodRow;

use crate::panes::{AskRow, ThreadRow};

/// What is asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Question {
    /// A pod that lives on the session, started if none does.
    Reach(SessionId),
    /// A new session in this directory with a first input, and its pod. None of the model: the one that is set up.
    Launch {
        input: Vec<InputSegment>,
        model: Option<String>,
        place: Where,
    },
    /// Everybody who lives, and who is remembered.
    Pods,
    /// Conversations; with words, those in which they were said. `everywhere`: of other directories, too.
    Threads {
        words: String,
        everywhere: bool,
    },
    /// What a pod that is begun here would complete.
    Complete(ListCompletions),
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
    /// Puts it back among the others.
    Unarchive(SessionId),
    /// Stops its run at a safe point.
    PausePod(SessionId),
    /// Goes on with a run that is paused.
    ResumePod(SessionId),
    Rename {
        session: SessionId,
        name: String,
    },
    /// An input for a pod that is not attached; waits while a run goes on.
    Message {
        session: SessionId,
        input: Vec<InputSegment>,
    },
    /// Open questions of all pods. `everywhere`: also of sessions on which no pod lives, which takes longer.
    Asks {
        everywhere: bool,
    },
    Answer {
        session: SessionId,
        ask: AskId,
        decision: Decision,
        note: Option<String>,
    },
    /// What was said last in a conversation, and what was answered.
    Look(SessionId),
    /// Models of servers on this machine that answer.
    Local,
    /// Rules that hold where the session works, or here; with a line, what would happen to that command.
    Policy {
        session: Option<SessionId>,
        line: Option<String>,
    },
    /// Skills and workflows where the session works, or here.
    Skills(Option<SessionId>),
    Doctor,
    /// The conversation as a file.
    Export {
        session: SessionId,
        file: Option<String>,
    },
    /// The tour. The terminal is its own while it goes on.
    Tour,
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
    Completions(Completions),
    Models(Vec<ModelLine>),
    FirstRun(FirstRun),
    /// Somebody else writes where the new session was to work.
    Held(Holder),
    Asks {
        rows: Vec<AskRow>,
        /// Whose log cannot be read, and why.
        unread: Vec<String>,
    },
    Look(Look),
    Local(Vec<ModelLine>),
    Skills(Vec<SkillLine>),
    Text {
        title: String,
        lines: Vec<String>,
    },
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

/// Where a new session works.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Where {
    /// In the directory, with the right to write there.
    #[default]
    Here,
    /// In the directory, without.
    ReadOnly,
    /// In a clone of the workspace.
    Clone,
}

/// Who holds a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub session: SessionId,
    pub name: String,
    /// What it holds, and what it does there.
    pub says: String,
}

/// The end of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    pub session: SessionId,
    pub said: String,
    pub replied: String,
}

/// A skill or a workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillLine {
    pub name: String,
    pub says: String,
    /// What it is, and where it comes from.
    pub from: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelLine {
    pub reference: String,
    /// Whether it could be asked now.
    pub ready: bool,
    /// What is known of it; of one that is not ready, how it becomes so.
    pub note: String,
}

/// What somebody finds who starts for the first time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FirstRun {
    /// The model that new pods ask, if one is set up.
    pub model: Option<String>,
    /// Those that could be asked now: their key is there, or they need none.
    pub ready: Vec<ModelLine>,
    /// Providers whose key is missing, and how it would be had.
    pub missing: Vec<ModelLine>,
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
