//! Limits on tenants: tables, views and schemas, tokens and certificates, and programs that wait.

/// Tables of one tenant.
pub const TABLES_PER_TENANT_MAX: usize = 64 << 10;

/// Views of one tenant: names that people and tools keep in mind. A list of them is one message of some 1 MiB.
pub const VIEWS_PER_TENANT_MAX: usize = 4 << 10;

/// Schemas of one tenant besides `public`: groups of tables that people tell apart by name.
pub const SCHEMAS_PER_TENANT_MAX: usize = 1 << 10;

/// Bytes of the access file, with tokens and rights: room for about twenty thousand tokens. The operator of the node
/// chooses it, but a path that names a device by mistake must not fill the memory.
pub const ACCESS_FILE_BYTES_MAX: usize = 4 << 20;

/// Bytes of a file with a token: more than a hello has room for.
pub const TOKEN_FILE_BYTES_MAX: u64 = 64 << 10;

/// Bytes of a file with certificates, or with a key: twice the set of certificates that a system trusts, the
/// largest in use.
pub const PEM_BYTES_MAX: u64 = 1 << 20;

/// Programs of a tenant that may wait while as many run as it may have at once; the default.
pub const PROGRAMS_WAITING_DEFAULT: usize = 64;

/// Milliseconds that a program may wait for its turn among those of its tenant: as long as for memory, and less than
/// clients wait for an answer.
pub const PROGRAM_WAIT_MS_MAX: u64 = 30_000;
