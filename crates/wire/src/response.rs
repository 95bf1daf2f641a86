//! What a node answers.

use crate::frame::FrameKind;
use crate::message::{Message, Outgoing};
use crate::request::{body, read};
use crate::{batch, proto, substrait};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::Bytes;
use farpool_model::status::TenantStatus;
use farpool_model::{
    Answer, ColumnStates, ColumnStatistics, Encoding, Error, ErrorKind, Expr, Literal, MomentsState,
    OperatorAnswer, Prepared, Program, Receipt, Result, Status, TableInfo, TableName, TableStatistics,
    TenantName, Value, Version,
};
use std::sync::Arc;

/// A message from a node to a client.
#[derive(Clone, Debug, PartialEq)]
pub enum Response {
    /// Who the node is; answers `Request::Hello`.
    Hello {
        /// The version of the protocol that is spoken from here on.
        version: u32,
        /// The node's name and version.
        server: String,
        /// The tenant that the client acts for.
        tenant: TenantName,
    },
    /// What the node will do; the only answer to `Prepare`, the first one to `Execute`.
    Prepared {
        /// The answers, and the program that runs.
        prepared: Prepared,
        /// The schema of the table, which the program's column numbers refer to.
        table_schema: SchemaRef,
    },
    /// Rows of the result, in the schema of the `Prepared` before them.
    Batch(RecordBatch),
    /// The same packed: a parcel as `farpool_columns` reads it.
    Parcel(Bytes),
    /// What the program has cost: the last message after `Execute`.
    Receipt(Receipt),
    /// The tables of the tenant.
    Tables(Vec<TableInfo>),
    /// One table.
    Table(TableInfo),
    /// What was gathered about a table while it was loaded.
    Statistics(Box<TableStatistics>),
    /// The load is complete, and this the table.
    Loaded(TableInfo),
    /// The table is gone.
    Dropped,
    /// The client may send more bytes of batches on the stream.
    Credit {
        /// Bytes on the wire, frame headers included.
        bytes: u64,
    },
    /// The state of the pool.
    Status(Status),
    /// The request failed: the last message of its stream. On stream 0, the last of the connection.
    Error(Error),
}

impl Response {
    /// The kind of frame that carries it.
    pub fn kind(&self) -> FrameKind {
        match self {
            Response::Hello { .. } => FrameKind::Welcome,
            Response::Prepared { .. } => FrameKind::Prepared,
            Response::Batch(_) => FrameKind::Batch,
            Response::Parcel(_) => FrameKind::Parcel,
            Response::Receipt(_) => FrameKind::Receipt,
            Response::Tables(_) => FrameKind::TableList,
            Response::Table(_) => FrameKind::TableInfo,
            Response::Statistics(_) => FrameKind::TableStatistics,
            Response::Loaded(_) => FrameKind::Loaded,
            Response::Dropped => FrameKind::Dropped,
            Response::Credit { .. } => FrameKind::Credit,
            Response::Status(_) => FrameKind::StatusInfo,
            Response::Error(_) => FrameKind::Error,
        }
    }

    /// The message, or, for a batch too large for one message, several.
    ///
    /// # Errors
    /// `OverLimit` when it is too large to send, `Invalid` when a schema is not canonical.
    pub fn encode(&self) -> Result<Vec<Outgoing>> {
        let body = match self {
            Response::Batch(rows) => return batch::encode_batch(FrameKind::Batch, rows),
            Response::Parcel(parcel) => parcel.clone(),
            Response::Hello { version, server, tenant } => body(&proto::Welcome {
                version: *version,
                server: server.clone(),
                tenant: tenant.as_str().to_string(),
            }),
            Response::Prepared { prepared, table_schema } => body(&write_prepared(prepared, table_schema)?),
            Response::Receipt(receipt) => body(&write_receipt(receipt)),
            Response::Tables(tables) => {
                let tables =
                    tables.iter().map(|table| write_table(table).map(|t| body(&t))).collect::<Result<_>>()?;
                body(&proto::TableList { tables })
            }
            Response::Table(table) | Response::Loaded(table) => body(&write_table(table)?),
            Response::Statistics(statistics) => body(&write_statistics(statistics)?),
            Response::Dropped => Bytes::new(),
            Response::Credit { bytes } => body(&proto::Credit { bytes: *bytes }),
            Response::Status(status) => body(&write_status(status)),
            Response::Error(error) => body(&write_error(error)),
        };
        Ok(vec![Outgoing::new(self.kind(), vec![body])?])
    }

