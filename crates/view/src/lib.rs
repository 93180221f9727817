//! View: what a person sees of a session, for the terminal and the web page alike.
//!
//! A mind: entries and live events come in, blocks and a standing come out. Reading a log from its beginning and
//! watching it live give the same blocks. Elsewhere: how a block looks (`tui`), the words on the wire (`protocol`).

mod block;
mod calls;
mod changes;
mod context;
mod conversation;
mod entries;
mod facts;
mod family;
mod live;
mod loose;
mod older;
mod reply;
mod runs;
mod standing;
mod store;
mod tell;
mod tree;

pub use block::{
    Answered, AskCard, Block, BlockId, Body, Call, CallState, ChildCard, Ended, Notice, NoticeKind, Said,
    Saying, Tail, Words,
};
pub use changes::{Change, Changes, FileChanges};
pub use context::{ContextUse, Filling};
pub use conversation::Conversation;
pub use older::Prepended;
pub use standing::{Child, Queued, Retry, Server, Standing, TaskRow, Tokens};
pub use tree::{PodRow, Tree, TreeRow};
