//! The messages from a node to a client of the native protocol, and how they are encoded and decoded.

use crate::chunks::{self, ChunkImage, Outlines};
use crate::message::{Message, Outgoing};
use crate::request::{body, read};
use crate::sealed::{PublicKey, SUITE};
use crate::table::{read_statistics, read_table, write_statistics, write_table};
use crate::verbs::{FrameKind, Role};
use crate::{batch, proto};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::Bytes;
use farpool_model::{
    BackupFiles, Error, ErrorKind, Listing, LoadOutcome, Prepared, QueryInfo, Receipt, Result, SchemaName,
    Status, TableInfo, TableName, TableStatistics, TenantName, Version, View, limits,
};

/// The public keys by which a node encrypts (seals) its answers; see [`crate::sealed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealing {
    /// The node's public key, by which it proves its identity; `None` if it has none.
    pub node_key: Option<PublicKey>,
}

/// A message from a node to a client, on the stream of the request that it answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Response {
    /// Identifies the node and ends the handshake; answers `Request::Hello`.
    Hello {
        /// The version of the protocol that both sides use from now on.
        version: u32,
        /// The node's name and version.
        server: String,
        /// The tenant that the client acts for.
        tenant: TenantName,
        /// Random id of the node's process; 0 if the node sends none.
        instance: u64,
        /// The newest version of any table.
        newest: Version,
        /// Keys by which the node encrypts its answers; `None` if it cannot.
        sealing: Option<Sealing>,
        /// Whether the node takes plans with joins, which become lookups.
        lookups: bool,
        /// Whether the node takes plans with filters of groups (HAVING).
        having: bool,
    },
    /// Says how far the node executes each operator of a plan: the only answer to `Prepare`, and the first answer to
    /// `Execute` of a plan.
    Prepared {
        /// The answers for the operators, and the program that will run.
        prepared: Prepared,
        /// The schema of the table, to whose columns the program's column numbers refer.
        table_schema: SchemaRef,
    },
    /// Rows of the result as an Arrow batch, in the schema that `Prepared` stated.
    Batch(RecordBatch),
    /// Rows of the result as a parcel: encoded column chunks, which `farpool_columns` reads.
    Parcel(Bytes),
    /// The execution statistics of the program: the last message after `Execute`.
    Receipt(Receipt),
    /// The tables and views of the tenant.
    Tables(Listing),
    /// The description of one table; answers `Table`.
    Table(TableInfo),
    /// Answers `Table`: the version that the client knows is still the newest. Also the first answer to `Execute` of a
    /// prepared program: the answer to its `Prepare` still holds.
    Unchanged,
    /// The statistics of a table.
    Statistics(Box<TableStatistics>),
    /// The load is complete; this describes the table after it.
    Loaded(TableInfo),
    /// The outcome of a load that the client has asked for.
    LoadEnded {
        /// The outcome, as far as the node remembers.
        outcome: LoadOutcome,
        /// The newest table version whose load's outcome the node has forgotten. If a load is reported as not loaded,
        /// and would have made a version no newer than this one, it may have been loaded nevertheless.
        forgotten: Version,
    },
    /// A view; answers `CreateView`, and `Table` if the name is that of a view.
    View(View),
    /// The request was executed; the answer has no content. The kind of the message has the role [`Role::Done`].
    Done(FrameKind),
    /// Grants the client credit for more bytes of batches on the stream (see [`crate::flow`]).
    Credit {
        /// Bytes on the wire, including the headers of frames.
        bytes: u64,
    },
    /// The state of the pool.
    Status(Status),
    /// The descriptions of the running programs.
    Queries(Vec<QueryInfo>),
    /// The files of a backup.
    BackupFiles(BackupFiles),
    /// A part of a file of a backup.
    BackupBytes(Bytes),
    /// Descriptions of column chunks.
    Outlines(Outlines),
    /// The values of a column chunk.
    Chunk(ChunkImage),
    /// Asks whether the client is alive. On stream 0; answered at once by `Pong`, whatever else is running.
    Ping,
    /// Answers the client's `Ping`.
    Pong,
    /// The request failed; this is the last message of its stream. On stream 0, the connection failed, and this is its
    /// last message.
    Error(Error),
}

