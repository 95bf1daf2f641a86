//! The messages of the protocol in one table. It has for each message its number on the wire, its purpose and its
//! maximum size; for each request also the right that the caller needs, the client methods that send it, and the
//! messages that answer it.
//!
//! Invariant: this table is the only list of messages. Clients check answers against it, and a test keeps
//! `docs/wire.md` in agreement with it.

use farpool_model::limits;
use farpool_model::rights::Verb;

/// The purpose of a message in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// A part of the handshake that begins a connection.
    Greeting,
    /// A request: opens a stream of its own, on which it is answered.
    Request,
    /// A part of a load (rows that the client sends to the node); a load has a stream of its own.
    Load,
    /// Controls a stream (cancel, credit), or checks that the peer is alive.
    Control,
    /// Answers the request or the load on its stream.
    Answer,
    /// Says that the request was executed; has no body.
    Done,
}

/// A request of the protocol: the right that it needs, and the messages that answer it. Instead of any answer, or after
/// it, an `Error` may come, which is then the last message.
#[derive(Debug, PartialEq, Eq)]
pub struct NativeVerb {
    /// The operation that the caller must have the right to.
    pub takes: Verb,
    /// The operation that the caller must have the right to if the request concerns other tenants; `None` if it cannot.
    pub takes_of_all: Option<Verb>,
    /// The methods of `farpool_transfer` that send the request. A method of `Pool` also exists for embedded pools.
    pub clients: &'static [&'static str],
    /// The messages that may come as the first answer. If `later_answers` is empty, this is the only answer.
    pub answers: &'static [FrameKind],
    /// The messages that may come after the first answer.
    pub later_answers: &'static [FrameKind],
}

/// Maximum bytes of messages without fields, or with a few numbers.
const NUMBERS_BYTES: usize = 64;

/// Maximum bytes of messages with one name (of a file or a schema).
const NAME_BYTES: usize = 1 << 10;

/// Maximum bytes of messages with a few names, as of tables and tenants.
const NAMES_BYTES: usize = 64 << 10;

/// Maximum bytes of messages with a plan or a schema; the other fields are small.
const PLAN_BYTES: usize = limits::PLAN_BYTES_MAX + (64 << 10);

/// Maximum bytes of messages with a view.
const VIEW_BYTES: usize = limits::VIEW_BYTES_MAX + (64 << 10);

/// Maximum bytes of messages with a number for each column and row group, or a text for each operator.
const COLUMNS_BYTES: usize = 1 << 20;

/// Maximum bytes of messages with a plan and two schemas, or with a schema and a few numbers for each column.
const TABLE_BYTES: usize = 16 << 20;

/// Maximum bytes of messages that list tables, programs, files or chunks.
const LIST_BYTES: usize = 64 << 20;

macro_rules! messages {
    ($(
        $(#[doc = $doc:literal])*
        $name:ident = $number:literal => $role:ident, $bytes:expr
        $(, takes $verb:ident $(or $of_all:ident)?, by [$($client:ident::$method:ident),*],
            answered [$($first:ident),*] $(then [$($later:ident),*])?)?;
    )*) => {
        /// The kind of a message. Requests go from the client to the node and have numbers below 128;
        /// responses go back.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum FrameKind { $($(#[doc = $doc])* $name = $number,)* }

        impl FrameKind {
            /// Every kind, by number.
            pub const ALL: &[FrameKind] = &[$(FrameKind::$name,)*];

            /// Returns the kind with this number; `None` if there is none.
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

            /// Returns the maximum bytes of an unsealed (unencrypted) message of this kind.
            pub fn message_bytes_max(self) -> usize {
                match self { $(FrameKind::$name => $bytes,)* }
            }

            /// Returns the request of the protocol that a message of this kind begins; `None` for a message that begins
            /// none, or contains another one (`Sealed`).
            pub fn verb(self) -> Option<&'static NativeVerb> {
                match self {
                    $(FrameKind::$name => messages!(@verb $(
                        $verb, [$($of_all)?], [$($client::$method),*], [$($first),*], [$($($later),*)?]
                    )?),)*
                }
            }
        }
    };
    (@verb) => { None };
    (
        @verb $verb:ident, [$($of_all:ident)?], [$($client:ident::$method:ident),*],
        [$($first:ident),*], [$($later:ident),*]
    ) => {
        Some(&NativeVerb {
            takes: Verb::$verb,
            takes_of_all: messages!(@option $($of_all)?),
            clients: &[$(concat!(stringify!($client), "::", stringify!($method))),*],
            answers: &[$(FrameKind::$first),*],
            later_answers: &[$(FrameKind::$later),*],
        })
    };
    (@option) => { None };
    (@option $verb:ident) => { Some(Verb::$verb) };
}

