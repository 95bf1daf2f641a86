//! Bodies of messages, as protocol buffers, about programs: plans, answers, receipts (execution statistics), and column
//! chunks that clients cache.

use super::check_count;
use crate::request::{body, read};
use crate::{Response, batch, substrait};
use arrow_schema::SchemaRef;
use bytes::Bytes;
use farpool_model::{
    self as model, Compression, Encoding, Error, Expr, Program, Result, SchemaFingerprint, TableName,
    Version, limits,
};
use prost::{Enumeration, Message};
use std::sync::Arc;

/// The fields of a [`PlanRequest`] that name a prepared program; decoded alone to find the program.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct PlanHandle {
    #[prost(uint32, optional, tag = "3")]
    pub handle: Option<u32>,
}

/// The fields of an [`OutlinesRequest`] and of a [`Fetch`] that name a prepared program; decoded alone to find the
/// program.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ChunksHandle {
    #[prost(uint32, tag = "1")]
    pub handle: u32,
}

/// The form in which a client wants the rows of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum ResultForm {
    Plain = 0,
    Packed = 1,
    Auto = 2,
    Lz4 = 3,
    Zstd = 4,
}

/// Body of the messages `Prepare` and `Execute`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PlanRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub plan: Vec<u8>,
    #[prost(enumeration = "ResultForm", tag = "2")]
    pub results: i32,
    #[prost(uint32, optional, tag = "3")]
    pub handle: Option<u32>,
    #[prost(fixed64, optional, tag = "4")]
    pub schema_fingerprint: Option<u64>,
}

/// Body of the message `Outlines`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct OutlinesRequest {
    #[prost(uint32, tag = "1")]
    pub handle: u32,
    #[prost(uint32, repeated, tag = "2")]
    pub columns: Vec<u32>,
    #[prost(uint32, tag = "3")]
    pub first: u32,
    #[prost(uint64, tag = "4")]
    pub known: u64,
}

/// Body of the message `OutlineList`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct OutlineList {
    #[prost(uint32, tag = "1")]
    pub row_groups: u32,
    #[prost(uint32, repeated, tag = "2")]
    pub rows: Vec<u32>,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub chunks: Vec<Bytes>,
    #[prost(uint64, tag = "4")]
    pub table: u64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ChunkOutline {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(bytes = "bytes", tag = "2")]
    pub head: Bytes,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub data: Option<Bytes>,
}

/// Body of the message `Fetch`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Fetch {
    #[prost(uint32, tag = "1")]
    pub handle: u32,
    #[prost(uint32, repeated, tag = "2")]
    pub columns: Vec<u32>,
    #[prost(uint32, repeated, tag = "3")]
    pub row_groups: Vec<u32>,
}

/// The extent to which the node executes an operator of a program: exactly, in part, or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Answer {
    Unspecified = 0,
    Exact = 1,
    Superset = 2,
    Refused = 3,
}

/// The node's answer for one operator.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct OperatorAnswer {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub detail: String,
    #[prost(enumeration = "Answer", tag = "3")]
    pub answer: i32,
    #[prost(string, optional, tag = "4")]
    pub reason: Option<String>,
}

/// Body of the message `Prepared`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Prepared {
    #[prost(uint64, tag = "1")]
    pub version: u64,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub answers: Vec<Bytes>,
    #[prost(bytes = "vec", tag = "3")]
    pub effective: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub schema: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    pub table_schema: Vec<u8>,
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub lookup_tables: Vec<Bytes>,
}

/// A table of a lookup, in the message `Prepared`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LookupTable {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(bytes = "vec", tag = "2")]
    pub schema: Vec<u8>,
}

