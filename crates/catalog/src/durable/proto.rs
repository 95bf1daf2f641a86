//! Protocol buffer messages of log records and manifests.
//!
//! Some messages look like those of the native protocol (`farpool_wire`). They are not shared: what lies on disk is read
//! for ever, and a protocol negotiates its version with each client.
//!
//! Invariant: a field keeps its number and meaning for ever; new fields are optional; readers skip unknown fields.
//! Repeated messages are declared as bytes and decoded one by one. Otherwise empty messages would take fifty times as
//! much memory as on disk, so that a small corrupted file could exhaust memory.
//!
//! Terms: a *segment* is a file of column chunks. A chunk is *inline* if it is stored in a record of the log instead.
//! A key is *wrapped* if it is encrypted with another key. Ids contain an *origin*, which identifies the node that
//! gave the id. A *profile* is the statistics of a table's rows.

use bytes::Bytes;
use prost::{Message, Oneof};

/// A record of the log, without the version that precedes it.
#[derive(Clone, PartialEq, Message)]
pub struct Record {
    #[prost(string, tag = "1")]
    pub tenant: String,
    /// Name of the table or view, encoded by `TableName::encoded`, or name of the schema.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Ids of the loads whose rows the change has, 16 bytes each.
    #[prost(bytes = "bytes", tag = "3")]
    pub loads: Bytes,
    /// Column chunks that are stored in the record itself (inline chunks), as [`Image`]s.
    #[prost(bytes = "bytes", repeated, tag = "4")]
    pub images: Vec<Bytes>,
    /// Number of rows of the table after the change.
    #[prost(uint64, tag = "5")]
    pub rows: u64,
    #[prost(uint64, tag = "6")]
    pub bytes_plain: u64,
    #[prost(uint64, tag = "7")]
    pub bytes_encoded: u64,
    /// Numbers of distinct values plus one (0 if not known), for each column of a table that the change creates or
    /// whose rows it changes.
    #[prost(uint64, repeated, tag = "8")]
    pub distinct: Vec<u64>,
    #[prost(oneof = "Kind", tags = "10, 11, 12, 13, 14, 15, 16, 17, 18")]
    pub kind: Option<Kind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Kind {
    #[prost(message, tag = "10")]
    Put(Put),
    #[prost(message, tag = "11")]
    Rows(Rows),
    #[prost(message, tag = "12")]
    Columns(Columns),
    #[prost(message, tag = "13")]
    Drop(Empty),
    /// Text of a view.
    #[prost(string, tag = "14")]
    PutView(String),
    #[prost(message, tag = "15")]
    DropView(Empty),
    #[prost(message, tag = "16")]
    PutSchema(Empty),
    /// Drops the schema with all tables and views in it.
    #[prost(message, tag = "17")]
    DropSchema(Empty),
    /// Since format 2.
    #[prost(message, tag = "18")]
    Merged(Merged),
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Empty {}

/// Creates or replaces a table.
#[derive(Clone, PartialEq, Message)]
pub struct Put {
    /// The columns, as encoded [`Field`]s.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub fields: Vec<Bytes>,
    /// The row groups, as encoded [`Group`]s.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub groups: Vec<Bytes>,
    /// Encryption tier of the values in memory: its index in [`farpool_model::Tier::ALL`] plus one, or 0 for none.
    #[prost(uint32, tag = "3")]
    pub tier: u32,
    /// Whether the table is pinned: its values are never evicted from memory.
    #[prost(bool, tag = "4")]
    pub is_pinned: bool,
    /// In an encrypted directory, the table's key wrapped by its tenant's, and the tenant's key wrapped by the
    /// directory's (`crates/cipher/src/wrapped.rs`). Empty for tables without a key.
    #[prost(bytes = "bytes", tag = "5")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "6")]
    pub tenant_key: Bytes,
}

/// Replaces, removes or appends rows of a table.
#[derive(Clone, PartialEq, Message)]
pub struct Rows {
    /// The changes, as encoded [`Splice`]s, ordered by first row.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub splices: Vec<Bytes>,
}

/// Row groups that replace a range of rows.
///
/// Example: `first_row` 20, `rows` 10 and no groups deletes rows 20 to 29; `first_row` 30 and `rows` 0 on a table of 30
/// rows appends.
#[derive(Clone, PartialEq, Message)]
pub struct Splice {
    /// First row of the range before the change; must be the first row of a row group.
    #[prost(uint64, tag = "1")]
    pub first_row: u64,
    #[prost(uint64, tag = "2")]
    pub rows: u64,
    /// The row groups, as encoded [`Group`]s.
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub groups: Vec<Bytes>,
}

/// Merges the row groups of a range of rows into one.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Merged {
    #[prost(uint64, tag = "1")]
    pub first_row: u64,
    #[prost(uint64, tag = "2")]
    pub rows: u64,
}

/// Changes the columns or the name of a table.
#[derive(Clone, PartialEq, Message)]
pub struct Columns {
    #[prost(string, tag = "1")]
    pub new_name: String,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub fields: Vec<Bytes>,
    /// For each new column, the index of the old column plus one, or 0 for a column of NULLs.
    #[prost(uint32, repeated, tag = "3")]
    pub from: Vec<u32>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Field {
    #[prost(string, tag = "1")]
    pub name: String,
    /// Data type, encoded by `farpool_columns::type_to_bytes`.
    #[prost(bytes = "bytes", tag = "2")]
    pub data_type: Bytes,
    #[prost(bool, tag = "3")]
    pub is_nullable: bool,
}

/// A row group.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Group {
    #[prost(uint32, tag = "1")]
    pub rows: u32,
    /// Column chunks as runs of three numbers: the id of the segment (0 for an inline chunk of a log record), the id of
    /// the first chunk, and the number of chunks. Example: `[3, 100, 2, 0, 7, 1]` is chunks 100 and 101 in segment 3,
    /// and then chunk 7 in the log.
    #[prost(uint64, repeated, tag = "2")]
    pub runs: Vec<u64>,
}

/// A column chunk that is stored in a record of the log (an inline chunk).
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Image {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(bytes = "bytes", tag = "2")]
    pub head: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    pub data: Bytes,
}

