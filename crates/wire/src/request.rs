//! The messages from a client to a node of the native protocol, and how they are encoded and decoded.

use crate::message::{Message, Outgoing};
use crate::verbs::FrameKind;
use crate::{batch, chunks, proto};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::Bytes;
use farpool_model::{
    Error, LoadId, LoadOptions, Result, ResultForm, SchemaFingerprint, SchemaName, TableChange, TableName,
    TenantName, Version, View,
};
use std::fmt;

/// A message from a client to a node. A request opens a stream, whose id its answers have, too.
#[derive(Clone, PartialEq)]
pub enum Request {
    /// Identifies the client, and tells which versions of the protocol it speaks. The first message, on stream 0 (the
    /// connection itself).
    Hello {
        /// The oldest protocol version that the client speaks.
        version_min: u32,
        /// The newest protocol version that the client speaks.
        version_max: u32,
        /// The token (secret) that authenticates the client's tenant; `None` for the default tenant.
        token: Option<String>,
        /// Timeout of each request of the client, in milliseconds, at least 1; `None` for no timeout.
        timeout_ms: Option<u64>,
        /// The client's name and version, for logs.
        client: String,
    },
    /// Asks how far the node would execute each operator of this plan, and makes the node keep the prepared program.
    /// Answered by `Prepared`.
    Prepare {
        /// A Substrait plan.
        plan: Vec<u8>,
        /// Fingerprint of the table's columns for which the plan was made. If the table has others by now, the answer
        /// is a `Stale` error.
        schema: Option<SchemaFingerprint>,
    },
    /// Executes this plan. Answered by `Prepared`, then batches or parcels (encoded column chunks) with the rows, last
    /// a `Receipt` (execution statistics).
    Execute {
        /// A Substrait plan.
        plan: Vec<u8>,
        /// Fingerprint of the table's columns for which the plan was made, as in `Prepare`.
        schema: Option<SchemaFingerprint>,
        /// The form of the result's rows: Arrow batches, or parcels (encoded column chunks), which are sent only to
        /// clients that ask for them.
        results: ResultForm,
    },
    /// Runs a prepared program. Answered like `Execute`, but with `Unchanged` in place of `Prepared`.
    ExecutePrepared {
        /// Handle of the prepared program: the id of the stream on which the client sent `Prepare`.
        handle: u32,
        /// A Substrait plan with conditions that are added to the program's filter.
        conditions: Option<Vec<u8>>,
        /// The form of the result's rows, as in `Execute`.
        results: ResultForm,
    },
    /// Cancels the request or load on the stream, and releases the program that was prepared on it.
    Cancel,
    /// Grants the node credit for more bytes of batches on the stream (see [`crate::flow`]).
    Credit {
        /// Bytes on the wire, including the headers of frames.
        bytes: u64,
    },
    /// Lists the tables and views, and the schemas that they are in.
    Tables {
        /// The tenant to list, for clients that may see other tenants; `None` for the client's own.
        tenant: Option<TenantName>,
        /// Whether the client supports schemas; if not, only the tables in `public` are listed.
        with_schemas: bool,
    },
    /// Describes a table.
    Table {
        /// Name of the table.
        name: TableName,
        /// The table version of which the client has a description. If it is still the newest, the answer is
        /// `Unchanged`.
        known: Option<Version>,
        /// Whether the client accepts a view; if not, the name of a view is an error.
        or_view: bool,
    },
    /// Begins to load a table. `LoadBatch`es follow, then `LoadEnd`.
    LoadBegin {
        /// Name of the table.
        table: TableName,
        /// Behavior if the table exists, and the form in which the rows are stored.
        options: LoadOptions,
        /// The canonical schema of the batches.
        schema: SchemaRef,
        /// Approximate number of rows that will come.
        rows_hint: Option<u64>,
        /// Id by which the client can ask for the load's outcome (see `LoadOutcome`).
        id: Option<LoadId>,
    },
    /// Asks for the outcome of a load. If not all rows of the load have come yet, it is ended.
    LoadOutcome {
        /// Id of the load.
        id: LoadId,
    },
    /// Rows to load.
    LoadBatch(RecordBatch),
    /// Ends the rows of a load, so that the table becomes visible.
    LoadEnd,
    /// Drops a table.
    Drop {
        /// Name of the table.
        table: TableName,
        /// The tenant whose table or view is dropped, for clients that may change other tenants'; `None` for the
        /// client's own.
        tenant: Option<TenantName>,
    },
    /// Changes a table's columns or name. Answered by `TableInfo`.
    AlterTable {
        /// Name of the table.
        table: TableName,
        /// The changes, in the order in which they are made. Either all are made, or none.
        changes: Vec<TableChange>,
    },
    /// Changes the rows that a prepared program selects: updates them with the values that the program computes, or
    /// deletes them if it computes none. Answered by `Loaded`.
    ChangeRows {
        /// Handle of the prepared program: the id of the stream on which the client sent `Prepare`.
        handle: u32,
        /// Expected number of rows that the program selects. If it differs, nothing is changed.
        rows: u64,
        /// Id by which the client can ask for the outcome of the change, as for a load.
        id: LoadId,
    },
    /// Creates a view. Answered by `ViewInfo`.
    CreateView {
        /// The name and the SQL text of the view.
        view: View,
        /// Whether to replace a view of the same name.
        replace: bool,
    },
    /// Drops a view.
    DropView {
        /// Name of the view.
        view: TableName,
        /// The tenant whose table or view is dropped, for clients that may change other tenants'; `None` for the
        /// client's own.
        tenant: Option<TenantName>,
    },
    /// Creates a schema. Answered by `SchemaCreated`.
    CreateSchema {
        /// Name of the schema.
        schema: SchemaName,
    },
    /// Drops a schema. Answered by `Dropped`.
    DropSchema {
        /// Name of the schema.
        schema: SchemaName,
        /// Whether to drop all tables and views in the schema, too; if not, it must be empty.
        cascade: bool,
    },
    /// Asks for the statistics of a table.
    Statistics {
        /// Name of the table.
        table: TableName,
        /// Indexes of columns, ascending, whose statistics are sent as far as they are known now, without moments.
        /// `None` to compute and send the statistics of all columns.
        columns: Option<Vec<u32>>,
    },
    /// Asks for the state of the pool.
    Status,
    /// Asks for descriptions of the running programs.
    Queries,
    /// Cancels a running program, whichever connection it was requested on.
    CancelQuery {
        /// Id of the program, as in the answer to `Queries`.
        id: u64,
    },
    /// Makes a checkpoint, and keeps its files until the connection ends, in place of those of an earlier `Backup`.
    Backup,
    /// Reads a part of a file of the connection's backup.
    BackupRead {
        /// Name of the file, as the answer to `Backup` lists it.
        file: String,
        /// Offset of the first byte.
        offset: u64,
        /// Maximum number of bytes; fewer come at the end of the file.
        bytes: u32,
    },
    /// Asks for descriptions of column chunks in a prepared program's table version. Answered by an `OutlineList` with
    /// as many row groups as fit one message.
    Outlines {
        /// Handle of the prepared program: the id of the stream on which the client sent `Prepare`.
        handle: u32,
        /// Positions of columns of the table, ascending; at least one.
        columns: Vec<u32>,
        /// The first row group to describe.
        first: u32,
        /// Id of the list of row groups that the client knows; if it is the version's list, no chunks are described. 0
        /// for none.
        known: u64,
    },
    /// Asks for the values of column chunks in a prepared program's table version. Answered by `Unchanged`, a `Chunk`
    /// for each, and a `Receipt`.
    Fetch {
        /// Handle of the prepared program: the id of the stream on which the client sent `Prepare`.
        handle: u32,
        /// Positions of columns of the table, ascending; at least one.
        columns: Vec<u32>,
        /// Positions of row groups, ascending; at least one.
        row_groups: Vec<u32>,
    },
    /// Asks whether the node is alive. On stream 0; answered at once by `Pong`, whatever else is running.
    Ping,
    /// Answers the node's `Ping`.
    Pong,
}

