//! The messages from a node to a client of the native protocol, and how they are encoded and decoded.

use crate::chunks::{self, ChunkImage, Outlines};
use crate::message::{Message, Outgoing};
use crate::request::{body, read};
use crate::sealed::{PublicKey, SUITE};
use crate::table::{read_statistics, read_table, write_statistics, write_table};
use crate::verbs::{FrameKind, Role};
use crate::{backup, batch, proto, substrait, view};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::Bytes;
use farpool_model::status::TenantStatus;
use farpool_model::{
    Answer, BackupFiles, Encoding, Error, ErrorKind, Expr, Listing, LoadOutcome, LoadedVersion,
    OperatorAnswer, Prepared, Program, QueryInfo, QueryState, Receipt, Result, SchemaName, Status, TableInfo,
    TableName, TableStatistics, TenantName, Version, View, limits,
};
use std::sync::Arc;

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
            Response::Hello { version, server, tenant, instance, newest, sealing } => body(&proto::Welcome {
                version: *version,
                server: server.clone(),
                tenant: tenant.as_str().to_string(),
                instance: *instance,
                newest: newest.0,
                suites: sealing.map_or_else(Vec::new, |_| vec![SUITE]),
                node_key: sealing
                    .and_then(|sealing| sealing.node_key)
                    .map_or_else(Bytes::new, |key| Bytes::copy_from_slice(&key.0)),
            }),
            Response::Prepared { prepared, table_schema } => body(&write_prepared(prepared, table_schema)?),
            Response::Receipt(receipt) => body(&write_receipt(receipt)),
            Response::Tables(Listing { tables, views, schemas }) => {
                let tables =
                    tables.iter().map(|table| write_table(table).map(|t| body(&t))).collect::<Result<_>>()?;
                let views = views.iter().map(TableName::encoded).collect();
                let schemas = schemas.iter().map(SchemaName::to_string).collect();
                body(&proto::TableList { tables, views, schemas })
            }
            Response::Table(table) | Response::Loaded(table) => body(&write_table(table)?),
            Response::LoadEnded { outcome, forgotten } => body(&write_load_ended(outcome, *forgotten)),
            Response::Statistics(statistics) => body(&write_statistics(statistics)?),
            Response::View(view) => view::write_view(view),
            Response::Queries(queries) => body(&write_queries(queries)),
            Response::BackupFiles(files) => backup::write_files(files),
            Response::Outlines(outlines) => chunks::write_outlines(outlines),
            Response::Chunk(image) => chunks::write_image(image),
            Response::BackupBytes(data) => body(&proto::BackupBytes { data: data.clone() }),
            Response::Done(_) | Response::Unchanged | Response::Ping | Response::Pong => Bytes::new(),
            Response::Credit { bytes } => body(&proto::Credit { bytes: *bytes }),
            Response::Status(status) => body(&write_status(status)),
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
                let proto::Welcome { version, server, tenant, instance, newest, suites, node_key } =
                    read(body)?;
                let (tenant, newest) = (TenantName::new(tenant)?, Version(newest));
                // A node of a later version may know other cipher suites only, or have a key of another form; both are
                // ignored.
                let node_key = node_key[..].try_into().ok().map(PublicKey);
                let sealing = suites.contains(&SUITE).then_some(Sealing { node_key });
                Response::Hello { version, server, tenant, instance, newest, sealing }
            }
            FrameKind::Prepared => read_prepared(read(body)?)?,
            FrameKind::Batch => {
                let schema = schema.ok_or_else(|| Error::invalid("rows came before their schema"))?;
                Response::Batch(batch::decode_batch(schema, body)?)
            }
            FrameKind::Parcel => Response::Parcel(body.clone()),
            FrameKind::Receipt => Response::Receipt(read_receipt(read(body)?)?),
            FrameKind::TableList => {
                let proto::TableList { tables, views, schemas } = read(body)?;
                let (tables, views) = (read_tables(&tables)?, view::read_names(views)?);
                Response::Tables(Listing { tables, views, schemas: view::read_schemas(schemas)? })
            }
            FrameKind::TableInfo => Response::Table(read_table(read(body)?)?),
            FrameKind::Loaded => Response::Loaded(read_table(read(body)?)?),
            FrameKind::LoadEnded => read_load_ended(read(body)?)?,
            FrameKind::TableStatistics => Response::Statistics(Box::new(read_statistics(&read(body)?)?)),
            FrameKind::ViewInfo => Response::View(view::read_view(body)?),
            kind if kind.role() == Role::Done => read(body).map(|proto::Empty {}| Response::Done(kind))?,
            FrameKind::Unchanged => read(body).map(|proto::Empty {}| Response::Unchanged)?,
            FrameKind::Credit => read(body).map(|proto::Credit { bytes }| Response::Credit { bytes })?,
            FrameKind::StatusInfo => Response::Status(read_status(read(body)?)?),
            FrameKind::QueryList => Response::Queries(read_queries(&read(body)?)?),
            FrameKind::BackupFiles => Response::BackupFiles(backup::read_files(body)?),
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

