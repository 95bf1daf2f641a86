//! Limits of the Redis protocol (RESP): requests, replies and connections.

use super::KV_VALUE_BYTES_MAX;

/// Maximum number of arguments per request, including the name of the command. Reason: the limit that Redis had for
/// long. Arguments that have arrived are charged to the client.
pub const RESP_ARGUMENTS_MAX: usize = 1 << 20;

/// Maximum bytes of an argument, and so of a value: the default of Redis.
pub const RESP_ARGUMENT_BYTES_MAX: usize = KV_VALUE_BYTES_MAX;

/// Maximum bytes of an inline command (one line of text), and of a line that states a length: the limit of Redis.
pub const RESP_INLINE_BYTES_MAX: usize = 64 << 10;

/// Maximum number of arguments per request of a client that has not authenticated: the limit of Redis, which allows
/// `HELLO` with all its options.
pub const RESP_UNAUTHENTICATED_ARGUMENTS_MAX: usize = 10;

/// Maximum bytes of an argument, and of an inline command, of a client that has not authenticated: the limit of Redis,
/// which leaves room for a token.
pub const RESP_UNAUTHENTICATED_ARGUMENT_BYTES_MAX: usize = 16 << 10;

/// Maximum number of client connections of the Redis protocol per node, in addition to
/// [`CONNECTIONS_MAX`](super::CONNECTIONS_MAX). Reason: services keep many connections open.
pub const RESP_CONNECTIONS_MAX: usize = 10_000;

/// Maximum bytes of requests that are read from a client while its long command waits for its turn; further ones stay
/// in the buffers of the network. They are charged to the tenant. Reason for reading at all: otherwise it would not be
/// noticed that the client disconnected.
pub const RESP_WAITING_BYTES_MAX: usize = 1 << 20;

/// Maximum bytes of the name of a connection (`CLIENT SETNAME`), which Redis does not limit. Reason: one reply lists
/// all clients of a tenant.
pub const RESP_CLIENT_NAME_BYTES_MAX: usize = 4096;

/// Maximum bytes of unsent replies per client. Reason: room for the longest value and for other replies.
pub const RESP_OUTPUT_BYTES_MAX: usize = KV_VALUE_BYTES_MAX + 2 * RESP_REPLIES_BYTES_MAX;

/// Maximum bytes of requests that are read from a client while it does not read its replies; a client that sends more
/// gets an error and is disconnected. They are charged to the tenant. Reason: the longest value, and more because many
/// clients write a whole pipeline before they read.
pub const RESP_AHEAD_BYTES_MAX: usize = KV_VALUE_BYTES_MAX + (64 << 20);

/// Bytes of buffered replies after which they are sent before the next command of the client runs.
pub const RESP_REPLIES_BYTES_MAX: usize = 1 << 20;

/// Maximum number of commands in the slow log of a tenant, as in Redis.
pub const SLOW_LOG_ENTRIES_MAX: usize = 128;

/// Maximum number of arguments per command in the slow log, as in Redis.
pub const SLOW_LOG_ARGUMENTS_MAX: usize = 32;

/// Maximum bytes of an argument in the slow log, as in Redis.
pub const SLOW_LOG_ARGUMENT_BYTES_MAX: usize = 128;

/// Maximum milliseconds for which `CLIENT PAUSE` may pause the clients of a tenant. Reason: no client of the tenant can
/// end a pause of all commands early.
pub const CLIENT_PAUSE_MS_MAX: u64 = 600_000;
