//! Events: everything that the event loop receives, one variant each.

use std::sync::Arc;

use minke_model::{ModelError, ModelEvent};
use minke_pod::{
    CallEnd, ChildEvent, FileCheck, HookPoint, HookVerdict, PreparedCall, RewindRequest, StoppedPod,
};
use minke_protocol::{Hello, Refusal, ReplyData};
use minke_record::{CallId, PodEvent, Position, RunId, SessionId, SnapshotFile, SnapshotWhen};
use minke_session::{LogDamage, StoreError};
use minke_tool::CommandEvent;

use crate::clients::{ClientConnection, ClientId, MethodRequest, ReplyHandle};

/// Capacity of the event queue; senders wait when it is full. The event loop never sends to itself, so it
/// never waits.
pub(crate) const EVENT_CAPACITY: usize = 512;

/// Identifies one task. Ids are never reused, so events of a stopped task are recognized even if its call is
/// started again under the same id.
pub(crate) type TaskId = u64;

#[derive(Debug)]
pub(crate) enum LoopEvent {
    /// A client's first line, or its absence, has selected a subscription.
    ClientJoined {
        client: Arc<ClientConnection>,
        hello: Hello,
    },
    /// A client has fallen behind and needs a new position in the stream.
    ClientBehind(Arc<ClientConnection>),
    /// A client has closed its input.
    ClientLeft(ClientId),
    Request(Box<MethodRequest>),
    /// The log data for a rewind.
    RewindRead {
        reply_handle: ReplyHandle,
        expected_head: Position,
        rewind: Result<RewindRequest, Refusal>,
    },
    /// The log data of a stopped pod that is to be started again.
    RestoreRead {
        reply_handle: ReplyHandle,
        stopped: Result<Box<StoppedPod>, Refusal>,
    },
    /// The result of a background task for a client.
    BackgroundDone {
        reply_handle: ReplyHandle,
        result: Result<ReplyData, Refusal>,
    },
    ModelReply {
        task: TaskId,
        call: u64,
        events: Vec<ModelEvent>,
        end: Option<ModelError>,
    },
    /// A warning for the user about the disk.
    DiskAlert(String),
    /// The process that owns this pod is gone.
    OwnerGone,
    /// A client's reader has found damage in the log.
    DamageSuspected,
    /// The result of checking the part of the log that opening skips: sound, damaged, or not readable.
    LogChecked(Result<Option<LogDamage>, StoreError>),
    /// A warning for the user about nested instructions.
    InstructionAlert(String),
    /// Text that looks like a secret was found.
    SecretSeen(String),
    Prepared {
        task: TaskId,
        call_id: CallId,
        prepared: Box<Result<PreparedCall, String>>,
    },
    CallEnded {
        task: TaskId,
        call_id: CallId,
        result: CallEnd,
    },
    /// Output or a state change of a call's command.
    CommandOutput {
        call_id: CallId,
        command_id: String,
        event: CommandEvent,
    },
    /// The changes in the write scope, or the reason why the capture failed.
    SnapshotCaptured {
        run: RunId,
        when: SnapshotWhen,
        captured: Result<Vec<SnapshotFile>, String>,
    },
    /// The verdict of the hooks at a point.
    HookVerdict {
        point: HookPoint,
        verdict: Box<HookVerdict>,
    },
    /// A warning for the user about a hook.
    HookAlert(String),
    /// An event of another pod.
    ChildEvent(Box<ChildEvent>),
    /// A report from a child's log.
    ChildReport {
        from: SessionId,
        seq: u64,
        event: Box<PodEvent>,
    },
    /// The result of adding a rule to the user's policy.
    RuleAdded(Result<(), String>),
    /// A command connected to a host or was blocked.
    HostAccess(serde_json::Value),
    FileChecked {
        task: TaskId,
        call_id: CallId,
        file_state: FileCheck,
    },
}