impl Request {
    /// Returns the kind of the message.
    pub fn kind(&self) -> FrameKind {
        match self {
            Request::Hello { .. } => FrameKind::Hello,
            Request::Prepare { .. } => FrameKind::Prepare,
            Request::Execute { .. } | Request::ExecutePrepared { .. } => FrameKind::Execute,
            Request::Cancel => FrameKind::Cancel,
            Request::Credit { .. } => FrameKind::Credit,
            Request::Tables { .. } => FrameKind::Tables,
            Request::Table { .. } => FrameKind::Table,
            Request::LoadBegin { .. } => FrameKind::LoadBegin,
            Request::LoadOutcome { .. } => FrameKind::LoadOutcome,
            Request::LoadBatch(_) => FrameKind::LoadBatch,
            Request::LoadEnd => FrameKind::LoadEnd,
            Request::Drop { .. } => FrameKind::Drop,
            Request::AlterTable { .. } => FrameKind::AlterTable,
            Request::ChangeRows { .. } => FrameKind::ChangeRows,
            Request::CreateView { .. } => FrameKind::CreateView,
            Request::DropView { .. } => FrameKind::DropView,
            Request::CreateSchema { .. } => FrameKind::CreateSchema,
            Request::DropSchema { .. } => FrameKind::DropSchema,
            Request::Statistics { .. } => FrameKind::Statistics,
            Request::Status => FrameKind::Status,
            Request::Queries => FrameKind::Queries,
            Request::CancelQuery { .. } => FrameKind::CancelQuery,
            Request::Backup => FrameKind::Backup,
            Request::BackupRead { .. } => FrameKind::BackupRead,
            Request::Outlines { .. } => FrameKind::Outlines,
            Request::Fetch { .. } => FrameKind::Fetch,
            Request::Ping => FrameKind::Ping,
            Request::Pong => FrameKind::Pong,
        }
    }