/// Body of the message `Receipt`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Receipt {
    #[prost(uint64, tag = "1")]
    pub rows_scanned: u64,
    #[prost(uint64, tag = "2")]
    pub rows_skipped: u64,
    #[prost(uint64, tag = "3")]
    pub rows_returned: u64,
    #[prost(uint64, tag = "4")]
    pub bytes_scanned: u64,
    #[prost(uint64, tag = "5")]
    pub bytes_skipped: u64,
    #[prost(uint64, tag = "6")]
    pub bytes_on_wire: u64,
    #[prost(uint64, tag = "7")]
    pub cpu_ns: u64,
    #[prost(uint64, tag = "8")]
    pub elapsed_ns: u64,
    #[prost(bytes = "bytes", repeated, tag = "9")]
    pub operators: Vec<Bytes>,
    #[prost(uint64, tag = "10")]
    pub rows_bypassed: u64,
    #[prost(uint64, tag = "11")]
    pub bytes_plain: u64,
    #[prost(uint32, tag = "12")]
    pub encoding: u32,
    #[prost(uint64, tag = "13")]
    pub waited_ns: u64,
    #[prost(uint64, tag = "14")]
    pub bytes_from_disk: u64,
    #[prost(uint64, tag = "15")]
    pub bytes_from_cache: u64,
    #[prost(uint64, tag = "16")]
    pub bytes_shared: u64,
    #[prost(uint64, tag = "17")]
    pub rows_known: u64,
    #[prost(uint64, tag = "18")]
    pub bytes_again: u64,
    #[prost(message, repeated, tag = "19")]
    pub lookups: Vec<LookupReceipt>,
}

/// Cost of the table of a lookup.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LookupReceipt {
    #[prost(string, tag = "1")]
    pub table: String,
    #[prost(uint64, tag = "2")]
    pub rows: u64,
    #[prost(uint64, tag = "3")]
    pub bytes: u64,
    #[prost(uint64, tag = "4")]
    pub elapsed_ns: u64,
}

fn check_plan(plan: &[u8]) -> Result<()> {
    if plan.len() > limits::PLAN_BYTES_MAX {
        return Err(Error::over_limit(format!(
            "a plan may have {} bytes, this one has {}",
            limits::PLAN_BYTES_MAX,
            plan.len()
        )));
    }
    Ok(())
}

pub(crate) fn write_plan(
    plan: &[u8],
    results: model::ResultForm,
    handle: Option<u32>,
    schema: Option<SchemaFingerprint>,
) -> Result<Bytes> {
    check_plan(plan)?;
    let results = match results {
        model::ResultForm::Plain => ResultForm::Plain,
        model::ResultForm::Packed => ResultForm::Packed,
        model::ResultForm::Auto => ResultForm::Auto,
        model::ResultForm::Compressed(Compression::Lz4) => ResultForm::Lz4,
        model::ResultForm::Compressed(Compression::Zstd) => ResultForm::Zstd,
    };
    Ok(body(&PlanRequest {
        plan: plan.to_vec(),
        results: results.into(),
        handle,
        schema_fingerprint: schema.map(|fingerprint| fingerprint.0),
    }))
}

pub(crate) fn read_plan(body: &Bytes) -> Result<(PlanRequest, model::ResultForm)> {
    let request: PlanRequest = read(body)?;
    check_plan(&request.plan)?;
    // A result form of a later version is treated as Arrow batches, which every client understands.
    let results = match request.results() {
        ResultForm::Plain => model::ResultForm::Plain,
        ResultForm::Packed => model::ResultForm::Packed,
        ResultForm::Auto => model::ResultForm::Auto,
        ResultForm::Lz4 => model::ResultForm::Compressed(Compression::Lz4),
        ResultForm::Zstd => model::ResultForm::Compressed(Compression::Zstd),
    };
    Ok((request, results))
}

pub(crate) fn write_prepared(prepared: &model::Prepared, table_schema: &SchemaRef) -> Result<Prepared> {
    let lookup_table = |(name, schema): (&TableName, &SchemaRef)| {
        let schema = batch::encode_schema(schema)?.to_vec();
        Ok(body(&LookupTable { name: name.encoded(), schema }))
    };
    let lookup_tables = prepared.effective.lookup_tables()?.into_iter().map(lookup_table);
    Ok(Prepared {
        version: prepared.version.0,
        answers: prepared.answers.iter().map(|answer| body(&write_answer(answer))).collect(),
        effective: substrait::encode_program(&without_sets(&prepared.effective), table_schema)?,
        schema: batch::encode_schema(&prepared.schema)?.to_vec(),
        table_schema: batch::encode_schema(table_schema)?.to_vec(),
        lookup_tables: lookup_tables.collect::<Result<_>>()?,
    })
}

/// Returns the program without the sets of keys in its filter, which are large and which the client that sent them has.
/// The sets in programs of lookups stay, because such a program has no meaning if a part of it is opaque.
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