/// A checkpoint: the state of the catalog after all log records before `next_record`.
#[derive(Clone, PartialEq, Message)]
pub struct Manifest {
    /// Id of the data directory, given when it was created or restored.
    #[prost(fixed64, tag = "1")]
    pub node: u64,
    /// Sequence number of the first record that the manifest does not include.
    #[prost(uint64, tag = "2")]
    pub next_record: u64,
    #[prost(uint64, tag = "3")]
    pub versions_made: u64,
    #[prost(uint64, tag = "4")]
    pub next_chunk: u64,
    #[prost(uint64, tag = "5")]
    pub next_segment: u64,
    /// The tables, as encoded [`Table`]s.
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub tables: Vec<Bytes>,
    /// The views, as encoded [`View`]s.
    #[prost(bytes = "bytes", repeated, tag = "7")]
    pub views: Vec<Bytes>,
    /// The remembered loads, as encoded [`Load`]s, oldest first.
    #[prost(bytes = "bytes", repeated, tag = "8")]
    pub loads: Vec<Bytes>,
    /// Newest versions of forgotten loads by tenant, as encoded [`Forgotten`]s.
    #[prost(bytes = "bytes", repeated, tag = "9")]
    pub forgotten: Vec<Bytes>,
    /// Row groups of tables with records after the manifest, as encoded [`Group`]s: locations of chunks that these
    /// records may refer to.
    #[prost(bytes = "bytes", repeated, tag = "10")]
    pub others: Vec<Bytes>,
    /// Tenants' keys that wrap [`Table::key`]s, encoded like [`Put::tenant_key`].
    #[prost(bytes = "bytes", repeated, tag = "11")]
    pub tenant_keys: Vec<Bytes>,
    /// The schemas other than `public`, as encoded [`Schema`]s.
    #[prost(bytes = "bytes", repeated, tag = "12")]
    pub schemas: Vec<Bytes>,
    /// Origin of the ids that this directory gives to chunks and segments; 0 for a node by itself.
    #[prost(uint32, tag = "13")]
    pub origin: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Table {
    #[prost(string, tag = "1")]
    pub tenant: String,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(uint64, tag = "3")]
    pub version: u64,
    #[prost(bytes = "bytes", repeated, tag = "4")]
    pub fields: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "5")]
    pub groups: Vec<Bytes>,
    /// Ids of the segment and of the profile in it, and the number of leading rows that the profile covers; empty
    /// without a profile.
    #[prost(uint64, repeated, tag = "6")]
    pub profile: Vec<u64>,
    /// Encoded like [`Record::distinct`].
    #[prost(uint64, repeated, tag = "7")]
    pub distinct: Vec<u64>,
    /// Encoded like [`Put::tier`].
    #[prost(uint32, tag = "8")]
    pub tier: u32,
    #[prost(bool, tag = "9")]
    pub is_pinned: bool,
    /// Encoded like [`Put::key`].
    #[prost(bytes = "bytes", tag = "10")]
    pub key: Bytes,
}

/// Metadata of the part of a segment that has the profile of a table.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Profile {
    /// Lengths of the profile's states, which are one after the other in the data of the part.
    #[prost(uint64, repeated, tag = "1")]
    pub lengths: Vec<u64>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct View {
    #[prost(string, tag = "1")]
    pub tenant: String,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub text: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Schema {
    #[prost(string, tag = "1")]
    pub tenant: String,
    #[prost(string, tag = "2")]
    pub name: String,
}

/// A load to which its client gave an id, and the table version that the load created.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Load {
    #[prost(string, tag = "1")]
    pub tenant: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub id: Bytes,
    #[prost(uint64, tag = "3")]
    pub version: u64,
    #[prost(uint64, tag = "4")]
    pub rows: u64,
    #[prost(uint64, tag = "5")]
    pub bytes_plain: u64,
    #[prost(uint64, tag = "6")]
    pub bytes_encoded: u64,
}

/// Newest version among a tenant's loads that were forgotten.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Forgotten {
    #[prost(string, tag = "1")]
    pub tenant: String,
    #[prost(uint64, tag = "2")]
    pub version: u64,
}