    /// Encodes the request as a message; a batch that is too large for one is encoded as several.
    ///
    /// # Errors
    /// `OverLimit` if the request is too large to send; `Invalid` if a schema is not canonical.
    pub fn encode(&self) -> Result<Vec<Outgoing>> {
        let body = match self {
            Request::LoadBatch(rows) => {
                return Ok(batch::encode_batch(FrameKind::LoadBatch, rows, None)?.messages);
            }
            Request::Hello { version_min, version_max, token, timeout_ms, client } => body(&proto::Hello {
                version_min: *version_min,
                version_max: *version_max,
                token: token.clone(),
                client: client.clone(),
                timeout_ms: *timeout_ms,
            }),
            Request::Prepare { plan, schema } => proto::write_plan(plan, ResultForm::Plain, None, *schema)?,
            Request::Execute { plan, schema, results } => proto::write_plan(plan, *results, None, *schema)?,
            Request::ExecutePrepared { handle, conditions, results } => {
                proto::write_plan(conditions.as_deref().unwrap_or_default(), *results, Some(*handle), None)?
            }
            Request::Credit { bytes } => body(&proto::Credit { bytes: *bytes }),
            Request::Tables { tenant, with_schemas } => body(&proto::TablesRequest {
                tenant: tenant.clone().map(String::from),
                with_schemas: *with_schemas,
            }),
            Request::Table { name, known, or_view } => body(&proto::TableRequest {
                name: name.encoded(),
                known: known.map(|version| version.0),
                tenant: None,
                or_view: *or_view,
            }),
            Request::Drop { table: name, tenant } | Request::DropView { view: name, tenant } => {
                proto::write_drop(name, tenant.clone())
            }
            Request::AlterTable { table, changes } => proto::write_alter(table, changes)?,
            Request::ChangeRows { handle, rows, id } => {
                body(&proto::ChangeRows { handle: *handle, rows: *rows, id: proto::write_id(*id) })
            }
            Request::CreateView { view, replace } => proto::write_create_view(view, *replace),
            Request::CreateSchema { schema } => {
                body(&proto::SchemaRequest { name: schema.to_string(), cascade: false })
            }
            Request::DropSchema { schema, cascade } => {
                body(&proto::SchemaRequest { name: schema.to_string(), cascade: *cascade })
            }
            Request::Statistics { table, columns } => {
                proto::write_statistics_request(table, columns.as_deref())?
            }
            Request::LoadBegin { table, options, schema, rows_hint, id } => {
                proto::write_load_begin(table, options, schema, *rows_hint, *id)?
            }
            Request::LoadOutcome { id } => body(&proto::LoadOutcome { id: proto::write_id(*id) }),
            Request::CancelQuery { id } => body(&proto::CancelQuery { id: *id }),
            Request::BackupRead { file, offset, bytes } => proto::write_backup_read(file, *offset, *bytes),
            Request::Outlines { handle, columns, first, known } => {
                chunks::write_outlines_request(*handle, columns, *first, *known)?
            }
            Request::Fetch { handle, columns, row_groups } => {
                chunks::write_fetch(*handle, columns, row_groups)?
            }
            Request::Backup => Bytes::new(),
            Request::Cancel | Request::LoadEnd | Request::Status | Request::Queries => Bytes::new(),
            Request::Ping | Request::Pong => Bytes::new(),
        };
        Ok(vec![Outgoing::new(self.kind(), vec![body])?])
    }