pub(crate) fn read_prepared(prepared: Prepared) -> Result<Response> {
    let table_schema = batch::decode_schema(&prepared.table_schema)?;
    let lookup_tables = read_lookup_tables(&prepared.lookup_tables)?;
    let schema_of = |name: &TableName| {
        let of_lookup = lookup_tables.iter().find(|(table, _)| table == name).map(|(_, schema)| schema);
        Ok(Arc::clone(of_lookup.unwrap_or(&table_schema)))
    };
    let effective = substrait::decode_program(&prepared.effective, &schema_of)?;
    let prepared = model::Prepared {
        version: Version(prepared.version),
        answers: read_answers(&prepared.answers)?,
        effective,
        schema: batch::decode_schema(&prepared.schema)?,
    };
    Ok(Response::Prepared { prepared, table_schema })
}

fn read_lookup_tables(tables: &[Bytes]) -> Result<Vec<(TableName, SchemaRef)>> {
    check_count("tables of lookups", tables.len(), limits::LOOKUPS_MAX)?;
    let read_one = |table: &Bytes| {
        let LookupTable { name, schema } = read(table)?;
        Ok((TableName::decode(name)?, batch::decode_schema(&schema)?))
    };
    tables.iter().map(read_one).collect()
}

fn write_answer(answer: &model::OperatorAnswer) -> OperatorAnswer {
    let number = match answer.answer {
        model::Answer::Exact => Answer::Exact,
        model::Answer::Superset => Answer::Superset,
        model::Answer::Refused => Answer::Refused,
    };
    OperatorAnswer {
        name: answer.operator.name().to_string(),
        detail: answer.detail.clone(),
        answer: number.into(),
        reason: answer.reason.clone(),
    }
}

fn read_answers(answers: &[Bytes]) -> Result<Vec<model::OperatorAnswer>> {
    check_count("answers of a program", answers.len(), limits::ANSWERS_MAX)?;
    answers.iter().map(|answer| read_answer(read(answer)?)).collect()
}

fn read_answer(answer: OperatorAnswer) -> Result<model::OperatorAnswer> {
    let kind = match answer.answer() {
        Answer::Exact => model::Answer::Exact,
        Answer::Superset => model::Answer::Superset,
        Answer::Refused => model::Answer::Refused,
        // An unknown answer must not be guessed: if a filter were taken for exact, the client would not apply it again,
        // and the result could be wrong.
        Answer::Unspecified => {
            return Err(Error::corrupt(format!("answer {} does not exist", answer.answer)));
        }
    };
    let operator = answer.name.parse()?;
    Ok(model::OperatorAnswer { operator, detail: answer.detail, answer: kind, reason: answer.reason })
}

pub(crate) fn write_receipt(receipt: &model::Receipt) -> Receipt {
    Receipt {
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
        lookups: receipt.lookups.iter().map(write_lookup).collect(),
        bytes_plain: receipt.bytes_plain,
        encoding: Encoding::ALL.iter().position(|e| *e == receipt.encoding).map_or(0, |place| place as u32),
    }
}

fn write_lookup(lookup: &model::LookupReceipt) -> LookupReceipt {
    let model::LookupReceipt { table, rows, bytes, elapsed_ns } = lookup.clone();
    LookupReceipt { table, rows, bytes, elapsed_ns }
}

fn read_lookups(lookups: Vec<LookupReceipt>) -> Result<Vec<model::LookupReceipt>> {
    if lookups.len() > limits::LOOKUPS_MAX {
        let most = limits::LOOKUPS_MAX;
        return Err(Error::over_limit(format!(
            "a receipt may have {most} lookups, this one has {}",
            lookups.len()
        )));
    }
    let read = |LookupReceipt { table, rows, bytes, elapsed_ns }| model::LookupReceipt {
        table,
        rows,
        bytes,
        elapsed_ns,
    };
    Ok(lookups.into_iter().map(read).collect())
}

pub(crate) fn read_receipt(receipt: Receipt) -> Result<model::Receipt> {
    Ok(model::Receipt {
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
        lookups: read_lookups(receipt.lookups)?,
        bytes_plain: receipt.bytes_plain,
        encoding: Encoding::ALL.get(receipt.encoding as usize).copied().unwrap_or_default(),
        // Only the client that opened the connection knows whether it is encrypted.
        encrypted: false,
        // Not on the wire: a client that caches results sets it.
        bytes_saved: 0,
    })
}
