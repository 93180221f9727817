//! The user's view of a session, for the terminal and the web page.
//!
//! Pure: entries and live events come in, blocks and a session status come out. Reading a log and watching it
//! live produce the same blocks. Elsewhere: rendering (`tui`), the wire format (`protocol`).

mod apply;
mod block;
mod block_store;
mod calls;
mod carry;
mod children;
mod context;
mod conversation;
mod format;
mod live_events;
mod pages;
mod pod_tree;
mod reply;
mod runs;
mod session_changes;
mod status;
mod unmatched;

pub use block::{
    AskCard, AskResponse, Block, BlockBody, BlockId, CallCard, CallState, ChildCard, InputBlock, InputState,
    NoticeKind, NoticeLine, RunEndNotice, StreamedText, TextTail,
};
pub use context::{ContextPart, ContextUsage};
pub use conversation::Conversation;
pub use pages::PrependResult;
pub use pod_tree::{PodRow, PodTree, TreeRow};
pub use session_changes::{FileChanges, FileEdit, SessionChanges};
pub use status::{ChildRow, McpServerRow, QueueRow, RetryStatus, SessionStatus, TaskRow, TokenTotals};
