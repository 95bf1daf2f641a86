//! Limits on connections of the native protocol: frames, messages, credit, streams and the times that peers may take.

use super::{EXPR_BYTES_MAX, PATTERNS_BYTES_MAX, PLAN_BYTES_MAX, ROW_GROUP_ROWS};

/// Bytes of the largest frame on the wire. Larger frames leave the CPU caches and measured 1.3 to 1.6
/// times slower on loopback.
pub const FRAME_BYTES_MAX: usize = 512 << 10;

/// Bytes that a peer may have in flight on one stream before it must wait for credit.
pub const STREAM_WINDOW_BYTES: usize = 4 << 20;

/// Bytes of one whole message assembled from frames (a record batch with long strings, a plan). The limit
/// also applies to a batch once its buffers are decompressed, and to its strings counted once for each row
/// even where rows share one: it bounds what reading, checking and encoding the batch may cost.
pub const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// Rows of one record batch on the wire. A batch without columns has no bytes that would bound its rows, yet
/// its reader has some work for each row group that they fill: 256 at most.
pub const MESSAGE_ROWS_MAX: usize = 256 * ROW_GROUP_ROWS;

/// Buffers of one record batch on the wire: two for each column, and the data buffers of views if a writer
/// puts at least 16 KiB in each. A reader keeps some 50 bytes for each buffer, however short it is.
pub const MESSAGE_BUFFERS_MAX: usize = 64 << 10;

/// Bytes of incomplete messages on all streams of one connection together: the largest message, and a window for each
/// stream.
pub const INCOMPLETE_BYTES_MAX: usize = MESSAGE_BYTES_MAX + STREAMS_PER_CONNECTION_MAX * STREAM_WINDOW_BYTES;

/// Bytes of credit that a peer may grant at once: more is an attempt to overflow the counter.
pub const CREDIT_BYTES_MAX: u64 = 1 << 40;

/// Requests that one connection may have open at once.
pub const STREAMS_PER_CONNECTION_MAX: usize = 64;

/// Connections of clients that a node serves at once, beside those of the Redis protocol
/// ([`RESP_CONNECTIONS_MAX`](super::RESP_CONNECTIONS_MAX)).
pub const CONNECTIONS_MAX: usize = 1024;

/// The part of the connections of a port that only tenants with few of them get: one tenant cannot keep all others out.
pub const CONNECTIONS_RESERVED_PART: usize = 8;

/// The part of the connections of a port up to which a tenant has few: 8 of 1,024, 78 of 10,000.
pub const CONNECTIONS_FEW_PART: usize = 128;

/// Connections that have not said hello yet, in addition to those of clients. A distant client that needs a
/// round trip for its hello loses its place only if this many connections come after it in that time.
pub const GREETINGS_MAX: usize = 256;

/// Result batches that wait for a slow client before its query stops getting workers.
pub const QUEUED_BATCHES_MAX: usize = 8;

/// Milliseconds after which a client that was told to retry later may do so: at least a round trip, at most
/// as long as a person waits without feedback.
pub const RETRY_AFTER_MS: std::ops::RangeInclusive<u64> = 100..=10_000;

/// Retries of a client that was refused temporarily, before its caller gets the error.
pub const RETRIES_MAX: u32 = 5;

/// Milliseconds a peer may take to say hello, and to accept a connection.
pub const HANDSHAKE_MS_MAX: u64 = 10_000;

/// Characters of a client's description of itself in lists of connections; longer ones are truncated.
pub const CLIENT_CHARS_MAX: usize = 64;

/// Requests for encryption that a PostgreSQL client may make before it is told that this is the wrong port: one for TLS
/// and one for GSSAPI.
pub const POSTGRES_REQUESTS_MAX: usize = 2;

/// Programs in one list of queries: at most one for each stream of each connection.
pub const LISTED_QUERIES_MAX: usize = CONNECTIONS_MAX * STREAMS_PER_CONNECTION_MAX;

/// Columns of all tables in one list of tables: more than the message has room for, unless a peer designs it
/// to take much memory.
pub const LISTED_COLUMNS_MAX: usize = 1 << 20;

/// Prepared programs that one connection may keep: enough for a few statements with many joins each. Beyond
/// it the least recently used one is evicted.
pub const HANDLES_PER_CONNECTION_MAX: usize = 256;

/// Bytes of the prepared programs of one connection together: of their plans, and of expressions and patterns
/// as decoded and as compiled. One of the largest fits.
pub const HANDLE_BYTES_MAX: usize = PLAN_BYTES_MAX + 2 * (EXPR_BYTES_MAX + PATTERNS_BYTES_MAX);

/// Bytes of messages from one node that a client holds, complete or not, before they are read: four of the
/// largest, or the windows of a few connections full of results.
pub const UNREAD_BYTES_MAX: usize = 1 << 30;

/// Milliseconds without a byte from a peer of which something is expected, after which it is sent a `Ping`. A
/// small multiple of the longest pause of a healthy peer on a busy machine.
pub const PING_AFTER_MS: u64 = 15_000;

/// Milliseconds for which a client waits for the next message of an answer while the node answers each `Ping`. Longer
/// than any program computes in memory before it returns rows or its receipt, or waits for its turn.
pub const ANSWER_MS_MAX: u64 = 3_600_000;

/// Milliseconds without a byte from a client after which a node sends it a `Ping`. A client may well be idle,
/// so there is no hurry, but a client that vanished still holds memory.
pub const CLIENT_PING_AFTER_MS: u64 = 60_000;

/// Milliseconds without a byte from the peer after a `Ping` until the connection is given up: several
/// retransmissions of a lost packet, and less than a person waits.
pub const PONG_MS_MAX: u64 = 30_000;

/// Milliseconds that rows of a result may wait for credit, or for room on the connection, before their program is
/// ended: as long as a person who reads page by page may take for one.
pub const UNREAD_MS_MAX: u64 = 600_000;
