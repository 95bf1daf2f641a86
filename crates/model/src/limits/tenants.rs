//! Limits of tenants: tables, views and schemas, tokens and certificates, and waiting programs.

/// Maximum number of tables per tenant.
pub const TABLES_PER_TENANT_MAX: usize = 64 << 10;

/// Maximum number of views per tenant. Reason: people and tools keep their names in mind; the list of them is one
/// message of about 1 MiB.
pub const VIEWS_PER_TENANT_MAX: usize = 4 << 10;

/// Maximum number of schemas per tenant in addition to `public`. Reason: people tell groups of tables apart by these
/// names.
pub const SCHEMAS_PER_TENANT_MAX: usize = 1 << 10;

/// Maximum bytes of the access file, which has tokens and rights. Reason: room for about twenty thousand tokens; the
/// operator of the node chooses the path, but one that names a device by mistake must not fill the memory.
pub const ACCESS_FILE_BYTES_MAX: usize = 4 << 20;

/// Maximum bytes of a file with a token. Reason: more than a hello has room for.
pub const TOKEN_FILE_BYTES_MAX: u64 = 64 << 10;

/// Maximum bytes of a PEM file with certificates or a private key. Reason: twice the largest in use, the set of
/// certificates that a system trusts.
pub const PEM_BYTES_MAX: u64 = 1 << 20;

/// Default maximum number of programs of a tenant that wait because the tenant already runs as many as it may at once.
pub const PROGRAMS_WAITING_DEFAULT: usize = 64;

/// Maximum milliseconds that a program waits for its turn among those of its tenant. Reason: as long as for memory, and
/// shorter than clients wait for an answer.
pub const PROGRAM_WAIT_MS_MAX: u64 = 30_000;