messages! {
    /// Identifies the client; the first message of a connection, on stream 0.
    Hello = 1 => Greeting, NAMES_BYTES;
    /// Asks how far the node would execute each operator of a plan (an encoded program), and makes the node keep the
    /// prepared program.
    Prepare = 2 => Request, PLAN_BYTES, takes Prepare, by [Pool::prepare], answered [Prepared];
    /// Executes a plan (an encoded program), or a prepared program.
    Execute = 3 => Request, PLAN_BYTES, takes Execute, by [Pool::execute, Pool::execute_prepared],
        answered [Prepared, Unchanged] then [Batch, Parcel, Receipt];
    /// Cancels the request or load on this stream, and releases the program that was prepared on it.
    Cancel = 4 => Control, NUMBERS_BYTES;
    /// Grants the peer credit to send more bytes of rows on this stream (flow control). Sent by clients and nodes.
    Credit = 5 => Control, NUMBERS_BYTES;
    /// Lists the tables and views.
    Tables = 6 => Request, NAMES_BYTES, takes Describe or DescribeOfAll, by [Pool::list], answered [TableList];
    /// Describes a table.
    Table = 7 => Request, NAMES_BYTES, takes Describe, by [Pool::table, Pool::relation],
        answered [TableInfo, Unchanged, ViewInfo];
    /// Begins a load, which creates, extends or replaces a table.
    LoadBegin = 8 => Load, PLAN_BYTES, takes Load, by [Pool::load], answered [Credit] then [Credit, Loaded];
    /// Rows to load.
    LoadBatch = 9 => Load, limits::MESSAGE_BYTES_MAX;
    /// Says that all rows of a load were sent, so that the node makes the table visible.
    LoadEnd = 10 => Load, NUMBERS_BYTES;
    /// Drops a table.
    Drop = 11 => Request, NAMES_BYTES, takes Drop or DropOfAll, by [Pool::drop_table, Pool::drop_table_of],
        answered [Dropped];
    /// Reports the state of the pool.
    Status = 12 => Request, NUMBERS_BYTES, takes Status or StatusOfAll, by [Pool::status], answered [StatusInfo];
    /// Asks for the statistics of a table.
    Statistics = 13 => Request, NAMES_BYTES, takes Statistics, by [Pool::statistics], answered [TableStatistics];
    /// Asks whether the peer is alive. Sent by clients and nodes, on stream 0.
    Ping = 14 => Control, NUMBERS_BYTES;
    /// Lists the running programs.
    Queries = 15 => Request, NUMBERS_BYTES, takes Queries or QueriesOfAll, by [Pool::queries], answered [QueryList];
    /// Cancels a running program of any connection.
    CancelQuery = 16 => Request, NUMBERS_BYTES, takes CancelQuery or CancelQueryOfAll, by [Pool::cancel_query],
        answered [QueryCancelled];
    /// Asks for the outcome of a load.
    LoadOutcome = 17 => Request, NUMBERS_BYTES, takes LoadOutcome, by [RemotePool::load_outcome],
        answered [LoadEnded];
    /// Changes a table's columns or name.
    AlterTable = 18 => Request, 1 << 20, takes Alter, by [Pool::alter_table], answered [TableInfo];
    /// Creates or replaces a view.
    CreateView = 19 => Request, VIEW_BYTES, takes CreateView, by [Pool::create_view], answered [ViewInfo];
    /// Drops a view.
    DropView = 20 => Request, NAMES_BYTES, takes DropView or DropOfAll, by [Pool::drop_view], answered [Dropped];
    /// Changes rows of a table with a prepared program.
    ChangeRows = 22 => Request, NUMBERS_BYTES, takes Change, by [Pool::change_rows], answered [Loaded];
    /// Makes a checkpoint and keeps its files for the connection.
    Backup = 23 => Request, NUMBERS_BYTES, takes Backup, by [RemotePool::begin_backup], answered [BackupFiles];
    /// Reads a part of a file of the connection's backup.
    BackupRead = 24 => Request, NAME_BYTES, takes Backup, by [RemoteBackup::read], answered [BackupBytes];
    /// Contains another request, whose answers must be sealed (encrypted to the client).
    Sealed = 25 => Request, PLAN_BYTES + (1 << 10);
    /// Asks for descriptions of column chunks in a prepared program's table version.
    Outlines = 26 => Request, COLUMNS_BYTES, takes Execute, by [RemotePool::outlines], answered [OutlineList];
    /// Asks for the values of column chunks in a prepared program's table version.
    Fetch = 27 => Request, COLUMNS_BYTES, takes Execute, by [RemotePool::fetch],
        answered [Unchanged] then [Chunk, Receipt];
    /// Creates a schema.
    CreateSchema = 28 => Request, NAME_BYTES, takes ChangeSchemas, by [Pool::create_schema],
        answered [SchemaCreated];
    /// Drops a schema.
    DropSchema = 29 => Request, NAME_BYTES, takes ChangeSchemas, by [Pool::drop_schema], answered [Dropped];
    /// Identifies the node; answers `Hello`.
    Welcome = 129 => Greeting, NAMES_BYTES;
    /// Says for each operator of a plan how far the node executes it; answers `Prepare`, and is the first answer to
    /// `Execute`.
    Prepared = 130 => Answer, TABLE_BYTES;
    /// Rows of a result.
    Batch = 131 => Answer, limits::MESSAGE_BYTES_MAX;
    /// The execution statistics of a program; the last answer to `Execute` and `Fetch`.
    Receipt = 132 => Answer, COLUMNS_BYTES;
    /// The tables, views and schemas of a tenant; answers `Tables`.
    TableList = 133 => Answer, LIST_BYTES;
    /// The description of a table; answers `Table` and `AlterTable`.
    TableInfo = 134 => Answer, TABLE_BYTES;
    /// The load is complete; answers `LoadEnd`.
    Loaded = 135 => Answer, TABLE_BYTES;
    /// The table, view or schema was dropped; answers `Drop`, `DropView` and `DropSchema`.
    Dropped = 136 => Done, NUMBERS_BYTES;
    /// The state of the pool; answers `Status`.
    StatusInfo = 137 => Answer, TABLE_BYTES;
    /// The request failed; ends the stream. On stream 0 it ends the connection.
    Error = 138 => Answer, limits::FRAME_BYTES_MAX;
    /// Rows of a result as a parcel (encoded column chunks).
    Parcel = 139 => Answer, limits::MESSAGE_BYTES_MAX;
    /// The statistics of a table's columns; answers `Statistics`.
    TableStatistics = 140 => Answer, LIST_BYTES;
    /// Answers `Table` when the client knows the newest version.
    Unchanged = 141 => Answer, NUMBERS_BYTES;
    /// Answers `Ping`. Sent by clients and nodes, on stream 0.
    Pong = 142 => Control, NUMBERS_BYTES;
    /// The running programs; answers `Queries`.
    QueryList = 143 => Answer, LIST_BYTES;
    /// The program is being cancelled; answers `CancelQuery`.
    QueryCancelled = 144 => Done, NUMBERS_BYTES;
    /// The outcome of a load; answers `LoadOutcome`.
    LoadEnded = 145 => Answer, NAMES_BYTES;
    /// A view; answers `CreateView`, and `Table` when the client accepts views.
    ViewInfo = 146 => Answer, VIEW_BYTES;
    /// The files of a backup; answers `Backup`.
    BackupFiles = 147 => Answer, LIST_BYTES;
    /// A part of a file of a backup; answers `BackupRead`.
    BackupBytes = 148 => Answer, limits::BACKUP_READ_BYTES_MAX + (1 << 10);
    /// Descriptions of column chunks; answers `Outlines`.
    OutlineList = 149 => Answer, LIST_BYTES;
    /// The values of a chunk, in answer to `Fetch`.
    Chunk = 150 => Answer, limits::MESSAGE_BYTES_MAX;
    /// The schema was created; answers `CreateSchema`.
    SchemaCreated = 151 => Done, NUMBERS_BYTES;
}

impl FrameKind {
    /// Returns the number on the wire.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Returns whether messages of this kind need credit of their stream (flow control): those with rows.
    pub fn is_flow_controlled(self) -> bool {
        matches!(self, FrameKind::LoadBatch | FrameKind::Batch | FrameKind::Parcel | FrameKind::Chunk)
    }

    /// Returns whether messages of this kind consist of a single frame, which may come between the frames of another
    /// message of the same stream.
    pub fn is_control(self) -> bool {
        self.role() == Role::Control || self == FrameKind::Error
    }

    /// Returns whether messages of this kind check that a peer is alive; they are on stream 0.
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

    /// Returns whether a request of this kind may be sent within `Sealed`, which asks for encrypted answers. A load may
    /// not, because its rows go to the node, not from it.
    pub fn may_be_sealed(self) -> bool {
        self.role() == Role::Request && self.verb().is_some()
    }

    /// Returns the maximum bytes of a message of this kind, sealed (encrypted) or not.
    pub fn body_bytes_max(self) -> usize {
        let plain = self.message_bytes_max();
        if self.is_from_node() && !self.is_keepalive() && !self.is_control() {
            plain + crate::sealed::added_bytes(plain)
        } else {
            plain
        }
    }
}
