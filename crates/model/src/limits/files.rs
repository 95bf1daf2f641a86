//! Limits of files that are read as tables, and of object stores.

use super::{COLUMNS_MAX, STRING_BYTES_MAX};

/// Maximum bytes of the first line of a file for the file to be recognized as CSV.
pub const CSV_HEADER_BYTES_MAX: u64 = 1 << 20;

/// Maximum number of fields per record of a CSV file. Reason: several times the maximum number of columns, so that the
/// error about a record with too many fields can still say how many it has.
pub const CSV_FIELDS_MAX: usize = 16 * COLUMNS_MAX;

/// Maximum bytes per record of a CSV or JSON file. Reason: that of the longest value. Only one record and one batch are
/// held in memory, so that the number of records in a compressed file is not limited.
pub const RECORD_BYTES_MAX: usize = STRING_BYTES_MAX;

/// Maximum number of strings that represent NULL per file. Reason: each field is compared with all of them.
pub const NULL_TEXTS_MAX: usize = 64;

/// Maximum number of files per table. Reason: each file is opened, and its beginning read, before the first row.
pub const FILES_MAX: usize = 64 << 10;

/// Maximum number of objects below a prefix of an object store that are listed to find those that match a file pattern.
pub const OBJECTS_LISTED_MAX: usize = 1 << 20;

/// Maximum number of patterns that the alternatives `{a,b}` of a file pattern expand to: the product of the numbers of
/// alternatives of all its brackets.
pub const PATTERN_ALTERNATIVES_MAX: usize = 1024;

/// Maximum number of zero bytes after the magic number of an Arrow IPC file. Reason: its buffers are aligned to at most
/// 64 bytes.
pub const IPC_PADDING_BYTES_MAX: usize = 64;

/// Maximum uncompressed bytes of a compressed buffer of an Arrow IPC file. Reason: more than an array with 32-bit
/// offsets can have.
pub const IPC_BUFFER_BYTES_MAX: i64 = 4 << 30;
