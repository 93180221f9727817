//! The bounds of the wire, each with its reason. The log's bounds are in `record`, a pod's in `manifest`.

/// One line, both ways, newline apart: two whole entries of the log, so that an entry always fits.
pub const FRAME_BYTES: usize = 4 * 1024 * 1024;
/// The over-long line that closes the connection: by then it is no accident.
pub const TOO_LONG_CLOSES: u32 = 8;
/// Entries in one page: more would keep one client's reply in front of everybody's events for too long.
pub const PAGE_ENTRIES: usize = 1_000;
/// One piece of a blob, before base64: it fits a frame twice over.
pub const BLOB_PIECE_BYTES: usize = 1024 * 1024;
/// What is in flight, as it is written in a snapshot: the entries beside it need the rest of the frame.
pub const IN_FLIGHT_BYTES: usize = 1024 * 1024;
/// Methods of one client that wait: beyond it the server stops reading that client.
pub const WAITING_METHODS: usize = 64;
/// Inputs in the queue: a person loses track long before.
pub const QUEUED_INPUTS: usize = 64;
/// Notes from `notify` that wait: each one becomes context of the next request.
pub const WAITING_NOTES: usize = 64;
/// Events in the queue of one client; beyond it the client falls behind.
pub const CLIENT_EVENTS: usize = 1_024;
/// Bytes in the queue of one client: what a stalled client may cost.
pub const CLIENT_BYTES: usize = 4 * 1024 * 1024;
/// Alerts kept for clients that come later; the oldest goes.
pub const ALERTS: usize = 512;
/// Each socket operation between pods, in milliseconds: longer than that and the other one is not there.
pub const POD_SOCKET_MS: u64 = 5_000;
/// A client that says nothing for so long, in milliseconds, is one that does not know `hello`: it gets everything.
pub const HELLO_MS: u64 = 100;
/// The longest `id` of a method, as it is written: it is kept until the reply.
pub const ID_BYTES: usize = 256;
/// The longest `wait`, in milliseconds: an hour. Whoever waits longer asks again.
pub const WAIT_MS: u64 = 60 * 60 * 1_000;
/// How often a broken reply is continued; said in `llm_continuation.max_attempts`.
pub const CONTINUATIONS: u32 = 3;
/// The longest excerpt of a client's line in a refusal: it is for a person.
pub const QUOTE_CHARS: usize = 80;
/// The longest message of a refusal.
pub const REFUSAL_BYTES: usize = 1_024;
