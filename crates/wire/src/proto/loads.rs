//! Bodies of messages, as protocol buffers, about loads and changes of rows, and their outcomes.

use crate::request::{body, read};
use crate::response::{read_error, write_error};
use crate::table::{read_tier, write_tier};
use crate::{Request, Response, batch};
use arrow_schema::SchemaRef;
use bytes::Bytes;
use farpool_model::{self as model, Error, LoadId, LoadedVersion, Result, TableName, Version};
use prost::{Enumeration, Message};

/// Behavior of a load if the table exists; see the model's `LoadMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum LoadMode {
    Unspecified = 0,
    Create = 1,
    Append = 2,
    Replace = 3,
}

/// Encryption tier of a table's values in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Tier {
    None = 0,
    Fast = 1,
    Standard = 2,
    Strict = 3,
}

/// The options of a load, a part of [`LoadBegin`].
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct LoadOptions {
    #[prost(enumeration = "LoadMode", tag = "1")]
    pub mode: i32,
    #[prost(enumeration = "Tier", tag = "2")]
    pub encryption: i32,
    #[prost(enumeration = "Residency", tag = "3")]
    pub residency: i32,
}

/// Form in which loaded rows are kept in memory; see the model's `Residency`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Residency {
    Cached = 0,
    Pinned = 1,
    Passing = 2,
}

/// Body of the message `LoadBegin`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LoadBegin {
    #[prost(string, tag = "1")]
    pub table: String,
    #[prost(enumeration = "LoadMode", tag = "2")]
    pub mode: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub schema: Vec<u8>,
    #[prost(uint64, optional, tag = "4")]
    pub rows_hint: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    pub version: Option<u64>,
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub id: Option<Bytes>,
    #[prost(message, optional, tag = "7")]
    pub options: Option<LoadOptions>,
}

/// Body of the message `ChangeRows`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ChangeRows {
    #[prost(uint32, tag = "1")]
    pub handle: u32,
    #[prost(uint64, tag = "2")]
    pub rows: u64,
    #[prost(bytes = "bytes", tag = "3")]
    pub id: Bytes,
}

/// Body of the message `LoadOutcome`, which asks for the outcome of a load.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LoadOutcome {
    #[prost(bytes = "bytes", tag = "1")]
    pub id: Bytes,
}

/// Body of the message `LoadEnded`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LoadEnded {
    #[prost(uint64, optional, tag = "1")]
    pub version: Option<u64>,
    #[prost(uint64, tag = "2")]
    pub rows: u64,
    #[prost(uint64, tag = "3")]
    pub bytes_plain: u64,
    #[prost(uint64, tag = "4")]
    pub bytes_encoded: u64,
    #[prost(bytes = "bytes", optional, tag = "5")]
    pub error: Option<Bytes>,
    #[prost(uint64, tag = "6")]
    pub forgotten: u64,
}

/// Encodes a `LoadBegin`.
pub(crate) fn write_load_begin(
    table: &TableName,
    options: &model::LoadOptions,
    schema: &SchemaRef,
    rows_hint: Option<u64>,
    id: Option<LoadId>,
) -> Result<Bytes> {
    let (mode, version) = write_mode(options.mode);
    // A node that does not know the options does not know a load without a mode either, and refuses it.
    let (mode, options) = match options.has_more() {
        false => (mode, None),
        true => (LoadMode::Unspecified, Some(write_options(mode, options))),
    };
    Ok(body(&LoadBegin {
        table: table.encoded(),
        mode: mode.into(),
        options,
        schema: batch::encode_schema(schema)?.to_vec(),
        rows_hint,
        version,
        id: id.map(write_id),
    }))
}