/// Returns the number of an error kind on the wire: its index in [`ErrorKind::ALL`], counted from 1.
pub fn error_number(kind: ErrorKind) -> u32 {
    let place = ErrorKind::ALL.iter().position(|k| *k == kind);
    place.map_or(0, |place| place as u32 + 1)
}

fn write_error(error: &Error) -> proto::Error {
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
fn read_error(error: proto::Error) -> Error {
    let place = (error.kind as usize).checked_sub(1);
    let kind = place.and_then(|place| ErrorKind::ALL.get(place)).copied().unwrap_or(ErrorKind::Internal);
    Error { kind, message: error.message, advice: error.advice, retry_after_ms: error.retry_after_ms }
}

fn write_load_ended(outcome: &LoadOutcome, forgotten: Version) -> proto::LoadEnded {
    let mut ended = proto::LoadEnded { forgotten: forgotten.0, ..Default::default() };
    match outcome {
        LoadOutcome::Loaded(made) => {
            ended.version = Some(made.version.0);
            (ended.rows, ended.bytes_plain, ended.bytes_encoded) =
                (made.rows, made.bytes_plain, made.bytes_encoded);
        }
        LoadOutcome::Failed(error) => ended.error = Some(body(&write_error(error))),
        LoadOutcome::NotLoaded => {}
    }
    ended
}

fn read_load_ended(ended: proto::LoadEnded) -> Result<Response> {
    let outcome = match (ended.version, &ended.error) {
        (Some(version), None) => LoadOutcome::Loaded(LoadedVersion {
            version: Version(version),
            rows: ended.rows,
            bytes_plain: ended.bytes_plain,
            bytes_encoded: ended.bytes_encoded,
        }),
        (None, Some(error)) => LoadOutcome::Failed(read_error(read(error)?)),
        (None, None) => LoadOutcome::NotLoaded,
        (Some(_), Some(_)) => return Err(Error::corrupt("a load that was loaded and failed")),
    };
    Ok(Response::LoadEnded { outcome, forgotten: Version(ended.forgotten) })
}

fn write_prepared(prepared: &Prepared, table_schema: &SchemaRef) -> Result<proto::Prepared> {
    Ok(proto::Prepared {
        version: prepared.version.0,
        answers: prepared.answers.iter().map(|answer| body(&write_answer(answer))).collect(),
        effective: substrait::encode_program(&without_sets(&prepared.effective), table_schema)?,
        schema: batch::encode_schema(&prepared.schema)?.to_vec(),
        table_schema: batch::encode_schema(table_schema)?.to_vec(),
    })
}

/// Returns the program without the sets of keys in its filter, which are large and which the client that sent them has.
fn without_sets(program: &Program) -> Program {
    fn without(expr: &Expr) -> Expr {
        match expr {
            Expr::And(parts) => Expr::And(parts.iter().map(without).collect()),
            Expr::Or(parts) => Expr::Or(parts.iter().map(without).collect()),
            Expr::InSet(value, set) => Expr::opaque(set.to_string(), vec![(**value).clone()]),
            Expr::InFilter(values, filter) => Expr::opaque(filter.to_string(), values.clone()),
            other => other.clone(),
        }
    }
    Program { filter: program.filter.as_ref().map(without), ..program.clone() }
}

fn read_prepared(prepared: proto::Prepared) -> Result<Response> {
    let table_schema = batch::decode_schema(&prepared.table_schema)?;
    let schema_of = |_: &TableName| Ok(Arc::clone(&table_schema));
    let effective = substrait::decode_program(&prepared.effective, &schema_of)?;
    let prepared = Prepared {
        version: Version(prepared.version),
        answers: read_answers(&prepared.answers)?,
        effective,
        schema: batch::decode_schema(&prepared.schema)?,
    };
    Ok(Response::Prepared { prepared, table_schema })
}

fn write_answer(answer: &OperatorAnswer) -> proto::OperatorAnswer {
    let number = match answer.answer {
        Answer::Exact => proto::Answer::Exact,
        Answer::Superset => proto::Answer::Superset,
        Answer::Refused => proto::Answer::Refused,
    };
    proto::OperatorAnswer {
        name: answer.operator.name().to_string(),
        detail: answer.detail.clone(),
        answer: number.into(),
        reason: answer.reason.clone(),
    }
}

fn read_answers(answers: &[Bytes]) -> Result<Vec<OperatorAnswer>> {
    check_count("answers of a program", answers.len(), limits::ANSWERS_MAX)?;
    answers.iter().map(|answer| read_answer(read(answer)?)).collect()
}

fn read_tables(tables: &[Bytes]) -> Result<Vec<TableInfo>> {
    check_count("tables", tables.len(), limits::TABLES_PER_TENANT_MAX)?;
    let mut columns = 0;
    let mut read_one = |table: &Bytes| {
        let table = read_table(read(table)?)?;
        columns += table.columns.len();
        check_count("columns of all tables", columns, limits::LISTED_COLUMNS_MAX)?;
        Ok(table)
    };
    tables.iter().map(&mut read_one).collect()
}

/// Checks a count before memory is allocated: entries of a few bytes on the wire may take hundreds in memory.
fn check_count(what: &str, count: usize, most: usize) -> Result<()> {
    match count <= most {
        true => Ok(()),
        false => Err(Error::over_limit(format!("there may be {most} {what}, here are {count}"))),
    }
}

fn read_answer(answer: proto::OperatorAnswer) -> Result<OperatorAnswer> {
    let kind = match answer.answer() {
        proto::Answer::Exact => Answer::Exact,
        proto::Answer::Superset => Answer::Superset,
        proto::Answer::Refused => Answer::Refused,
        // An unknown answer must not be guessed: if a filter were taken for exact, the client would not apply it again,
        // and the result could be wrong.
        proto::Answer::Unspecified => {
            return Err(Error::corrupt(format!("answer {} does not exist", answer.answer)));
        }
    };
    let operator = answer.name.parse()?;
    Ok(OperatorAnswer { operator, detail: answer.detail, answer: kind, reason: answer.reason })
}

fn write_receipt(receipt: &Receipt) -> proto::Receipt {
    proto::Receipt {
        rows_scanned: receipt.rows_scanned,
        rows_skipped: receipt.rows_skipped,
        rows_returned: receipt.rows_returned,
        rows_bypassed: receipt.rows_bypassed,
        bytes_scanned: receipt.bytes_scanned,
        bytes_skipped: receipt.bytes_skipped,
        bytes_from_disk: receipt.bytes_from_disk,
        bytes_again: receipt.bytes_again,
        bytes_from_cache: receipt.bytes_from_cache,
        bytes_shared: receipt.bytes_shared,
        rows_known: receipt.rows_known,
        bytes_on_wire: receipt.bytes_on_wire,
        cpu_ns: receipt.cpu_ns,
        elapsed_ns: receipt.elapsed_ns,
        waited_ns: receipt.waited_ns,
        operators: receipt.operators.iter().map(|answer| body(&write_answer(answer))).collect(),
        bytes_plain: receipt.bytes_plain,
        encoding: Encoding::ALL.iter().position(|e| *e == receipt.encoding).map_or(0, |place| place as u32),
    }
}

fn read_receipt(receipt: proto::Receipt) -> Result<Receipt> {
    Ok(Receipt {
        rows_scanned: receipt.rows_scanned,
        rows_skipped: receipt.rows_skipped,
        rows_returned: receipt.rows_returned,
        rows_bypassed: receipt.rows_bypassed,
        bytes_scanned: receipt.bytes_scanned,
        bytes_skipped: receipt.bytes_skipped,
        bytes_from_disk: receipt.bytes_from_disk,
        bytes_again: receipt.bytes_again,
        bytes_from_cache: receipt.bytes_from_cache,
        bytes_shared: receipt.bytes_shared,
        rows_known: receipt.rows_known,
        bytes_on_wire: receipt.bytes_on_wire,
        cpu_ns: receipt.cpu_ns,
        elapsed_ns: receipt.elapsed_ns,
        waited_ns: receipt.waited_ns,
        operators: read_answers(&receipt.operators)?,
        bytes_plain: receipt.bytes_plain,
        encoding: Encoding::ALL.get(receipt.encoding as usize).copied().unwrap_or_default(),
        // Only the client that opened the connection knows whether it is encrypted.
        encrypted: false,
        // Not sent by nodes: a client that caches results sets this field itself.
        bytes_saved: 0,
    })
}

fn write_queries(queries: &[QueryInfo]) -> proto::QueryList {
    let write = |query: &QueryInfo| {
        let query = query.clone();
        body(&proto::QueryInfo {
            id: query.id,
            tenant: query.tenant,
            token: query.token,
            client: query.client,
            peer: query.peer,
            table: query.table,
            state: QueryState::ALL.iter().position(|s| *s == query.state).map_or(0, |place| place as u32),
            elapsed_ns: query.elapsed_ns,
            cpu_ns: query.cpu_ns,
            rows: query.rows,
            bytes: query.bytes,
        })
    };
    proto::QueryList { queries: queries.iter().map(write).collect() }
}

fn read_queries(list: &proto::QueryList) -> Result<Vec<QueryInfo>> {
    check_count("queries", list.queries.len(), limits::LISTED_QUERIES_MAX)?;
    let read_one = |bytes: &Bytes| -> Result<QueryInfo> {
        let query: proto::QueryInfo = read(bytes)?;
        Ok(QueryInfo {
            id: query.id,
            tenant: query.tenant,
            token: query.token,
            client: query.client,
            peer: query.peer,
            table: query.table,
            // A state that a later version has added is shown as running.
            state: QueryState::ALL.get(query.state as usize).copied().unwrap_or(QueryState::Running),
            elapsed_ns: query.elapsed_ns,
            cpu_ns: query.cpu_ns,
            rows: query.rows,
            bytes: query.bytes,
        })
    };
    list.queries.iter().map(read_one).collect()
}

fn write_status(status: &Status) -> proto::StatusInfo {
    let tenant = |t: &TenantStatus| proto::TenantStatus {
        tenant: t.tenant.clone(),
        memory_bytes_used: t.memory_bytes_used,
        work_bytes_used: t.work_bytes_used,
        tables: t.tables,
        programs: t.programs,
        bytes_scanned: t.bytes_scanned,
        cpu_ns: t.cpu_ns,
        weight: t.weight,
        memory_bytes_limit: t.memory_bytes_limit,
        work_bytes_limit: t.work_bytes_limit,
        programs_limit: t.programs_limit,
        programs_waiting_limit: t.programs_waiting_limit,
        result_bytes_limit: t.result_bytes_limit,
        connections_limit: t.connections_limit,
    };
    proto::StatusInfo {
        version: status.version.clone(),
        memory_bytes_limit: status.memory_bytes_limit,
        memory_bytes_used: status.memory_bytes_used,
        work_bytes_limit: status.work_bytes_limit,
        work_bytes_used: status.work_bytes_used,
        work_bytes_used_most: status.work_bytes_used_most,
        page_bytes: status.page_bytes,
        huge_pages: status.huge_pages.clone(),
        tables: status.tables,
        connections: status.connections,
        programs_running: status.programs_running,
        workers: status.workers,
        uptime_s: status.uptime_s,
        tenants: status.tenants.iter().map(|t| body(&tenant(t))).collect(),
    }
}

fn read_status(status: proto::StatusInfo) -> Result<Status> {
    let tenant = |bytes: &Bytes| -> Result<TenantStatus> {
        let t: proto::TenantStatus = read(bytes)?;
        Ok(TenantStatus {
            tenant: t.tenant,
            memory_bytes_used: t.memory_bytes_used,
            work_bytes_used: t.work_bytes_used,
            tables: t.tables,
            programs: t.programs,
            bytes_scanned: t.bytes_scanned,
            cpu_ns: t.cpu_ns,
            weight: t.weight,
            memory_bytes_limit: t.memory_bytes_limit,
            work_bytes_limit: t.work_bytes_limit,
            programs_limit: t.programs_limit,
            programs_waiting_limit: t.programs_waiting_limit,
            result_bytes_limit: t.result_bytes_limit,
            connections_limit: t.connections_limit,
        })
    };
    Ok(Status {
        version: status.version,
        memory_bytes_limit: status.memory_bytes_limit,
        memory_bytes_used: status.memory_bytes_used,
        work_bytes_limit: status.work_bytes_limit,
        work_bytes_used: status.work_bytes_used,
        work_bytes_used_most: status.work_bytes_used_most,
        page_bytes: status.page_bytes,
        huge_pages: status.huge_pages,
        tables: status.tables,
        connections: status.connections,
        programs_running: status.programs_running,
        workers: status.workers,
        uptime_s: status.uptime_s,
        tenants: status.tenants.iter().map(tenant).collect::<Result<_>>()?,
    })
}