    /// Reads a message from a node. `schema` is that of the `Prepared` which came on the same stream.
    ///
    /// # Errors
    /// `Corrupt` when the body is damaged; `Invalid` when a node does not send this kind or rows come
    /// before their schema. An error that the node reports is not an error here but [`Response::Error`].
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
                let proto::Welcome { version, server, tenant } = read(body)?;
                Response::Hello { version, server, tenant: TenantName::new(tenant)? }
            }
            FrameKind::Prepared => read_prepared(read(body)?)?,
            FrameKind::Batch => {
                let schema = schema.ok_or_else(|| Error::invalid("rows came before their schema"))?;
                Response::Batch(batch::decode_batch(schema, body)?)
            }
            FrameKind::Parcel => Response::Parcel(body.clone()),
            FrameKind::Receipt => Response::Receipt(read_receipt(read(body)?)?),
            FrameKind::TableList => {
                let proto::TableList { tables } = read(body)?;
                Response::Tables(tables.iter().map(|t| read_table(read(t)?)).collect::<Result<_>>()?)
            }
            FrameKind::TableInfo => Response::Table(read_table(read(body)?)?),
            FrameKind::Loaded => Response::Loaded(read_table(read(body)?)?),
            FrameKind::TableStatistics => Response::Statistics(Box::new(read_statistics(&read(body)?)?)),
            FrameKind::Dropped => read(body).map(|proto::Empty {}| Response::Dropped)?,
            FrameKind::Credit => read(body).map(|proto::Credit { bytes }| Response::Credit { bytes })?,
            FrameKind::StatusInfo => Response::Status(read_status(read(body)?)?),
            FrameKind::Error => Response::Error(read_error(read(body)?)),
            _ => return Err(Error::invalid("not a response")),
        })
    }
}

/// The number of an error kind on the wire: its place in [`ErrorKind::ALL`], from 1.
pub fn error_number(kind: ErrorKind) -> u32 {
    let place = ErrorKind::ALL.iter().position(|k| *k == kind);
    place.map_or(0, |place| place as u32 + 1)
}

fn write_error(error: &Error) -> proto::Error {
    // Longer texts (a query, a list of names) would not fit the one frame that an error has.
    let cut = |text: &str| text.chars().take(ERROR_CHARS_MAX).collect::<String>();
    proto::Error {
        kind: error_number(error.kind),
        message: cut(&error.message),
        advice: error.advice.as_deref().map(cut),
    }
}

/// A character has at most four bytes, and message and advice share a frame.
const ERROR_CHARS_MAX: usize = farpool_model::limits::FRAME_BYTES_MAX / 8 - 16;

