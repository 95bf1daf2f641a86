//! Frames: the unit of what is on the wire. A 12-byte header and a payload of at most
//! [`limits::FRAME_BYTES_MAX`] bytes. Layout of the header, little-endian:
//!
//! ```text
//! 0        4      5       6          8        12
//! | length | kind | flags | reserved | stream |
//! ```
//!
//! Bit 0 of the flags (MORE) says that the message goes on in the next frame of the stream. The other
//! bits and the reserved bytes are zero, so that a later version may give them a meaning.

use farpool_model::{Error, Result, limits};

/// Bytes of a frame's header.
pub const FRAME_HEADER_BYTES: usize = 12;

const FLAG_MORE: u8 = 1;

/// What precedes each payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of the payload that follows.
    pub length: u32,
    /// What the message is.
    pub kind: FrameKind,
    /// Whether the message goes on in the next frame of this stream.
    pub more: bool,
    /// The stream; 0 is the connection itself.
    pub stream: u32,
}

impl FrameHeader {
    /// The header's bytes.
    pub fn encode(&self) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4] = self.kind.number();
        bytes[5] = if self.more { FLAG_MORE } else { 0 };
        bytes[8..12].copy_from_slice(&self.stream.to_le_bytes());
        bytes
    }

    /// Reads and checks a header.
    ///
    /// # Errors
    /// `Corrupt` when the kind, the length or a flag is not one that version 1 of the protocol knows. The
    /// connection cannot go on after that: where the next frame begins is not known.
    pub fn decode(bytes: &[u8; FRAME_HEADER_BYTES]) -> Result<Self> {
        let [l0, l1, l2, l3, kind, flags, r0, r1, s0, s1, s2, s3] = *bytes;
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        let stream = u32::from_le_bytes([s0, s1, s2, s3]);
        let damaged = |what: String| Err(Error::corrupt(format!("a damaged frame: {what}")));
        let Some(kind) = FrameKind::from_number(kind) else {
            return damaged(format!("kind {kind} does not exist"));
        };
        if length as usize > limits::FRAME_BYTES_MAX {
            return damaged(format!(
                "a payload may have {} bytes, the header says {length}",
                limits::FRAME_BYTES_MAX
            ));
        }
        if flags & !FLAG_MORE != 0 || (r0, r1) != (0, 0) {
            return damaged(format!("reserved bits are set: flags {flags:#04x}, then {r0:#04x} {r1:#04x}"));
        }
        let more = flags & FLAG_MORE != 0;
        if more && kind.is_control() {
            return damaged(format!("{} has one frame only, but says that more follow", kind.name()));
        }
        if more && length == 0 {
            return damaged("an empty frame says that more follow".into());
        }
        if kind.is_keepalive() && stream != 0 {
            return damaged(format!("{} belongs on stream 0, not {stream}", kind.name()));
        }
        Ok(FrameHeader { length, kind, more, stream })
    }
}