pub(crate) fn read_load_begin(body: &Bytes) -> Result<Request> {
    let begin: LoadBegin = read(body)?;
    let mode = begin.options.map_or(begin.mode, |options| options.mode);
    let known = LoadMode::try_from(mode).unwrap_or(LoadMode::Unspecified);
    let mode = match (known, begin.version) {
        (LoadMode::Create, None) => model::LoadMode::Create,
        (LoadMode::Append, None) => model::LoadMode::Append,
        (LoadMode::Replace, None) => model::LoadMode::Replace,
        (LoadMode::Replace, Some(version)) => model::LoadMode::ReplaceVersion(Version(version)),
        (LoadMode::Unspecified, _) => {
            return Err(Error::invalid(format!("load mode {mode} does not exist")));
        }
        (_, Some(_)) => return Err(Error::invalid("only a load that replaces a table names its version")),
    };
    Ok(Request::LoadBegin {
        table: TableName::decode(begin.table)?,
        options: model::LoadOptions {
            mode,
            encryption: begin.options.map_or(Ok(None), |options| read_tier(options.encryption))?,
            residency: begin
                .options
                .map_or(Ok(model::Residency::Cached), |options| read_residency(options.residency))?,
        },
        schema: batch::decode_schema(&begin.schema)?,
        rows_hint: begin.rows_hint,
        id: begin.id.as_ref().map(read_id).transpose()?,
    })
}

pub(crate) fn write_id(id: LoadId) -> Bytes {
    Bytes::copy_from_slice(&id.0.to_le_bytes())
}

pub(crate) fn read_id(id: &Bytes) -> Result<LoadId> {
    let bytes = id[..]
        .try_into()
        .map_err(|_| Error::invalid(format!("the id of a load has 16 bytes, not {}", id.len())))?;
    Ok(LoadId(u128::from_le_bytes(bytes)))
}

fn write_options(mode: LoadMode, options: &model::LoadOptions) -> LoadOptions {
    let residency = match options.residency {
        model::Residency::Cached => Residency::Cached,
        model::Residency::Pinned => Residency::Pinned,
        model::Residency::Passing => Residency::Passing,
    };
    let encryption = write_tier(options.encryption).into();
    LoadOptions { mode: mode.into(), encryption, residency: residency.into() }
}

fn read_residency(number: i32) -> Result<model::Residency> {
    match Residency::try_from(number) {
        Ok(Residency::Cached) => Ok(model::Residency::Cached),
        Ok(Residency::Pinned) => Ok(model::Residency::Pinned),
        Ok(Residency::Passing) => Ok(model::Residency::Passing),
        Err(_) => Err(Error::invalid(format!("residency {number} does not exist"))),
    }
}

/// Encodes the mode of a load: returns its number on the wire, and the table version that it names, if any.
fn write_mode(mode: model::LoadMode) -> (LoadMode, Option<u64>) {
    match mode {
        model::LoadMode::Create => (LoadMode::Create, None),
        model::LoadMode::Append => (LoadMode::Append, None),
        model::LoadMode::Replace => (LoadMode::Replace, None),
        model::LoadMode::ReplaceVersion(version) => (LoadMode::Replace, Some(version.0)),
    }
}

pub(crate) fn write_load_ended(outcome: &model::LoadOutcome, forgotten: Version) -> LoadEnded {
    let mut ended = LoadEnded { forgotten: forgotten.0, ..Default::default() };
    match outcome {
        model::LoadOutcome::Loaded(made) => {
            ended.version = Some(made.version.0);
            (ended.rows, ended.bytes_plain, ended.bytes_encoded) =
                (made.rows, made.bytes_plain, made.bytes_encoded);
        }
        model::LoadOutcome::Failed(error) => ended.error = Some(body(&write_error(error))),
        model::LoadOutcome::NotLoaded => {}
    }
    ended
}

pub(crate) fn read_load_ended(ended: LoadEnded) -> Result<Response> {
    let outcome = match (ended.version, &ended.error) {
        (Some(version), None) => model::LoadOutcome::Loaded(LoadedVersion {
            version: Version(version),
            rows: ended.rows,
            bytes_plain: ended.bytes_plain,
            bytes_encoded: ended.bytes_encoded,
        }),
        (None, Some(error)) => model::LoadOutcome::Failed(read_error(read(error)?)),
        (None, None) => model::LoadOutcome::NotLoaded,
        (Some(_), Some(_)) => return Err(Error::corrupt("a load that was loaded and failed")),
    };
    Ok(Response::LoadEnded { outcome, forgotten: Version(ended.forgotten) })
}