impl Response {
    /// Returns the kind of the message.
    pub fn kind(&self) -> FrameKind {
        match self {
            Response::Hello { .. } => FrameKind::Welcome,
            Response::Prepared { .. } => FrameKind::Prepared,
            Response::Batch(_) => FrameKind::Batch,
            Response::Parcel(_) => FrameKind::Parcel,
            Response::Receipt(_) => FrameKind::Receipt,
            Response::Tables(_) => FrameKind::TableList,
            Response::Table(_) => FrameKind::TableInfo,
            Response::Unchanged => FrameKind::Unchanged,
            Response::Statistics(_) => FrameKind::TableStatistics,
            Response::Loaded(_) => FrameKind::Loaded,
            Response::LoadEnded { .. } => FrameKind::LoadEnded,
            Response::View(_) => FrameKind::ViewInfo,
            Response::Done(kind) => *kind,
            Response::Credit { .. } => FrameKind::Credit,
            Response::Status(_) => FrameKind::StatusInfo,
            Response::Queries(_) => FrameKind::QueryList,
            Response::BackupFiles(_) => FrameKind::BackupFiles,
            Response::BackupBytes(_) => FrameKind::BackupBytes,
            Response::Outlines(_) => FrameKind::OutlineList,
            Response::Chunk(_) => FrameKind::Chunk,
            Response::Ping => FrameKind::Ping,
            Response::Pong => FrameKind::Pong,
            Response::Error(_) => FrameKind::Error,
        }
    }

    /// Encodes the response as a message; a batch that is too large for one is encoded as several.
    ///
    /// # Errors
    /// `OverLimit` if the response is too large to send; `Invalid` if a schema is not canonical.
    pub fn encode(&self) -> Result<Vec<Outgoing>> {
        let body = match self {
            Response::Batch(rows) => {
                return Ok(batch::encode_batch(FrameKind::Batch, rows, None)?.messages);
            }
            Response::Parcel(parcel) => parcel.clone(),
            Response::Hello { version, server, tenant, instance, newest, sealing, lookups, having } => {
                body(&proto::Welcome {
                    version: *version,
                    server: server.clone(),
                    tenant: tenant.as_str().to_string(),
                    instance: *instance,
                    newest: newest.0,
                    suites: sealing.map_or_else(Vec::new, |_| vec![SUITE]),
                    node_key: sealing
                        .and_then(|sealing| sealing.node_key)
                        .map_or_else(Bytes::new, |key| Bytes::copy_from_slice(&key.0)),
                    lookups: *lookups,
                    having: *having,
                })
            }
            Response::Prepared { prepared, table_schema } => {
                body(&proto::write_prepared(prepared, table_schema)?)
            }
            Response::Receipt(receipt) => body(&proto::write_receipt(receipt)),
            Response::Tables(Listing { tables, views, schemas }) => {
                let tables =
                    tables.iter().map(|table| write_table(table).map(|t| body(&t))).collect::<Result<_>>()?;
                let views = views.iter().map(TableName::encoded).collect();
                let schemas = schemas.iter().map(SchemaName::to_string).collect();
                body(&proto::TableList { tables, views, schemas })
            }
            Response::Table(table) | Response::Loaded(table) => body(&write_table(table)?),
            Response::LoadEnded { outcome, forgotten } => body(&proto::write_load_ended(outcome, *forgotten)),
            Response::Statistics(statistics) => body(&write_statistics(statistics)?),
            Response::View(view) => proto::write_view(view),
            Response::Queries(queries) => body(&proto::write_queries(queries)),
            Response::BackupFiles(files) => proto::write_backup_files(files),
            Response::Outlines(outlines) => chunks::write_outlines(outlines),
            Response::Chunk(image) => chunks::write_image(image),
            Response::BackupBytes(data) => body(&proto::BackupBytes { data: data.clone() }),
            Response::Done(_) | Response::Unchanged | Response::Ping | Response::Pong => Bytes::new(),
            Response::Credit { bytes } => body(&proto::Credit { bytes: *bytes }),
            Response::Status(status) => body(&proto::write_status(status)),
            Response::Error(error) => body(&write_error(error)),
        };
        Ok(vec![Outgoing::new(self.kind(), vec![body])?])
    }

    /// Decodes a message from a node. `schema` is that of the `Prepared` on the same stream.
    ///
    /// # Errors
    /// `Corrupt` if the body cannot be decoded; `Invalid` if nodes do not send messages of this kind, or rows come
    /// before their schema. An error that the node reports is returned as [`Response::Error`].
    pub fn decode(message: &Message, schema: Option<&SchemaRef>) -> Result<Response> {
        if !message.kind.is_from_node() {
            return Err(Error::invalid(format!("a node does not send {}", message.kind.name())));
        }
        Response::decode_body(message, schema).map_err(|e| e.at(message.kind.name()))
    }