    /// Decodes a message from a client. `load_schema` is the schema of the load that is in progress on the message's
    /// stream.
    ///
    /// # Errors
    /// `Corrupt` if the body cannot be decoded; `Invalid` if clients do not send messages of this kind, if rows come
    /// without a load, or if a part is not valid; `OverLimit` if a part is larger than its limit.
    pub fn decode(message: &Message, load_schema: Option<&SchemaRef>) -> Result<Request> {
        if !message.kind.is_from_client() {
            return Err(Error::invalid(format!("a client does not send {}", message.kind.name())));
        }
        Request::decode_body(message, load_schema).map_err(|e| e.at(message.kind.name()))
    }

    fn decode_body(message: &Message, load_schema: Option<&SchemaRef>) -> Result<Request> {
        let body = &message.body;
        Ok(match message.kind {
            FrameKind::Hello => {
                let proto::Hello { version_min, version_max, token, client, timeout_ms } = read(body)?;
                if timeout_ms == Some(0) {
                    return Err(Error::invalid("a client that allows its requests no time"));
                }
                Request::Hello { version_min, version_max, token, timeout_ms, client }
            }
            FrameKind::Prepare => {
                let (request, _) = proto::read_plan(body)?;
                let schema = request.schema_fingerprint.map(SchemaFingerprint);
                Request::Prepare { plan: request.plan, schema }
            }
            FrameKind::Execute => {
                let (request, results) = proto::read_plan(body)?;
                let (plan, schema) = (request.plan, request.schema_fingerprint.map(SchemaFingerprint));
                match request.handle {
                    None => Request::Execute { plan, schema, results },
                    Some(handle) => {
                        let conditions = Some(plan).filter(|plan| !plan.is_empty());
                        Request::ExecutePrepared { handle, conditions, results }
                    }
                }
            }
            FrameKind::Cancel => read(body).map(|proto::Empty {}| Request::Cancel)?,
            FrameKind::Credit => read(body).map(|proto::Credit { bytes }| Request::Credit { bytes })?,
            FrameKind::Tables => {
                let proto::TablesRequest { tenant, with_schemas } = read(body)?;
                Request::Tables { tenant: proto::read_tenant(tenant)?, with_schemas }
            }
            FrameKind::Table => {
                let proto::TableRequest { name, known, or_view, .. } = read(body)?;
                Request::Table { name: TableName::decode(name)?, known: known.map(Version), or_view }
            }
            FrameKind::LoadBegin => proto::read_load_begin(body)?,
            FrameKind::LoadOutcome => {
                let proto::LoadOutcome { id } = read(body)?;
                Request::LoadOutcome { id: proto::read_id(&id)? }
            }
            FrameKind::LoadBatch => {
                let schema =
                    load_schema.ok_or_else(|| Error::invalid("no load is under way on this stream"))?;
                Request::LoadBatch(batch::decode_batch(schema, body)?)
            }
            FrameKind::LoadEnd => read(body).map(|proto::Empty {}| Request::LoadEnd)?,
            FrameKind::Drop => {
                let proto::TableRequest { name, tenant, .. } = read(body)?;
                Request::Drop { table: TableName::decode(name)?, tenant: proto::read_tenant(tenant)? }
            }
            FrameKind::AlterTable => {
                let (table, changes) = proto::read_alter(body)?;
                Request::AlterTable { table, changes }
            }
            FrameKind::ChangeRows => {
                let proto::ChangeRows { handle, rows, id } = read(body)?;
                Request::ChangeRows { handle, rows, id: proto::read_id(&id)? }
            }
            FrameKind::CreateView => {
                let (view, replace) = proto::read_create_view(body)?;
                Request::CreateView { view, replace }
            }
            FrameKind::DropView => {
                let proto::TableRequest { name, tenant, .. } = read(body)?;
                Request::DropView { view: TableName::decode(name)?, tenant: proto::read_tenant(tenant)? }
            }
            FrameKind::Backup => read(body).map(|proto::Empty {}| Request::Backup)?,
            FrameKind::BackupRead => {
                let (file, offset, bytes) = proto::read_backup_read(body)?;
                Request::BackupRead { file, offset, bytes }
            }
            FrameKind::Outlines => {
                let (handle, columns, first, known) = chunks::read_outlines_request(body)?;
                Request::Outlines { handle, columns, first, known }
            }
            FrameKind::Fetch => {
                let (handle, columns, row_groups) = chunks::read_fetch(body)?;
                Request::Fetch { handle, columns, row_groups }
            }
            FrameKind::CreateSchema => {
                let proto::SchemaRequest { name, .. } = read(body)?;
                Request::CreateSchema { schema: SchemaName::new(name)? }
            }
            FrameKind::DropSchema => {
                let proto::SchemaRequest { name, cascade } = read(body)?;
                Request::DropSchema { schema: SchemaName::new(name)?, cascade }
            }
            FrameKind::Statistics => proto::read_statistics_request(body)?,
            FrameKind::Status => read(body).map(|proto::Empty {}| Request::Status)?,
            FrameKind::Queries => read(body).map(|proto::Empty {}| Request::Queries)?,
            FrameKind::CancelQuery => {
                read(body).map(|proto::CancelQuery { id }| Request::CancelQuery { id })?
            }
            FrameKind::Ping => read(body).map(|proto::Empty {}| Request::Ping)?,
            FrameKind::Pong => read(body).map(|proto::Empty {}| Request::Pong)?,
            _ => return Err(Error::invalid("not a request")),
        })
    }
}

