//! Frames: the unit of transmission. A 12-byte header and a payload of at most [`limits::FRAME_BYTES_MAX`]
//! bytes. Layout of the header, little-endian:
//!
//! ```text
//! 0        4      5       6          8        12
//! | length | kind | flags | reserved | stream |
//! ```
//!
//! Bit 0 of the flags (MORE) says that the message continues in the next frame of the stream. The other bits
//! and the reserved bytes are zero, so that a later version may give them a meaning.

use farpool_model::{Error, Result, limits};

/// Bytes of a frame's header.
pub const FRAME_HEADER_BYTES: usize = 12;

const FLAG_MORE: u8 = 1;

/// The header before each payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of the payload that follows.
    pub length: u32,
    /// The kind of the message.
    pub kind: FrameKind,
    /// Whether the message continues in the next frame of this stream.
    pub more: bool,
    /// The number of the stream; 0 is the connection itself.
    pub stream: u32,
}

impl FrameHeader {
    /// Encodes the header.
    pub fn encode(&self) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4] = self.kind.number();
        bytes[5] = if self.more { FLAG_MORE } else { 0 };
        bytes[8..12].copy_from_slice(&self.stream.to_le_bytes());
        bytes
    }

    /// Decodes and checks a header.
    ///
    /// # Errors
    /// `Corrupt` if the kind, the length or a flag is not one that version 1 of the protocol knows. The connection
    /// cannot continue after that, since the beginning of the next frame is unknown.
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

/// The purpose of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Begins a connection.
    Greeting,
    /// Opens a stream of its own, on which it is answered.
    Request,
    /// A part of a load, which has a stream of its own.
    Load,
    /// Steers a stream, or keeps the connection alive.
    Control,
    /// Answers what was sent on its stream.
    Answer,
}

