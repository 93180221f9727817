//! The mailbox: everything that reaches the loop comes through it, one kind each.

use std::sync::Arc;

use minke_model::{Failure, ModelEvent};
use minke_pod::{CallEnd, FileFound, HookPoint, HooksSaid, Prepared, Rewind, Stopped, TreeNews};
use minke_protocol::{Hello, Refusal, ReplyData};
use minke_record::{CallId, PodEvent, Position, RunId, SessionId, SnapshotFile, SnapshotWhen};
use minke_session::{Damage, StoreError};
use minke_tool::CommandNews;

use crate::clients::{Asked, Asker, Client, ClientId};

/// Letters that may lie in the mailbox; whoever sends more waits. The loop never sends to itself, so it never waits.
pub(crate) const MAILBOX: usize = 512;

/// One task that was started for the pod. A number is never used again, so what a stopped task still sends is known as
/// such even if a call is started anew under its old id.
pub(crate) type TaskId = u64;

#[derive(Debug)]
pub(crate) enum Mail {
    /// A client's first line, or the absence of one, has decided what it gets.
    Join {
        client: Arc<Client>,
        hello: Hello,
    },
    /// A client has fallen behind and needs a new place in the stream.
    Behind(Arc<Client>),
    /// A client will say nothing more.
    Left(ClientId),
    Asked(Box<Asked>),
    /// What the log says about where a rewind wants to go.
    Rewind {
        asker: Asker,
        expected_head: Position,
        rewind: Result<Rewind, Refusal>,
    },
    /// What the log says of a pod that is to live again.
    Restore {
        asker: Asker,
        stopped: Result<Box<Stopped>, Refusal>,
    },
    /// Something that was done off the loop for a client.
    Done {
        asker: Asker,
        result: Result<ReplyData, Refusal>,
    },
    Model {
        task: TaskId,
        call: u64,
        events: Vec<ModelEvent>,
        end: Option<Failure>,
    },
    /// Something that the person should know about the disk.
    Alert(String),
    /// The client that this pod was started for is gone.
    OwnerGone,
    /// A client's reader met damage in the log.
    Suspect,
    /// The part of the log that the opening did not check was checked: it is damaged, sound, or cannot be read.
    Checked(Result<Option<Damage>, StoreError>),
    /// Something that the person should know about instructions of a subtree.
    Instructions(String),
    /// What looks like a key was seen.
    Noticed(String),
    Prepared {
        task: TaskId,
        call_id: CallId,
        prepared: Box<Result<Prepared, String>>,
    },
    CallEnded {
        task: TaskId,
        call_id: CallId,
        ended: CallEnd,
    },
    /// A command of a call has said something.
    Command {
        call_id: CallId,
        command_id: String,
        news: CommandNews,
    },
    /// What has changed in the write scope, or why it cannot be seen.
    Captured {
        run: RunId,
        when: SnapshotWhen,
        captured: Result<Vec<SnapshotFile>, String>,
    },
    /// What hooks said at a point.
    HooksSaid {
        point: HookPoint,
        said: Box<HooksSaid>,
    },
    /// Something that the person should know about a hook.
    Hook(String),
    /// News of other pods.
    Tree(Box<TreeNews>),
    /// A report that was found in a child's log.
    Report {
        from: SessionId,
        seq: u64,
        event: Box<PodEvent>,
    },
    /// A rule was added to the person's policy, or could not be.
    RuleAdded(Result<(), String>),
    /// A command has reached a host, or was not let.
    Reached(serde_json::Value),
    FileChecked {
        task: TaskId,
        call_id: CallId,
        found: FileFound,
    },
}