    fn decode_body(message: &Message, schema: Option<&SchemaRef>) -> Result<Response> {
        let body = &message.body;
        Ok(match message.kind {
            FrameKind::Welcome => {
                let welcome: proto::Welcome = read(body)?;
                let proto::Welcome { version, server, instance, suites, node_key, .. } = welcome;
                let (tenant, newest) = (TenantName::new(welcome.tenant)?, Version(welcome.newest));
                let (lookups, having) = (welcome.lookups, welcome.having);
                // A node of a later version may know other cipher suites only, or have a key of another form; both are
                // ignored.
                let node_key = node_key[..].try_into().ok().map(PublicKey);
                let sealing = suites.contains(&SUITE).then_some(Sealing { node_key });
                Response::Hello { version, server, tenant, instance, newest, sealing, lookups, having }
            }
            FrameKind::Prepared => proto::read_prepared(read(body)?)?,
            FrameKind::Batch => {
                let schema = schema.ok_or_else(|| Error::invalid("rows came before their schema"))?;
                Response::Batch(batch::decode_batch(schema, body)?)
            }
            FrameKind::Parcel => Response::Parcel(body.clone()),
            FrameKind::Receipt => Response::Receipt(proto::read_receipt(read(body)?)?),
            FrameKind::TableList => {
                let proto::TableList { tables, views, schemas } = read(body)?;
                let (tables, views) = (read_tables(&tables)?, proto::read_view_names(views)?);
                Response::Tables(Listing { tables, views, schemas: proto::read_schema_names(schemas)? })
            }
            FrameKind::TableInfo => Response::Table(read_table(read(body)?)?),
            FrameKind::Loaded => Response::Loaded(read_table(read(body)?)?),
            FrameKind::LoadEnded => proto::read_load_ended(read(body)?)?,
            FrameKind::TableStatistics => Response::Statistics(Box::new(read_statistics(&read(body)?)?)),
            FrameKind::ViewInfo => Response::View(proto::read_view(body)?),
            kind if kind.role() == Role::Done => read(body).map(|proto::Empty {}| Response::Done(kind))?,
            FrameKind::Unchanged => read(body).map(|proto::Empty {}| Response::Unchanged)?,
            FrameKind::Credit => read(body).map(|proto::Credit { bytes }| Response::Credit { bytes })?,
            FrameKind::StatusInfo => Response::Status(proto::read_status(read(body)?)?),
            FrameKind::QueryList => Response::Queries(proto::read_queries(&read(body)?)?),
            FrameKind::BackupFiles => Response::BackupFiles(proto::read_backup_files(body)?),
            FrameKind::BackupBytes => {
                read(body).map(|proto::BackupBytes { data }| Response::BackupBytes(data))?
            }
            FrameKind::OutlineList => Response::Outlines(chunks::read_outlines(body)?),
            FrameKind::Chunk => Response::Chunk(chunks::read_image(body)?),
            FrameKind::Ping => read(body).map(|proto::Empty {}| Response::Ping)?,
            FrameKind::Pong => read(body).map(|proto::Empty {}| Response::Pong)?,
            FrameKind::Error => Response::Error(read_error(read(body)?)),
            _ => return Err(Error::invalid("not a response")),
        })
    }
}

