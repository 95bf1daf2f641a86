//! Limits of connections of the native protocol: frames, messages, flow-control credit, streams, and timeouts.

use super::{EXPR_BYTES_MAX, PATTERNS_BYTES_MAX, PLAN_BYTES_MAX, ROW_GROUP_ROWS};

/// Maximum bytes per frame of the native protocol. Reason: larger frames do not stay in the CPU caches; they were
/// measured 1.3 to 1.6 times slower on loopback.
pub const FRAME_BYTES_MAX: usize = 512 << 10;

/// Flow-control window per stream: maximum bytes that a peer may send before it must wait for credit.
pub const STREAM_WINDOW_BYTES: usize = 4 << 20;

/// Maximum bytes per message assembled from frames (a plan, or a record batch with long strings). The limit also
/// applies to a batch after decompression, and to its strings counted once per row even where rows share a string.
/// Reason: it bounds the cost of reading, validating and encoding a batch.
pub const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// Maximum number of rows per record batch on the wire. Reason: a batch without columns has no bytes that would bound
/// its rows, and the receiver has some work per row group, of which this allows 256.
pub const MESSAGE_ROWS_MAX: usize = 256 * ROW_GROUP_ROWS;

/// Maximum number of buffers per record batch on the wire. Reason: room for two per column, and for data buffers of
/// string views of at least 16 KiB each. The receiver allocates about 50 bytes per buffer, however short it is.
pub const MESSAGE_BUFFERS_MAX: usize = 64 << 10;

/// Maximum bytes of incomplete messages on all streams of a connection together. Reason: room for one message of the
/// largest size, and for a full window of each stream.
pub const INCOMPLETE_BYTES_MAX: usize = MESSAGE_BYTES_MAX + STREAMS_PER_CONNECTION_MAX * STREAM_WINDOW_BYTES;

/// Maximum bytes of credit per grant. Reason: more can only be an attempt to overflow the counter.
pub const CREDIT_BYTES_MAX: u64 = 1 << 40;

/// Maximum number of open requests (streams) per connection.
pub const STREAMS_PER_CONNECTION_MAX: usize = 64;

/// Maximum number of client connections per node, without those of the Redis protocol
/// ([`RESP_CONNECTIONS_MAX`](super::RESP_CONNECTIONS_MAX)).
pub const CONNECTIONS_MAX: usize = 1024;

/// Divisor: 1/8 of the connections of a port are reserved for tenants that have few connections (see
/// [`CONNECTIONS_FEW_PART`]). Reason: otherwise one tenant could take all connections and lock the others out.
pub const CONNECTIONS_RESERVED_PART: usize = 8;

/// Divisor: a tenant has few connections if it has at most 1/128 of those of a port, which is 8 of 1,024 and 78 of
/// 10,000.
pub const CONNECTIONS_FEW_PART: usize = 128;

/// Maximum number of connections that have not sent their hello, in addition to those of clients; for a further
/// connection the oldest of them is closed. Reason: a distant client needs a round trip for its hello, and is closed
/// only if this many connections come within that time.
pub const GREETINGS_MAX: usize = 256;

/// Maximum number of result batches that are queued for a slow client; workers then stop running its query until it
/// reads.
pub const QUEUED_BATCHES_MAX: usize = 8;

/// Range of the milliseconds after which a client that got a `Busy` error may retry. Reasons: the minimum is about a
/// round trip, and the maximum as long as a person waits without feedback.
pub const RETRY_AFTER_MS: std::ops::RangeInclusive<u64> = 100..=10_000;

/// Maximum number of retries by the client library after `Busy` errors, before it returns the error to its caller.
pub const RETRIES_MAX: u32 = 5;

/// Timeout in milliseconds for establishing a connection, and for the client's hello on it.
pub const HANDSHAKE_MS_MAX: u64 = 10_000;

/// Maximum number of characters of a client's description of itself in lists of connections; longer descriptions are
/// truncated.
pub const CLIENT_CHARS_MAX: usize = 64;

/// Maximum number of requests for encryption that a PostgreSQL client may send before the node answers that this is the
/// wrong port. Reason: such a client may ask for TLS and for GSSAPI.
pub const POSTGRES_REQUESTS_MAX: usize = 2;

/// Maximum number of running programs per list of queries. Reason: no node can run more than one per stream of each
/// connection.
pub const LISTED_QUERIES_MAX: usize = CONNECTIONS_MAX * STREAMS_PER_CONNECTION_MAX;

/// Maximum number of columns, of all tables together, per list of tables. Reason: a message has no room for more,
/// unless a malicious peer makes it so that decoding takes much memory.
pub const LISTED_COLUMNS_MAX: usize = 1 << 20;

/// Maximum number of prepared programs per connection; the least recently used one is evicted for a further one.
/// Reason: enough for a few statements with many joins each.
pub const HANDLES_PER_CONNECTION_MAX: usize = 256;

/// Maximum bytes of all prepared programs of a connection: of their plans, and of expressions and patterns in decoded
/// and in compiled form. Reason: one program of the largest size fits.
pub const HANDLE_BYTES_MAX: usize = PLAN_BYTES_MAX + 2 * (EXPR_BYTES_MAX + PATTERNS_BYTES_MAX);

/// Maximum bytes of messages from one node that a client buffers before they are read, including incomplete ones.
/// Reason: room for four messages of the largest size, or for the full windows of a few connections.
pub const UNREAD_BYTES_MAX: usize = 1 << 30;

/// Milliseconds without a byte from a peer that owes an answer, after which it is sent a `Ping`. Reason: a small
/// multiple of the longest pause of a healthy peer on a busy machine.
pub const PING_AFTER_MS: u64 = 15_000;

/// Maximum milliseconds that a client waits for the next message of an answer while the node answers every `Ping`.
/// Reason: longer than any program waits for its turn, or computes before it returns rows or its execution statistics.
pub const ANSWER_MS_MAX: u64 = 3_600_000;

/// Milliseconds without a byte from a client after which the node sends it a `Ping`. Reason: clients may be idle, so
/// that there is no hurry, but a client that vanished still holds memory.
pub const CLIENT_PING_AFTER_MS: u64 = 60_000;

/// Milliseconds without a byte from the peer after a `Ping`, after which the connection is closed. Reason: several
/// retransmissions of a lost packet fit, and a person waits longer than that.
pub const PONG_MS_MAX: u64 = 30_000;

/// Maximum milliseconds that result rows may wait because the client grants no credit or does not read from its
/// connection; the program is then ended. Reason: a person who reads page by page may take this long for one page.
pub const UNREAD_MS_MAX: u64 = 600_000;
