//! Limits of Arrow Flight SQL: messages, prepared statements, sessions and handles.

/// Maximum bytes of a message of a client: rows, values for parameters, or a statement. Reason: clients split what they
/// load into messages of some MiB.
pub const FLIGHT_MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Maximum bytes of the headers of a request.
pub const FLIGHT_HEADER_BYTES_MAX: u32 = 16 << 10;

/// Maximum bytes of the text of an error. Reason: clients accept 8 KiB of headers, in which a byte may take three.
pub const FLIGHT_ERROR_BYTES_MAX: usize = 2 << 10;

/// Maximum bytes of messages with dictionaries per stream of rows, all of which are held until it ends.
pub const FLIGHT_DICTIONARY_BYTES_MAX: usize = 64 << 20;

/// Maximum bytes of a value in a column of values of a fixed size.
pub const FLIGHT_FIXED_BYTES_MAX: i32 = 1 << 20;

/// Maximum number of values per message in columns of the type Null, which take no bytes in it.
pub const FLIGHT_EMPTY_VALUES_MAX: usize = 1 << 20;

/// Maximum number of streams of rows that are read from a user at a time; others of the user wait. Reason: each may hold
/// a few messages of the greatest size.
pub const FLIGHT_UPLOADS_MAX: usize = 16;

/// Maximum number of prepared statements per user. Reason: those of some connections, as clients close them.
pub const FLIGHT_STATEMENTS_MAX: usize = 1024;

/// Maximum bytes of a user's prepared statements: of their texts, and of the values for their parameters.
pub const FLIGHT_STATEMENT_BYTES_MAX: usize = 64 << 20;

/// Maximum number of sessions with settings of their own per user.
pub const FLIGHT_SESSIONS_MAX: usize = 1024;

/// Maximum number of tickets per user for statements that change something and have not run yet; beyond it, the oldest
/// is forgotten.
pub const FLIGHT_COMMANDS_MAX: usize = 1024;

/// Milliseconds after which a prepared statement, a session or a ticket that nobody uses is forgotten. Reason: clients
/// that vanish do not close theirs.
pub const FLIGHT_IDLE_MS_MAX: u64 = 1_800_000;

/// Milliseconds after which a prepared statement or session that nobody uses is forgotten if there are too many.
pub const FLIGHT_IDLE_MS_MIN: u64 = 60_000;

/// Milliseconds after which the token of a connection is checked again at its next request.
pub const FLIGHT_TOKEN_MS_MAX: u64 = 60_000;

/// Maximum number of tokens that a connection is known to have the right ones of. Reason: a proxy sends requests of
/// several users over one connection.
pub const FLIGHT_TOKENS_MAX: usize = 16;

/// Maximum number of schemas other than `public` in which a user's statements look up names at a time.
pub const FLIGHT_SCHEMAS_MAX: usize = 16;
