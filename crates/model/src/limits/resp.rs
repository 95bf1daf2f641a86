//! Limits on the Redis protocol: requests, replies and connections.

use super::KV_VALUE_BYTES_MAX;

/// Arguments of one request over the Redis protocol, the name of the command included: long Redis' own limit. Arguments
/// that have arrived are charged to the client.
pub const RESP_ARGUMENTS_MAX: usize = 1 << 20;

/// Bytes of one argument over the Redis protocol, and so of a value: Redis' default.
pub const RESP_ARGUMENT_BYTES_MAX: usize = KV_VALUE_BYTES_MAX;

/// Bytes of a command in one line over the Redis protocol, and of the line with a length: Redis' own limit.
pub const RESP_INLINE_BYTES_MAX: usize = 64 << 10;

/// Arguments of a request from a client that has not authenticated itself: Redis' own limit, for `HELLO` with all its
/// options.
pub const RESP_UNAUTHENTICATED_ARGUMENTS_MAX: usize = 10;

/// Bytes of an argument, and of a command in one line, from a client that has not authenticated itself: Redis' own
/// limit, and room for a token.
pub const RESP_UNAUTHENTICATED_ARGUMENT_BYTES_MAX: usize = 16 << 10;

/// Connections of clients of the Redis protocol at once, beside [`CONNECTIONS_MAX`](super::CONNECTIONS_MAX): services
/// keep many of them.
pub const RESP_CONNECTIONS_MAX: usize = 10_000;

/// Bytes of requests that are read from a client of the Redis protocol while its long command waits for its turn:
/// without reading, a disconnected client is not noticed. They count for the tenant; further ones wait at the client.
pub const RESP_WAITING_BYTES_MAX: usize = 1 << 20;

/// Bytes of the name of a connection of the Redis protocol, which Redis does not limit: all clients of a tenant are
/// listed in one reply.
pub const RESP_CLIENT_NAME_BYTES_MAX: usize = 4096;

/// Bytes of replies to a client of the Redis protocol that are in memory at once: the longest value, and others.
pub const RESP_OUTPUT_BYTES_MAX: usize = KV_VALUE_BYTES_MAX + 2 * RESP_REPLIES_BYTES_MAX;

/// Bytes of requests that are read from a client of the Redis protocol while it does not read its replies, beyond the
/// longest value: many clients write a whole pipeline before they read. They count for the tenant. A client that sends
/// more gets an error and is disconnected.
pub const RESP_AHEAD_BYTES_MAX: usize = KV_VALUE_BYTES_MAX + (64 << 20);

/// Bytes of replies after which they are sent before the next command of a client is carried out.
pub const RESP_REPLIES_BYTES_MAX: usize = 1 << 20;

/// Commands in a tenant's log of slow ones at most, arguments of each, and bytes of an argument: as in Redis.
pub const SLOW_LOG_ENTRIES_MAX: usize = 128;

/// See [`SLOW_LOG_ENTRIES_MAX`].
pub const SLOW_LOG_ARGUMENTS_MAX: usize = 32;

/// See [`SLOW_LOG_ENTRIES_MAX`].
pub const SLOW_LOG_ARGUMENT_BYTES_MAX: usize = 128;

/// Milliseconds that `CLIENT PAUSE` may pause the clients of a tenant: no client of the tenant can end a pause of all
/// commands early.
pub const CLIENT_PAUSE_MS_MAX: u64 = 600_000;
