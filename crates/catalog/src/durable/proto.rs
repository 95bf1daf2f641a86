//! The records of the log and the manifest as protocol buffers.
//!
//! Invariant: a field keeps its number and meaning for ever; new fields are optional; a reader skips fields that it does
//! not know. Repeated messages are declared as bytes and decoded one by one: empty ones would otherwise take fifty times as
//! much memory as on the disk.

use bytes::Bytes;
use prost::{Message, Oneof};

/// A record of the log, behind the version that its change makes.
#[derive(Clone, PartialEq, Message)]
pub struct Record {
    #[prost(string, tag = "1")]
    pub tenant: String,
    /// The table or view, as `TableName::encoded` writes it, or the schema.
    #[prost(string, tag = "2")]
    pub name: String,
    /// The ids of the loads that made the change, 16 bytes each.
    #[prost(bytes = "bytes", tag = "3")]
    pub loads: Bytes,
    /// Chunks that lie in the record itself: [`Image`].
    #[prost(bytes = "bytes", repeated, tag = "4")]
    pub images: Vec<Bytes>,
    /// The table as the loads have made it.
    #[prost(uint64, tag = "5")]
    pub rows: u64,
    #[prost(uint64, tag = "6")]
    pub bytes_plain: u64,
    #[prost(uint64, tag = "7")]
    pub bytes_encoded: u64,
    /// For each column of a table that the change creates or whose rows it changes, one more than its number of distinct
    /// values; 0 where that is not known.
    #[prost(uint64, repeated, tag = "8")]
    pub distinct: Vec<u64>,
    #[prost(oneof = "What", tags = "10, 11, 12, 13, 14, 15, 16, 17")]
    pub what: Option<What>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum What {
    #[prost(message, tag = "10")]
    Put(Put),
    #[prost(message, tag = "11")]
    Rows(Rows),
    #[prost(message, tag = "12")]
    Columns(Columns),
    #[prost(message, tag = "13")]
    Drop(Empty),
    /// The text of a view.
    #[prost(string, tag = "14")]
    PutView(String),
    #[prost(message, tag = "15")]
    DropView(Empty),
    #[prost(message, tag = "16")]
    PutSchema(Empty),
    /// The schema goes, with all that is in it.
    #[prost(message, tag = "17")]
    DropSchema(Empty),
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Empty {}

/// A table is created, or replaced by another one.
#[derive(Clone, PartialEq, Message)]
pub struct Put {
    /// [`Field`]s.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub fields: Vec<Bytes>,
    /// [`Group`]s.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub groups: Vec<Bytes>,
    /// One more than the place in [`farpool_model::Tier::ALL`] of what it is encrypted with in memory; 0 where it is not.
    #[prost(uint32, tag = "3")]
    pub tier: u32,
    /// Whether its values stay in memory.
    #[prost(bool, tag = "4")]
    pub is_pinned: bool,
    /// In an encrypted directory its key, wrapped by that of its tenant, and this one, wrapped by that of the directory
    /// (`crates/cipher/src/wrapped.rs`). Empty for a table of a directory without keys.
    #[prost(bytes = "bytes", tag = "5")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "6")]
    pub tenant_key: Bytes,
}

/// Rows of a table are replaced, removed or added.
#[derive(Clone, PartialEq, Message)]
pub struct Rows {
    /// [`Splice`]s, by their first row.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub splices: Vec<Bytes>,
}

/// Row groups in the place of some rows.
#[derive(Clone, PartialEq, Message)]
pub struct Splice {
    /// The first of the rows, counted before the change; it begins a row group.
    #[prost(uint64, tag = "1")]
    pub first_row: u64,
    #[prost(uint64, tag = "2")]
    pub rows: u64,
    /// [`Group`]s.
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub groups: Vec<Bytes>,
}

/// A table gets other columns or another name.
#[derive(Clone, PartialEq, Message)]
pub struct Columns {
    #[prost(string, tag = "1")]
    pub new_name: String,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub fields: Vec<Bytes>,
    /// For each column one more than the position of the old one that it is; 0 for a column of NULLs.
    #[prost(uint32, repeated, tag = "3")]
    pub from: Vec<u32>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Field {
    #[prost(string, tag = "1")]
    pub name: String,
    /// As `farpool_columns::type_to_bytes` writes it.
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
    /// Its chunks, in runs of three numbers: the segment that they are in, 0 for the log; the number of the first; how
    /// many follow one another.
    #[prost(uint64, repeated, tag = "2")]
    pub runs: Vec<u64>,
}

/// A chunk in a record of the log.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Image {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(bytes = "bytes", tag = "2")]
    pub head: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    pub data: Bytes,
}

/// Everything that the records of the log have made, up to one of them.
#[derive(Clone, PartialEq, Message)]
pub struct Manifest {
    /// The number that the directory was given when it was made or restored.
    #[prost(fixed64, tag = "1")]
    pub node: u64,
    /// The number of the first record that is not part of it.
    #[prost(uint64, tag = "2")]
    pub next_record: u64,
    #[prost(uint64, tag = "3")]
    pub versions_made: u64,
    #[prost(uint64, tag = "4")]
    pub next_chunk: u64,
    #[prost(uint64, tag = "5")]
    pub next_segment: u64,
    /// [`Table`]s.
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub tables: Vec<Bytes>,
    /// [`View`]s.
    #[prost(bytes = "bytes", repeated, tag = "7")]
    pub views: Vec<Bytes>,
    /// [`Load`]s, oldest first.
    #[prost(bytes = "bytes", repeated, tag = "8")]
    pub loads: Vec<Bytes>,
    /// [`Forgotten`].
    #[prost(bytes = "bytes", repeated, tag = "9")]
    pub forgotten: Vec<Bytes>,
    /// [`Group`]s of tables whose records follow: where chunks are that these may find in a record before.
    #[prost(bytes = "bytes", repeated, tag = "10")]
    pub others: Vec<Bytes>,
    /// The keys that [`Table::key`]s are wrapped by, as [`Put::tenant_key`].
    #[prost(bytes = "bytes", repeated, tag = "11")]
    pub tenant_keys: Vec<Bytes>,
    /// [`Schema`]s besides `public`.
    #[prost(bytes = "bytes", repeated, tag = "12")]
    pub schemas: Vec<Bytes>,
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
    /// The segment and the number of its profile, and the rows, the first ones, that this is about; nothing without one.
    #[prost(uint64, repeated, tag = "6")]
    pub profile: Vec<u64>,
    /// As [`Record::distinct`].
    #[prost(uint64, repeated, tag = "7")]
    pub distinct: Vec<u64>,
    /// As [`Put::tier`].
    #[prost(uint32, tag = "8")]
    pub tier: u32,
    #[prost(bool, tag = "9")]
    pub is_pinned: bool,
    /// As [`Put::key`].
    #[prost(bytes = "bytes", tag = "10")]
    pub key: Bytes,
}

/// The head of a profile.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Profile {
    /// Bytes of its states, which follow one another in its data.
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

/// A load that had an id, and what it made.
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

/// The newest version of a tenant's load that is forgotten.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Forgotten {
    #[prost(string, tag = "1")]
    pub tenant: String,
    #[prost(uint64, tag = "2")]
    pub version: u64,
}