#[cfg(test)]
impl Request {
    /// Returns examples of requests of a kind, which must survive encoding; none for the kinds that only nodes send.
    pub(crate) fn examples(kind: FrameKind) -> Vec<Request> {
        use crate::tests::{name, rows, schema, view};
        use farpool_model::{LoadMode, Residency, Tier, limits};
        match kind {
            FrameKind::Hello => vec![
                Request::Hello {
                    version_min: 1,
                    version_max: 3,
                    token: Some("secret".into()),
                    timeout_ms: Some(u64::MAX),
                    client: "test 1".into(),
                },
                Request::Hello {
                    version_min: 1,
                    version_max: 1,
                    token: None,
                    timeout_ms: None,
                    client: String::new(),
                },
            ],
            FrameKind::Prepare => vec![
                Request::Prepare { plan: vec![1, 2, 3], schema: None },
                Request::Prepare { plan: vec![4], schema: Some(SchemaFingerprint(u64::MAX)) },
            ],
            FrameKind::Execute => vec![
                Request::Execute {
                    plan: vec![],
                    schema: Some(SchemaFingerprint(0)),
                    results: ResultForm::Plain,
                },
                Request::Execute { plan: vec![], schema: None, results: ResultForm::Packed },
                Request::Execute { plan: vec![], schema: None, results: ResultForm::Auto },
                Request::ExecutePrepared { handle: 7, conditions: None, results: ResultForm::Auto },
                Request::ExecutePrepared { handle: 9, conditions: Some(vec![1]), results: ResultForm::Plain },
            ],
            FrameKind::Cancel => vec![Request::Cancel],
            FrameKind::Credit => vec![Request::Credit { bytes: 1 << 20 }],
            FrameKind::Tables => vec![
                Request::Tables { tenant: None, with_schemas: true },
                Request::Tables { tenant: Some(TenantName::new("bob").unwrap()), with_schemas: false },
            ],
            FrameKind::Table => vec![
                Request::Table { name: name("t"), known: None, or_view: true },
                Request::Table { name: name("t"), known: Some(Version(7)), or_view: false },
            ],
            FrameKind::LoadBegin => vec![
                Request::LoadBegin {
                    table: name("ü"),
                    options: LoadMode::Append.into(),
                    schema: schema(),
                    rows_hint: Some(0),
                    id: None,
                },
                Request::LoadBegin {
                    table: name("t"),
                    options: LoadOptions {
                        encryption: Some(Tier::Fast),
                        residency: Residency::Pinned,
                        ..LoadMode::ReplaceVersion(Version(u64::MAX)).into()
                    },
                    schema: schema(),
                    rows_hint: None,
                    id: Some(LoadId(u128::MAX - 7)),
                },
            ],
            FrameKind::LoadOutcome => {
                vec![Request::LoadOutcome { id: LoadId(0) }, Request::LoadOutcome { id: LoadId(1 << 90) }]
            }
            FrameKind::LoadBatch => vec![Request::LoadBatch(rows())],
            FrameKind::LoadEnd => vec![Request::LoadEnd],
            FrameKind::Drop => vec![
                Request::Drop { table: name("t"), tenant: None },
                Request::Drop { table: name("t"), tenant: Some(TenantName::default()) },
            ],
            FrameKind::AlterTable => vec![Request::AlterTable {
                table: name("t"),
                changes: vec![
                    TableChange::Rename(TableName::parse("s.u").unwrap()),
                    TableChange::RenameColumn { from: "a".into(), to: "b".into() },
                    TableChange::AddColumn(schema().fields()[0].clone()),
                    TableChange::DropColumn("c".into()),
                ],
            }],
            FrameKind::CreateView => vec![
                Request::CreateView { view: view("select 'ü'"), replace: true },
                Request::CreateView { view: view(&"x".repeat(limits::VIEW_BYTES_MAX)), replace: false },
            ],
            FrameKind::DropView => vec![
                Request::DropView { view: name("v"), tenant: None },
                Request::DropView { view: name("v"), tenant: Some(TenantName::default()) },
            ],
            FrameKind::CreateSchema => vec![Request::CreateSchema { schema: SchemaName::new("ü").unwrap() }],
            FrameKind::DropSchema => vec![
                Request::DropSchema { schema: SchemaName::new("s").unwrap(), cascade: true },
                Request::DropSchema { schema: SchemaName::new("s").unwrap(), cascade: false },
            ],
            FrameKind::ChangeRows => vec![Request::ChangeRows { handle: 7, rows: u64::MAX, id: LoadId(3) }],
            FrameKind::Statistics => vec![
                Request::Statistics { table: name("t"), columns: None },
                Request::Statistics {
                    table: name("t"),
                    columns: Some(vec![0, 7, limits::COLUMNS_MAX as u32 - 1]),
                },
            ],
            FrameKind::Status => vec![Request::Status],
            FrameKind::Queries => vec![Request::Queries],
            FrameKind::CancelQuery => vec![Request::CancelQuery { id: u64::MAX }],
            FrameKind::Outlines => {
                vec![Request::Outlines { handle: 7, columns: vec![0, 3], first: 9, known: u64::MAX }]
            }
            FrameKind::Fetch => {
                vec![Request::Fetch { handle: 1, columns: vec![5], row_groups: vec![0, 2, u32::MAX] }]
            }
            FrameKind::Backup => vec![Request::Backup],
            FrameKind::BackupRead => vec![Request::BackupRead {
                file: "segment-000000000007".into(),
                offset: 1 << 40,
                bytes: 1 << 20,
            }],
            FrameKind::Ping => vec![Request::Ping],
            FrameKind::Pong => vec![Request::Pong],
            _ => Vec::new(),
        }
    }
}

/// Prints only the kind, because a token must not end up in a log.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request::{}", self.kind().name())
    }
}

/// Encodes a protocol buffer message as the body of a protocol message.
pub(crate) fn body(message: &impl prost::Message) -> Bytes {
    message.encode_to_vec().into()
}

/// Decodes the body of a protocol message to a protocol buffer message.
pub(crate) fn read<M: prost::Message + Default>(bytes: &Bytes) -> Result<M> {
    M::decode(bytes.clone()).map_err(|error| Error::corrupt(format!("a damaged message: {error}")))
}
