//! Limits of PostgreSQL's protocol: messages, prepared statements, portals and connections.

/// Maximum bytes of a connection's first message, and of later messages that carry neither text nor values: the limit
/// of PostgreSQL for a client that has not authenticated.
pub const POSTGRES_STARTUP_BYTES_MAX: usize = 10_000;

/// Milliseconds after which a client learns that its password is wrong. Reason: a person who has mistyped hardly notices,
/// and whoever guesses gets at most as many tries in that time as there are places for clients that are not known yet.
pub const POSTGRES_REFUSAL_MS: u64 = 500;

/// Maximum rounds of a SCRAM verifier that another program has made. The client computes them, and a wrong number would
/// keep it for long.
pub const SCRAM_ITERATIONS_MAX: u32 = 1_000_000;

/// Maximum bytes of the salt of such a verifier.
pub const SCRAM_SALT_BYTES_MAX: usize = 64;

/// Maximum bytes of the nonce that a client of SCRAM chooses.
pub const SCRAM_NONCE_BYTES_MAX: usize = 256;

/// Maximum bytes of a message with a statement, with values for parameters, or with rows of a COPY. Reason: an INSERT of
/// a client's batch of rows is several MiB long.
pub const POSTGRES_MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Maximum bytes of messages that are read from a client ahead, while its statement runs. Reason for reading at all:
/// otherwise it would not be noticed that the client has gone.
pub const POSTGRES_AHEAD_BYTES_MAX: usize = 64 << 10;

/// Maximum number of prepared statements per session. Reason: drivers keep some hundreds.
pub const POSTGRES_STATEMENTS_MAX: usize = 1024;

/// Maximum bytes of the texts of a session's prepared statements together.
pub const POSTGRES_STATEMENT_BYTES_MAX: usize = 4 << 20;

/// Maximum number of portals per session. Reason: each may hold a batch of rows, and a program at the pool.
pub const POSTGRES_PORTALS_MAX: usize = 64;

/// Maximum number of savepoints of a transaction, each of which has a copy of the settings.
pub const POSTGRES_SAVEPOINTS_MAX: usize = 64;

/// Maximum number of elements of a list that a client sends.
pub const POSTGRES_ELEMENTS_MAX: usize = 128 << 10;

/// Maximum bytes of the rows of a transaction that are not committed, which are charged to the gateway's memory for work.
pub const POSTGRES_STAGED_BYTES_MAX: usize = 256 << 20;

/// Maximum bytes of the client's own settings, and of the values of others, per session.
pub const POSTGRES_SETTINGS_BYTES_MAX: usize = 16 << 10;

/// Maximum number of clients per gateway. Reason: that of a node ([`CONNECTIONS_MAX`](super::CONNECTIONS_MAX)).
pub const GATEWAY_CONNECTIONS_MAX: usize = 1024;

/// Maximum time in milliseconds that a client may take to read what waits for it, after which its session ends.
pub const POSTGRES_STALL_MS_MAX: u64 = 300_000;