#[cfg(test)]
impl Response {
    /// Returns examples of responses of a kind, which must survive encoding; none for the kinds that only clients send.
    pub(crate) fn examples(kind: FrameKind) -> Vec<Response> {
        use crate::ChunkOutline;
        use crate::tests::{
            name, prepared, prepared_with_lookups, queries, receipt, rows, schema, statistics, status,
            table_info, view,
        };
        use farpool_model::{BackupFile, LoadedVersion};
        match kind {
            kind if kind.role() == Role::Done => vec![Response::Done(kind)],
            FrameKind::Welcome => vec![
                Response::Hello {
                    version: 1,
                    server: "farpool 0.1".into(),
                    tenant: TenantName::default(),
                    instance: u64::MAX,
                    newest: Version(3),
                    sealing: None,
                    lookups: false,
                    having: true,
                },
                Response::Hello {
                    version: 1,
                    server: String::new(),
                    tenant: TenantName::default(),
                    instance: 0,
                    newest: Version(0),
                    sealing: Some(Sealing { node_key: None }),
                    lookups: true,
                    having: false,
                },
                Response::Hello {
                    version: 1,
                    server: String::new(),
                    tenant: TenantName::default(),
                    instance: 0,
                    newest: Version(0),
                    sealing: Some(Sealing { node_key: Some(PublicKey([7; 32])) }),
                    lookups: false,
                    having: false,
                },
            ],
            FrameKind::Prepared => [prepared(), prepared_with_lookups()]
                .map(|prepared| Response::Prepared { prepared, table_schema: schema() })
                .to_vec(),
            FrameKind::Batch => vec![Response::Batch(rows())],
            FrameKind::Parcel => vec![Response::Parcel(Bytes::from_static(b"parcel"))],
            FrameKind::Receipt => vec![Response::Receipt(receipt())],
            FrameKind::TableList => vec![
                Response::Tables(Listing { tables: vec![table_info(), table_info()], ..Listing::default() }),
                Response::Tables(Listing {
                    views: vec![name("v"), TableName::parse("s.ü").unwrap()],
                    schemas: vec![SchemaName::new("s").unwrap()],
                    ..Listing::default()
                }),
            ],
            FrameKind::TableInfo => vec![Response::Table(table_info())],
            FrameKind::Loaded => vec![Response::Loaded(table_info())],
            FrameKind::LoadEnded => {
                let loaded = LoadedVersion { version: Version(1), rows: 2, bytes_plain: 3, bytes_encoded: 4 };
                let failed = LoadOutcome::Failed(Error::invalid("no").advise("yes"));
                [LoadOutcome::Loaded(loaded), failed, LoadOutcome::NotLoaded]
                    .map(|outcome| Response::LoadEnded { outcome, forgotten: Version(u64::MAX) })
                    .to_vec()
            }
            FrameKind::TableStatistics => vec![Response::Statistics(Box::new(statistics(4, &[0, 3])))],
            FrameKind::ViewInfo => vec![Response::View(view("select 1"))],
            FrameKind::Unchanged => vec![Response::Unchanged],
            FrameKind::Credit => vec![Response::Credit { bytes: 0 }],
            FrameKind::StatusInfo => vec![Response::Status(status())],
            FrameKind::QueryList => vec![Response::Queries(queries())],
            FrameKind::BackupFiles => vec![
                Response::BackupFiles(BackupFiles::default()),
                Response::BackupFiles(BackupFiles {
                    node: u64::MAX,
                    files: vec![BackupFile { name: "manifest-000000000001".into(), bytes: 7 }],
                }),
            ],
            FrameKind::BackupBytes => vec![Response::BackupBytes(Bytes::from_static(b"bytes"))],
            FrameKind::OutlineList => vec![
                Response::Outlines(Outlines::default()),
                Response::Outlines(Outlines {
                    table: 5,
                    row_groups: 7,
                    rows: vec![65536, 1],
                    chunks: vec![
                        ChunkOutline { number: 1, head: Bytes::from_static(b"outline"), data: None },
                        ChunkOutline {
                            number: u64::MAX,
                            head: Bytes::from_static(b"head"),
                            data: Some(Bytes::new()),
                        },
                    ],
                }),
            ],
            FrameKind::Chunk => vec![Response::Chunk(ChunkImage {
                row_group: 3,
                column: 1,
                head: Bytes::from_static(b"head"),
                data: Bytes::from_static(b"data"),
            })],
            FrameKind::Ping => vec![Response::Ping],
            FrameKind::Pong => vec![Response::Pong],
            FrameKind::Error => {
                let error = |kind| Error {
                    kind,
                    message: format!("{kind:?} happened"),
                    advice: Some("do this".into()),
                    retry_after_ms: Some(7),
                };
                ErrorKind::ALL.map(|kind| Response::Error(error(kind))).to_vec()
            }
            _ => Vec::new(),
        }
    }
}

/// Returns the number of an error kind on the wire: its index in [`ErrorKind::ALL`], counted from 1.
pub fn error_number(kind: ErrorKind) -> u32 {
    let place = ErrorKind::ALL.iter().position(|k| *k == kind);
    place.map_or(0, |place| place as u32 + 1)
}

pub(crate) fn write_error(error: &Error) -> proto::Error {
    // Longer strings (a query, a list of names) are truncated, because an error must fit a single frame.
    let cut = |text: &str| text.chars().take(ERROR_CHARS_MAX).collect::<String>();
    proto::Error {
        kind: error_number(error.kind),
        message: cut(&error.message),
        advice: error.advice.as_deref().map(cut),
        retry_after_ms: error.retry_after_ms,
    }
}

/// Maximum number of characters of an error's message, and of its advice. Reason: a character has at most four bytes,
/// and both strings share a frame.
const ERROR_CHARS_MAX: usize = farpool_model::limits::FRAME_BYTES_MAX / 8 - 16;

/// Decodes an error. A kind that a later version has added is read as `Internal`, about which a client assumes nothing.
pub(crate) fn read_error(error: proto::Error) -> Error {
    let place = (error.kind as usize).checked_sub(1);
    let kind = place.and_then(|place| ErrorKind::ALL.get(place)).copied().unwrap_or(ErrorKind::Internal);
    Error { kind, message: error.message, advice: error.advice, retry_after_ms: error.retry_after_ms }
}

fn read_tables(tables: &[Bytes]) -> Result<Vec<TableInfo>> {
    proto::check_count("tables", tables.len(), limits::TABLES_PER_TENANT_MAX)?;
    let mut columns = 0;
    let mut read_one = |table: &Bytes| {
        let table = read_table(read(table)?)?;
        columns += table.columns.len();
        proto::check_count("columns of all tables", columns, limits::LISTED_COLUMNS_MAX)?;
        Ok(table)
    };
    tables.iter().map(&mut read_one).collect()
}
