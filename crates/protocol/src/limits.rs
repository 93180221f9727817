//! Limits of the wire format. For those of the log see `record`, for those of a pod `manifest`.

/// One line in both directions, without the newline: twice the size of an entry, so that every entry fits.
pub const MAX_FRAME_BYTES: usize = 4 * 1024 * 1024;
/// Number of over-long lines after which the connection is closed.
pub const MAX_LONG_LINES: u32 = 8;
/// Entries in one page. A larger reply would delay the events of all clients.
pub const MAX_PAGE_ENTRIES: usize = 1_000;
/// One piece of a blob before base64. Two of them fit a frame.
pub const BLOB_CHUNK_BYTES: usize = 1024 * 1024;
/// In-flight data in a snapshot; the rest of the frame is for entries.
pub const IN_FLIGHT_BYTES: usize = 1024 * 1024;
/// Waiting methods of one client. Beyond it the server stops reading from this client.
pub const MAX_WAITING_METHODS: usize = 64;
/// Inputs in the queue.
pub const MAX_QUEUED_INPUTS: usize = 64;
/// Waiting notes from `notify`. Each becomes part of the next request.
pub const MAX_WAITING_NOTES: usize = 64;
/// Events in the queue of one client. Beyond it the client lags.
pub const CLIENT_QUEUE_EVENTS: usize = 1_024;
/// Bytes in the queue of one client, the memory for a stalled client.
pub const CLIENT_QUEUE_BYTES: usize = 4 * 1024 * 1024;
/// Stored alerts for later clients; the oldest is dropped.
pub const MAX_ALERTS: usize = 512;
/// Timeout for a socket operation between pods, in milliseconds.
pub const POD_SOCKET_TIMEOUT_MS: u64 = 5_000;
/// Timeout for `hello` in milliseconds. After it the client is treated as one that does not know `hello` and
/// gets all events.
pub const HELLO_TIMEOUT_MS: u64 = 100;
/// Length of the `id` of a method, which is stored until the reply.
pub const ID_BYTES: usize = 256;
/// Longest `wait` in milliseconds (one hour). Clients can wait again.
pub const MAX_WAIT_MS: u64 = 60 * 60 * 1_000;
/// Attempts to continue a broken reply; reported in `llm_continuation.max_attempts`.
pub const MAX_CONTINUATIONS: u32 = 3;
/// Excerpt of a client's line in a refusal.
pub const QUOTE_CHARS: usize = 80;
/// Length of the message of a refusal.
pub const REFUSAL_BYTES: usize = 1_024;