/// Kinds that a later version adds are read as `Internal`, which promises nothing.
fn read_error(error: proto::Error) -> Error {
    let place = (error.kind as usize).checked_sub(1);
    let kind = place.and_then(|place| ErrorKind::ALL.get(place)).copied().unwrap_or(ErrorKind::Internal);
    Error { kind, message: error.message, advice: error.advice }
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

/// The program without the keys in its filter: who sent them has them.
fn without_sets(program: &Program) -> Program {
    fn without(expr: &Expr) -> Expr {
        match expr {
            Expr::And(parts) => Expr::And(parts.iter().map(without).collect()),
            Expr::Or(parts) => Expr::Or(parts.iter().map(without).collect()),
            Expr::InSet(value, set) => Expr::opaque(set.to_string(), vec![(**value).clone()]),
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
        answers: prepared.answers.iter().map(|a| read_answer(read(a)?)).collect::<Result<_>>()?,
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
        name: answer.name.clone(),
        detail: answer.detail.clone(),
        answer: number.into(),
        reason: answer.reason.clone(),
    }
}

fn read_answer(answer: proto::OperatorAnswer) -> Result<OperatorAnswer> {
    let kind = match answer.answer() {
        proto::Answer::Exact => Answer::Exact,
        proto::Answer::Superset => Answer::Superset,
        proto::Answer::Refused => Answer::Refused,
        // Guessing would give wrong results: a filter taken for exact is not applied again.
        proto::Answer::Unspecified => {
            return Err(Error::corrupt(format!("answer {} does not exist", answer.answer)));
        }
    };
    Ok(OperatorAnswer { name: answer.name, detail: answer.detail, answer: kind, reason: answer.reason })
}

fn write_receipt(receipt: &Receipt) -> proto::Receipt {
    proto::Receipt {
        rows_scanned: receipt.rows_scanned,
        rows_skipped: receipt.rows_skipped,
        rows_returned: receipt.rows_returned,
        rows_bypassed: receipt.rows_bypassed,
        bytes_scanned: receipt.bytes_scanned,
        bytes_skipped: receipt.bytes_skipped,
        bytes_on_wire: receipt.bytes_on_wire,
        cpu_ns: receipt.cpu_ns,
        elapsed_ns: receipt.elapsed_ns,
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
        bytes_on_wire: receipt.bytes_on_wire,
        cpu_ns: receipt.cpu_ns,
        elapsed_ns: receipt.elapsed_ns,
        operators: receipt.operators.iter().map(|a| read_answer(read(a)?)).collect::<Result<_>>()?,
        bytes_plain: receipt.bytes_plain,
        encoding: Encoding::ALL.get(receipt.encoding as usize).copied().unwrap_or_default(),
    })
}

fn write_table(table: &TableInfo) -> Result<proto::TableInfo> {
    let write_column = |column: &ColumnStatistics| proto::ColumnStatistics {
        null_count: column.null_count,
        min: column.min.as_ref().and_then(write_value),
        max: column.max.as_ref().and_then(write_value),
        distinct_count: column.distinct_count,
        bytes_encoded: column.bytes_encoded,
        distinct_estimate: column.distinct_estimate,
    };
    Ok(proto::TableInfo {
        name: table.name.as_str().to_string(),
        version: table.version.0,
        schema: batch::encode_schema(&table.schema)?.to_vec(),
        rows: table.rows,
        bytes_plain: table.bytes_plain,
        bytes_encoded: table.bytes_encoded,
        columns: table.columns.iter().map(|column| body(&write_column(column))).collect(),
    })
}

fn read_table(table: proto::TableInfo) -> Result<TableInfo> {
    let schema = batch::decode_schema(&table.schema)?;
    if table.columns.len() != schema.fields().len() {
        return Err(Error::corrupt(format!(
            "a table of {} columns came with statistics of {}",
            schema.fields().len(),
            table.columns.len()
        )));
    }
    let columns = table.columns.iter().zip(schema.fields()).map(|(column, field)| {
        let column: proto::ColumnStatistics = read(column)?;
        let value = |value: Option<proto::Value>| match value.and_then(|v| v.kind) {
            Some(kind) => Literal::new(read_value(kind)?, field.data_type().clone()).map(Some),
            None => Ok(None),
        };
        Ok(ColumnStatistics {
            null_count: column.null_count,
            min: value(column.min)?,
            max: value(column.max)?,
            distinct_count: column.distinct_count,
            distinct_estimate: column.distinct_estimate,
            bytes_encoded: column.bytes_encoded,
        })
    });
    let columns = columns.collect::<Result<_>>()?;
    Ok(TableInfo {
        name: TableName::new(table.name)?,
        version: Version(table.version),
        schema,
        rows: table.rows,
        bytes_plain: table.bytes_plain,
        bytes_encoded: table.bytes_encoded,
        columns,
    })
}

fn write_statistics(statistics: &TableStatistics) -> Result<proto::TableStatistics> {
    let column = |states: &ColumnStates| {
        body(&proto::ColumnStates { sketch: states.sketch.clone(), histogram: states.histogram.clone() })
    };
    let moments = statistics.moments.as_ref();
    Ok(proto::TableStatistics {
        table: body(&write_table(&statistics.table)?),
        columns: statistics.columns.iter().map(column).collect(),
        moments: moments
            .map(|m| body(&proto::MomentsState { columns: m.columns.clone(), state: m.state.clone() })),
    })
}

/// The states themselves stay bytes: who uses them reads them.
fn read_statistics(statistics: &proto::TableStatistics) -> Result<TableStatistics> {
    let table = read_table(read(&statistics.table)?)?;
    let columns_of_table = table.columns.len();
    if statistics.columns.len() != columns_of_table {
        let states = statistics.columns.len();
        return Err(Error::corrupt(format!(
            "a table of {columns_of_table} columns came with states of {states}"
        )));
    }
    let column = |bytes: &Bytes| -> Result<ColumnStates> {
        let proto::ColumnStates { sketch, histogram } = read(bytes)?;
        Ok(ColumnStates { sketch, histogram })
    };
    let moments = match &statistics.moments {
        Some(bytes) => {
            let proto::MomentsState { columns, state } = read(bytes)?;
            if columns.iter().any(|c| *c as usize >= columns_of_table) {
                return Err(Error::corrupt("moments of a column that the table does not have"));
            }
            Some(MomentsState { columns, state })
        }
        None => None,
    };
    let columns = statistics.columns.iter().map(column).collect::<Result<_>>()?;
    Ok(TableStatistics { table, columns, moments })
}

/// Bytes of the longest bound of strings or binaries that travels. Bounds are for estimates; a longer one
/// is not known to the client, which is always allowed.
const BOUND_BYTES_MAX: usize = 1 << 10;

fn write_value(literal: &Literal) -> Option<proto::Value> {
    use proto::ValueKind;
    let kind = match literal.value() {
        Value::Null => return None,
        Value::Text(v) if v.len() > BOUND_BYTES_MAX => return None,
        Value::Bytes(v) if v.len() > BOUND_BYTES_MAX => return None,
        Value::Bool(v) => ValueKind::Boolean(*v),
        Value::Int(v) => match i64::try_from(*v) {
            Ok(v) => ValueKind::Integer(v),
            Err(_) => ValueKind::WideInteger(v.to_le_bytes().to_vec()),
        },
        Value::Float(v) => ValueKind::Float(*v),
        Value::Text(v) => ValueKind::Text(v.clone()),
        Value::Bytes(v) => ValueKind::Binary(v.clone()),
    };
    Some(proto::Value { kind: Some(kind) })
}

fn read_value(kind: proto::ValueKind) -> Result<Value> {
    use proto::ValueKind;
    Ok(match kind {
        ValueKind::Boolean(v) => Value::Bool(v),
        ValueKind::Integer(v) => Value::Int(v.into()),
        ValueKind::WideInteger(bytes) => match bytes.try_into() {
            Ok(bytes) => Value::Int(i128::from_le_bytes(bytes)),
            Err(_) => return Err(Error::corrupt("a wide integer has 16 bytes")),
        },
        ValueKind::Float(v) => Value::Float(v),
        ValueKind::Text(v) => Value::Text(v),
        ValueKind::Binary(v) => Value::Bytes(v),
    })
}

fn write_status(status: &Status) -> proto::StatusInfo {
    let tenant = |t: &TenantStatus| proto::TenantStatus {
        tenant: t.tenant.clone(),
        memory_bytes_used: t.memory_bytes_used,
        tables: t.tables,
        programs: t.programs,
        bytes_scanned: t.bytes_scanned,
        cpu_ns: t.cpu_ns,
    };
    proto::StatusInfo {
        version: status.version.clone(),
        memory_bytes_limit: status.memory_bytes_limit,
        memory_bytes_used: status.memory_bytes_used,
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
            tables: t.tables,
            programs: t.programs,
            bytes_scanned: t.bytes_scanned,
            cpu_ns: t.cpu_ns,
        })
    };
    Ok(Status {
        version: status.version,
        memory_bytes_limit: status.memory_bytes_limit,
        memory_bytes_used: status.memory_bytes_used,
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