macro_rules! frame_kinds {
    ($($(#[doc = $doc:literal])* $name:ident = $number:literal,)*) => {
        /// What a message is. Requests go from the client to the node and have numbers below 128;
        /// responses go back.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum FrameKind { $($(#[doc = $doc])* $name = $number,)* }

        impl FrameKind {
            /// Every kind, by its number.
            pub const ALL: &[FrameKind] = &[$(FrameKind::$name,)*];

            /// The kind with this number.
            pub fn from_number(number: u8) -> Option<Self> {
                match number { $($number => Some(FrameKind::$name),)* _ => None }
            }

            /// The name that `docs/wire.md` uses.
            pub fn name(self) -> &'static str {
                match self { $(FrameKind::$name => stringify!($name),)* }
            }
        }
    };
}

frame_kinds! {
    /// Who the client is; the first message of a connection, on stream 0.
    Hello = 1,
    /// What would the node do with a plan?
    Prepare = 2,
    /// Run a plan.
    Execute = 3,
    /// Stop what runs on this stream.
    Cancel = 4,
    /// The peer may send more bytes of batches on this stream. Both ways.
    Credit = 5,
    /// List the tables and views.
    Tables = 6,
    /// Describe a table.
    Table = 7,
    /// Begin to load a table.
    LoadBegin = 8,
    /// Rows to load.
    LoadBatch = 9,
    /// All rows have been sent: make the table visible.
    LoadEnd = 10,
    /// Remove a table.
    Drop = 11,
    /// Report the state of the pool.
    Status = 12,
    /// What do the rows of a table hold?
    Statistics = 13,
    /// Are you there? Both ways, on stream 0.
    Ping = 14,
    /// What is under way?
    Queries = 15,
    /// End a program of any connection.
    CancelQuery = 16,
    /// What became of a load?
    LoadOutcome = 17,
    /// Give a table other columns or another name.
    AlterTable = 18,
    /// Keep a view.
    CreateView = 19,
    /// Remove a view.
    DropView = 20,
    /// Change rows of a table by what was prepared.
    ChangeRows = 22,
    /// Who the node is; answers `Hello`.
    Welcome = 129,
    /// The answers to a plan; answers `Prepare`, and comes first after `Execute`.
    Prepared = 130,
    /// Rows of a result.
    Batch = 131,
    /// What a plan has cost; ends `Execute`.
    Receipt = 132,
    /// Answers `Tables`.
    TableList = 133,
    /// Answers `Table`.
    TableInfo = 134,
    /// The load is complete; answers `LoadEnd`.
    Loaded = 135,
    /// Answers `Drop`.
    Dropped = 136,
    /// Answers `Status`.
    StatusInfo = 137,
    /// The request failed; ends the stream. On stream 0 it ends the connection.
    Error = 138,
    /// Rows of a result, packed.
    Parcel = 139,
    /// Answers `Statistics`.
    TableStatistics = 140,
    /// Answers `Table` where the client knows the newest version.
    Unchanged = 141,
    /// Answers `Ping`. Both ways, on stream 0.
    Pong = 142,
    /// Answers `Queries`.
    QueryList = 143,
    /// Answers `CancelQuery`.
    QueryCancelled = 144,
    /// Answers `LoadOutcome`.
    LoadEnded = 145,
    /// A view; answers `CreateView`, and `Table` where the client knows views.
    ViewInfo = 146,
}

impl FrameKind {
    /// The number on the wire.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Whether the kind counts against the credit of its stream.
    pub fn is_flow_controlled(self) -> bool {
        matches!(self, FrameKind::LoadBatch | FrameKind::Batch | FrameKind::Parcel)
    }

    /// Whether messages of this kind consist of one frame, which may come between the frames of another
    /// message of its stream.
    pub fn is_control(self) -> bool {
        matches!(self, FrameKind::Cancel | FrameKind::Credit | FrameKind::Error) || self.is_keepalive()
    }

    /// Whether messages of this kind ask or tell whether a peer is there, which concerns no stream.
    pub fn is_keepalive(self) -> bool {
        matches!(self, FrameKind::Ping | FrameKind::Pong)
    }

    /// Whether a client sends this kind.
    pub fn is_from_client(self) -> bool {
        self.number() < 128 || self == FrameKind::Pong
    }

    /// Whether a node sends this kind.
    pub fn is_from_node(self) -> bool {
        self.number() >= 128 || matches!(self, FrameKind::Credit | FrameKind::Ping)
    }

    /// Bytes that a message of this kind may have when put together.
    pub fn message_bytes_max(self) -> usize {
        match self {
            FrameKind::Hello | FrameKind::Welcome | FrameKind::LoadEnded => 64 << 10,
            FrameKind::Tables | FrameKind::Table | FrameKind::Drop | FrameKind::Statistics => 64 << 10,
            FrameKind::DropView => 64 << 10,
            FrameKind::AlterTable => 1 << 20,
            FrameKind::CreateView | FrameKind::ViewInfo => limits::VIEW_BYTES_MAX + (64 << 10),
            FrameKind::Cancel | FrameKind::Credit => 64,
            FrameKind::Ping | FrameKind::Pong => 64,
            FrameKind::LoadEnd | FrameKind::Status | FrameKind::Dropped | FrameKind::Unchanged => 64,
            FrameKind::Queries | FrameKind::CancelQuery | FrameKind::QueryCancelled => 64,
            FrameKind::LoadOutcome | FrameKind::ChangeRows => 64,
            FrameKind::Error => limits::FRAME_BYTES_MAX,
            // The envelope around a plan or a schema is small.
            FrameKind::Prepare | FrameKind::Execute | FrameKind::LoadBegin => {
                limits::PLAN_BYTES_MAX + (64 << 10)
            }
            FrameKind::Receipt => 1 << 20,
            // A plan and two schemas; a schema and a few numbers for each column.
            FrameKind::Prepared | FrameKind::TableInfo | FrameKind::Loaded | FrameKind::StatusInfo => {
                16 << 20
            }
            FrameKind::TableList | FrameKind::TableStatistics | FrameKind::QueryList => 64 << 20,
            FrameKind::LoadBatch | FrameKind::Batch | FrameKind::Parcel => limits::MESSAGE_BYTES_MAX,
        }
    }
}