macro_rules! frame_kinds {
    ($($(#[doc = $doc:literal])* $name:ident = $number:literal => $role:ident,)*) => {
        /// The kind of a message. Requests go from the client to the node and have numbers below 128;
        /// responses go back.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum FrameKind { $($(#[doc = $doc])* $name = $number,)* }

        impl FrameKind {
            /// Every kind, by number.
            pub const ALL: &[FrameKind] = &[$(FrameKind::$name,)*];

            /// Returns the kind with this number.
            pub fn from_number(number: u8) -> Option<Self> {
                match number { $($number => Some(FrameKind::$name),)* _ => None }
            }

            /// Returns the name used in `docs/wire.md`.
            pub fn name(self) -> &'static str {
                match self { $(FrameKind::$name => stringify!($name),)* }
            }

            /// Returns the purpose of messages of this kind.
            pub fn role(self) -> Role {
                match self { $(FrameKind::$name => Role::$role,)* }
            }
        }
    };
}

frame_kinds! {
    /// Identifies the client; the first message of a connection, on stream 0.
    Hello = 1 => Greeting,
    /// Asks how the node would carry out a plan.
    Prepare = 2 => Request,
    /// Runs a plan.
    Execute = 3 => Request,
    /// Stops the work of this stream.
    Cancel = 4 => Control,
    /// Gives the peer credit to send more bytes of batches on this stream. Both ways.
    Credit = 5 => Control,
    /// Lists the tables and views.
    Tables = 6 => Request,
    /// Describes a table.
    Table = 7 => Request,
    /// Begins to load a table.
    LoadBegin = 8 => Load,
    /// Rows to load.
    LoadBatch = 9 => Load,
    /// Ends the rows of a load: makes the table visible.
    LoadEnd = 10 => Load,
    /// Drops a table.
    Drop = 11 => Request,
    /// Reports the state of the pool.
    Status = 12 => Request,
    /// Asks for the statistics of a table.
    Statistics = 13 => Request,
    /// Asks whether the peer is there. Both ways, on stream 0.
    Ping = 14 => Control,
    /// Lists the programs under way.
    Queries = 15 => Request,
    /// Stops a program of any connection.
    CancelQuery = 16 => Request,
    /// Asks for the outcome of a load.
    LoadOutcome = 17 => Request,
    /// Changes a table's columns or name.
    AlterTable = 18 => Request,
    /// Creates or replaces a view.
    CreateView = 19 => Request,
    /// Drops a view.
    DropView = 20 => Request,
    /// Changes rows of a table with a prepared program.
    ChangeRows = 22 => Request,
    /// Makes a checkpoint and keeps its files for the connection.
    Backup = 23 => Request,
    /// Reads a part of a file of the connection's backup.
    BackupRead = 24 => Request,
    /// Another request, whose answers must be sealed.
    Sealed = 25 => Request,
    /// Requests the outlines of the chunks of a prepared program's table version.
    Outlines = 26 => Request,
    /// Asks for the values of such chunks.
    Fetch = 27 => Request,
    /// Creates a schema.
    CreateSchema = 28 => Request,
    /// Drops a schema.
    DropSchema = 29 => Request,
    /// Identifies the node; answers `Hello`.
    Welcome = 129 => Greeting,
    /// The answers to a plan; answers `Prepare`, and comes first after `Execute`.
    Prepared = 130 => Answer,
    /// Rows of a result.
    Batch = 131 => Answer,
    /// The cost of a program; ends `Execute`.
    Receipt = 132 => Answer,
    /// Answers `Tables`.
    TableList = 133 => Answer,
    /// Answers `Table`.
    TableInfo = 134 => Answer,
    /// The load is complete; answers `LoadEnd`.
    Loaded = 135 => Answer,
    /// Answers `Drop`, `DropView` and `DropSchema`.
    Dropped = 136 => Answer,
    /// Answers `Status`.
    StatusInfo = 137 => Answer,
    /// The request failed; ends the stream. On stream 0 it ends the connection.
    Error = 138 => Answer,
    /// Rows of a result, as a parcel.
    Parcel = 139 => Answer,
    /// Answers `Statistics`.
    TableStatistics = 140 => Answer,
    /// Answers `Table` when the client knows the newest version.
    Unchanged = 141 => Answer,
    /// Answers `Ping`. Both ways, on stream 0.
    Pong = 142 => Control,
    /// Answers `Queries`.
    QueryList = 143 => Answer,
    /// Answers `CancelQuery`.
    QueryCancelled = 144 => Answer,
    /// Answers `LoadOutcome`.
    LoadEnded = 145 => Answer,
    /// A view; answers `CreateView`, and `Table` when the client accepts views.
    ViewInfo = 146 => Answer,
    /// Answers `Backup`.
    BackupFiles = 147 => Answer,
    /// Answers `BackupRead`.
    BackupBytes = 148 => Answer,
    /// Answers `Outlines`.
    OutlineList = 149 => Answer,
    /// The values of a chunk, in answer to `Fetch`.
    Chunk = 150 => Answer,
    /// Answers `CreateSchema`.
    SchemaCreated = 151 => Answer,
}

impl FrameKind {
    /// Returns the number on the wire.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Returns whether messages of this kind count against the credit of their stream.
    pub fn is_flow_controlled(self) -> bool {
        matches!(self, FrameKind::LoadBatch | FrameKind::Batch | FrameKind::Parcel | FrameKind::Chunk)
    }

    /// Returns whether messages of this kind consist of one frame, which may come between the frames of another message
    /// of its stream.
    pub fn is_control(self) -> bool {
        matches!(self, FrameKind::Cancel | FrameKind::Credit | FrameKind::Error) || self.is_keepalive()
    }

    /// Returns whether messages of this kind check that a peer is there, and belong to no stream.
    pub fn is_keepalive(self) -> bool {
        matches!(self, FrameKind::Ping | FrameKind::Pong)
    }

    /// Returns whether a client sends this kind.
    pub fn is_from_client(self) -> bool {
        self.number() < 128 || self == FrameKind::Pong
    }

    /// Returns whether a node sends this kind.
    pub fn is_from_node(self) -> bool {
        self.number() >= 128 || matches!(self, FrameKind::Credit | FrameKind::Ping)
    }

    /// Returns whether a request of this kind may come within `Sealed`. Rows of a load go to the node, not from it.
    pub fn may_be_sealed(self) -> bool {
        use FrameKind::*;
        match self {
            Prepare | Execute | Tables | Table | Drop | Status | Statistics | Queries | CancelQuery
            | LoadOutcome | AlterTable | CreateView | DropView | CreateSchema | DropSchema | ChangeRows
            | Backup | BackupRead | Outlines | Fetch => true,
            Hello | Cancel | Credit | LoadBegin | LoadBatch | LoadEnd | Ping | Sealed | Welcome
            | Prepared | Batch | Receipt | TableList | TableInfo | Loaded | Dropped | StatusInfo | Error
            | Parcel | TableStatistics | Unchanged | Pong | QueryList | QueryCancelled | LoadEnded
            | ViewInfo | BackupFiles | BackupBytes | OutlineList | Chunk | SchemaCreated => false,
        }
    }

    /// Returns the maximum bytes of an assembled message of this kind, sealed or not.
    pub fn body_bytes_max(self) -> usize {
        let plain = self.message_bytes_max();
        if self.is_from_node() && !self.is_keepalive() && !self.is_control() {
            plain + crate::sealed::added_bytes(plain)
        } else {
            plain
        }
    }

    /// Returns the maximum bytes of a message of this kind that is not sealed.
    pub fn message_bytes_max(self) -> usize {
        match self {
            FrameKind::Hello | FrameKind::Welcome | FrameKind::LoadEnded => 64 << 10,
            FrameKind::Tables | FrameKind::Table | FrameKind::Drop | FrameKind::Statistics => 64 << 10,
            FrameKind::DropView => 64 << 10,
            FrameKind::CreateSchema | FrameKind::DropSchema => 1 << 10,
            FrameKind::SchemaCreated => 64,
            FrameKind::AlterTable => 1 << 20,
            FrameKind::CreateView | FrameKind::ViewInfo => limits::VIEW_BYTES_MAX + (64 << 10),
            FrameKind::Cancel | FrameKind::Credit => 64,
            FrameKind::Ping | FrameKind::Pong => 64,
            FrameKind::LoadEnd | FrameKind::Status | FrameKind::Dropped | FrameKind::Unchanged => 64,
            FrameKind::Queries | FrameKind::CancelQuery | FrameKind::QueryCancelled => 64,
            FrameKind::LoadOutcome | FrameKind::ChangeRows => 64,
            FrameKind::Backup => 64,
            FrameKind::BackupRead => 1 << 10,
            FrameKind::BackupBytes => limits::BACKUP_READ_BYTES_MAX + (1 << 10),
            FrameKind::Error => limits::FRAME_BYTES_MAX,
            // The other fields beside a plan or a schema are small.
            FrameKind::Prepare | FrameKind::Execute | FrameKind::LoadBegin => {
                limits::PLAN_BYTES_MAX + (64 << 10)
            }
            FrameKind::Sealed => limits::PLAN_BYTES_MAX + (65 << 10),
            FrameKind::Receipt => 1 << 20,
            // A plan and two schemas, or a schema and a few numbers for each column.
            FrameKind::Prepared | FrameKind::TableInfo | FrameKind::Loaded | FrameKind::StatusInfo => {
                16 << 20
            }
            FrameKind::TableList | FrameKind::TableStatistics | FrameKind::QueryList => 64 << 20,
            FrameKind::BackupFiles => 64 << 20,
            // A number for each column and row group that is asked for.
            FrameKind::Outlines | FrameKind::Fetch => 1 << 20,
            FrameKind::OutlineList => 64 << 20,
            FrameKind::LoadBatch | FrameKind::Batch | FrameKind::Parcel | FrameKind::Chunk => {
                limits::MESSAGE_BYTES_MAX
            }
        }
    }
}
