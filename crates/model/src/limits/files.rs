//! Limits on files that are read as tables, and on object stores.

use super::{COLUMNS_MAX, STRING_BYTES_MAX};

/// Bytes of the longest first line with which a file is taken for CSV.
pub const CSV_HEADER_BYTES_MAX: u64 = 1 << 20;

/// Fields of one record of a CSV file: several times the columns of a table, so that a line that has too many by a
/// mistake is still counted in its error.
pub const CSV_FIELDS_MAX: usize = 16 * COLUMNS_MAX;

/// Bytes of one record of a CSV or JSON file: those of the longest value. A compressed file may have any
/// number of records; they are read one after the other, so that only a record and a batch are held in
/// memory.
pub const RECORD_BYTES_MAX: usize = STRING_BYTES_MAX;

/// Texts that represent NULL in one file: each field is compared with all of them.
pub const NULL_TEXTS_MAX: usize = 64;

/// Files of one table: each is opened, and its beginning read, before the first row.
pub const FILES_MAX: usize = 64 << 10;

/// Objects below one prefix of an object store that are listed to find those that match a pattern.
pub const OBJECTS_LISTED_MAX: usize = 1 << 20;

/// Product of the numbers of alternatives of all `{a,b}` in one file pattern: each combination is a pattern
/// of its own.
pub const PATTERN_ALTERNATIVES_MAX: usize = 1024;

/// Zeros after the first bytes of an Arrow IPC file: its buffers are aligned to at most as many bytes.
pub const IPC_PADDING_BYTES_MAX: usize = 64;

/// Uncompressed bytes of one compressed buffer of an Arrow IPC file: more than arrays with 32-bit offsets can
/// have.
pub const IPC_BUFFER_BYTES_MAX: i64 = 4 << 30;
