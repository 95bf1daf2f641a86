//! Message bodies about tables, views and schemas, and their statistics.
//!
//! Invariant: the name and the text of a decoded view are within the limits. The text is not parsed here.

use super::Tier;
use crate::request::{body, read};
use crate::{Request, batch};
use arrow_schema::{FieldRef, Schema};
use bytes::Bytes;
use farpool_model::{self as model, Error, Result, SchemaName, TableName, TenantName, View, limits};
use prost::{Message, Oneof};

/// Body of the messages `Table`, `Drop` and `DropView`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TableRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint64, optional, tag = "2")]
    pub known: Option<u64>,
    #[prost(string, optional, tag = "3")]
    pub tenant: Option<String>,
    #[prost(bool, tag = "4")]
    pub or_view: bool,
}

/// Body of the message `CreateView`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CreateView {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub text: String,
    #[prost(bool, tag = "3")]
    pub replace: bool,
}

/// Body of the message `ViewInfo`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ViewInfo {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub text: String,
}

/// Body of the message `AlterTable`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AlterTable {
    #[prost(string, tag = "1")]
    pub table: String,
    /// Encoded [`TableChange`]s, which are decoded one by one.
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub changes: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct TableChange {
    #[prost(oneof = "ChangeKind", tags = "1, 2, 3, 4")]
    pub kind: Option<ChangeKind>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
pub enum ChangeKind {
    #[prost(string, tag = "1")]
    Rename(String),
    #[prost(message, tag = "2")]
    RenameColumn(RenameColumn),
    #[prost(bytes = "vec", tag = "3")]
    AddColumn(Vec<u8>),
    #[prost(string, tag = "4")]
    DropColumn(String),
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct RenameColumn {
    #[prost(string, tag = "1")]
    pub from: String,
    #[prost(string, tag = "2")]
    pub to: String,
}

/// Body of the message `Tables`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TablesRequest {
    #[prost(string, optional, tag = "1")]
    pub tenant: Option<String>,
    #[prost(bool, tag = "2")]
    pub with_schemas: bool,
}

/// Body of the messages `CreateSchema` and `DropSchema`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SchemaRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(bool, tag = "2")]
    pub cascade: bool,
}

/// Body of the message `Statistics`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StatisticsRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint32, repeated, tag = "2")]
    pub columns: Vec<u32>,
}

/// A constant of a column's type.
#[derive(Clone, PartialEq, Message)]
pub struct Value {
    #[prost(oneof = "ValueKind", tags = "1, 2, 3, 4, 5, 6")]
    pub kind: Option<ValueKind>,
}

/// The form of a constant, which depends on its type.
#[derive(Clone, PartialEq, Oneof)]
pub enum ValueKind {
    #[prost(bool, tag = "1")]
    Boolean(bool),
    /// A value of an integer type, or of a type that is stored as an integer (such as a date), if it fits 64 bits.
    #[prost(sint64, tag = "2")]
    Integer(i64),
    /// Any other such value: 16 bytes, two's complement, little-endian.
    #[prost(bytes = "vec", tag = "3")]
    WideInteger(Vec<u8>),
    #[prost(double, tag = "4")]
    Float(f64),
    #[prost(string, tag = "5")]
    Text(String),
    #[prost(bytes = "vec", tag = "6")]
    Binary(Vec<u8>),
}

/// Statistics of a column.
#[derive(Clone, PartialEq, Message)]
pub struct ColumnStatistics {
    #[prost(uint64, tag = "1")]
    pub null_count: u64,
    #[prost(message, optional, tag = "2")]
    pub min: Option<Value>,
    #[prost(message, optional, tag = "3")]
    pub max: Option<Value>,
    #[prost(uint64, optional, tag = "4")]
    pub distinct_count: Option<u64>,
    #[prost(uint64, tag = "5")]
    pub bytes_encoded: u64,
    #[prost(uint64, optional, tag = "6")]
    pub distinct_estimate: Option<u64>,
    /// The encoded [`Spread`] of the column.
    #[prost(bytes = "bytes", optional, tag = "7")]
    pub spread: Option<Bytes>,
}

/// The statistics of a column's values that estimates need: frequent values, histogram, quantiles.
#[derive(Clone, PartialEq, Message)]
pub struct Spread {
    #[prost(message, repeated, tag = "1")]
    pub frequent: Vec<Frequent>,
    #[prost(double, tag = "2")]
    pub low: f64,
    #[prost(double, tag = "3")]
    pub width: f64,
    #[prost(uint64, repeated, tag = "4")]
    pub bins: Vec<u64>,
    #[prost(double, repeated, tag = "5")]
    pub quantiles: Vec<f64>,
    #[prost(double, tag = "6")]
    pub quantile_error: f64,
}

/// A frequent value of a column, and the number of its rows.
#[derive(Clone, PartialEq, Message)]
pub struct Frequent {
    #[prost(message, optional, tag = "1")]
    pub value: Option<Value>,
    #[prost(uint64, tag = "2")]
    pub rows: u64,
}

/// Body of the messages `TableInfo` and `Loaded`.
#[derive(Clone, PartialEq, Message)]
pub struct TableInfo {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint64, tag = "2")]
    pub version: u64,
    #[prost(bytes = "vec", tag = "3")]
    pub schema: Vec<u8>,
    #[prost(uint64, tag = "4")]
    pub rows: u64,
    #[prost(uint64, tag = "5")]
    pub bytes_plain: u64,
    #[prost(uint64, tag = "6")]
    pub bytes_encoded: u64,
    #[prost(bytes = "bytes", repeated, tag = "7")]
    pub columns: Vec<Bytes>,
    #[prost(uint64, optional, tag = "8")]
    pub rows_profiled: Option<u64>,
    #[prost(enumeration = "Tier", tag = "9")]
    pub encryption: i32,
    #[prost(uint64, optional, tag = "10")]
    pub bytes_resident: Option<u64>,
    #[prost(bool, tag = "11")]
    pub is_pinned: bool,
}

/// Body of the message `TableList`.
#[derive(Clone, PartialEq, Message)]
pub struct TableList {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub tables: Vec<Bytes>,
    #[prost(string, repeated, tag = "2")]
    pub views: Vec<String>,
    #[prost(string, repeated, tag = "3")]
    pub schemas: Vec<String>,
}

/// The encoded states (sketches) of one column.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ColumnStates {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub sketch: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub histogram: Option<Bytes>,
}

/// The encoded moments of several columns, for correlations.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct MomentsState {
    #[prost(uint32, repeated, tag = "1")]
    pub columns: Vec<u32>,
    #[prost(bytes = "bytes", tag = "2")]
    pub state: Bytes,
}

/// Body of the message `TableStatistics`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TableStatistics {
    #[prost(bytes = "bytes", tag = "1")]
    pub table: Bytes,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub columns: Vec<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub moments: Option<Bytes>,
}

pub(crate) fn write_drop(name: &TableName, tenant: Option<TenantName>) -> Bytes {
    let (name, tenant) = (name.encoded(), tenant.map(String::from));
    body(&TableRequest { name, tenant, ..Default::default() })
}

pub(crate) fn read_tenant(tenant: Option<String>) -> Result<Option<TenantName>> {
    tenant.map(TenantName::new).transpose()
}

/// Encodes a `Statistics` request. Refuses an empty list of columns, because the node would read it as all columns.
pub(crate) fn write_statistics_request(table: &TableName, columns: Option<&[u32]>) -> Result<Bytes> {
    if columns.is_some_and(<[u32]>::is_empty) {
        return Err(Error::invalid("statistics of no column"));
    }
    let columns = columns.unwrap_or_default();
    check_columns(columns)?;
    Ok(body(&StatisticsRequest { name: table.encoded(), columns: columns.to_vec() }))
}

pub(crate) fn read_statistics_request(body: &Bytes) -> Result<Request> {
    let StatisticsRequest { name, columns } = read(body)?;
    check_columns(&columns)?;
    let columns = Some(columns).filter(|columns| !columns.is_empty());
    Ok(Request::Statistics { table: TableName::decode(name)?, columns })
}

fn check_columns(columns: &[u32]) -> Result<()> {
    if columns.last().is_some_and(|last| *last as usize >= limits::COLUMNS_MAX) {
        let most = limits::COLUMNS_MAX;
        return Err(Error::over_limit(format!("a table has up to {most} columns")));
    }
    match columns.is_sorted_by(|one, next| one < next) {
        true => Ok(()),
        false => Err(Error::invalid("the columns of statistics are not in ascending order")),
    }
}

/// Encodes the body of a `CreateView`.
pub(crate) fn write_create_view(view: &View, replace: bool) -> Bytes {
    body(&CreateView { name: view.name().encoded(), text: view.text().to_string(), replace })
}

/// Decodes the body of a `CreateView`: the view, and whether it may replace another one.
pub(crate) fn read_create_view(bytes: &Bytes) -> Result<(View, bool)> {
    let CreateView { name, text, replace } = read(bytes)?;
    Ok((View::new(TableName::decode(name)?, text)?, replace))
}

/// Encodes the body of a `ViewInfo`.
pub(crate) fn write_view(view: &View) -> Bytes {
    body(&ViewInfo { name: view.name().encoded(), text: view.text().to_string() })
}

/// Decodes the body of a `ViewInfo`.
pub(crate) fn read_view(bytes: &Bytes) -> Result<View> {
    let ViewInfo { name, text } = read(bytes)?;
    View::new(TableName::decode(name)?, text)
}

/// Decodes the schemas in a `TableList`.
pub(crate) fn read_schema_names(names: Vec<String>) -> Result<Vec<SchemaName>> {
    if names.len() > limits::SCHEMAS_PER_TENANT_MAX {
        let (count, most) = (names.len(), limits::SCHEMAS_PER_TENANT_MAX);
        return Err(Error::over_limit(format!("there may be {most} schemas, here are {count}")));
    }
    names.into_iter().map(SchemaName::new).collect()
}

/// Decodes the names of the views in a `TableList`.
pub(crate) fn read_view_names(names: Vec<String>) -> Result<Vec<TableName>> {
    if names.len() > limits::VIEWS_PER_TENANT_MAX {
        let (count, most) = (names.len(), limits::VIEWS_PER_TENANT_MAX);
        return Err(Error::over_limit(format!("there may be {most} views, here are {count}")));
    }
    names.into_iter().map(TableName::decode).collect()
}

/// Encodes the body of an `AlterTable`.
pub(crate) fn write_alter(table: &TableName, changes: &[model::TableChange]) -> Result<Bytes> {
    let write = |change: &model::TableChange| {
        let kind = match change {
            model::TableChange::Rename(to) => ChangeKind::Rename(to.encoded()),
            model::TableChange::RenameColumn { from, to } => {
                ChangeKind::RenameColumn(RenameColumn { from: from.clone(), to: to.clone() })
            }
            model::TableChange::AddColumn(field) => {
                ChangeKind::AddColumn(batch::encode_schema(&Schema::new(vec![field.clone()]))?.to_vec())
            }
            model::TableChange::DropColumn(name) => ChangeKind::DropColumn(name.clone()),
        };
        Ok(body(&TableChange { kind: Some(kind) }).to_vec())
    };
    let changes = changes.iter().map(write).collect::<Result<_>>()?;
    Ok(body(&AlterTable { table: table.encoded(), changes }))
}

/// Decodes the body of an `AlterTable`: the table and its changes.
pub(crate) fn read_alter(bytes: &Bytes) -> Result<(TableName, Vec<model::TableChange>)> {
    let AlterTable { table, changes } = read(bytes)?;
    if changes.is_empty() {
        return Err(Error::invalid("no change of a table"));
    }
    if changes.len() > limits::COLUMNS_MAX {
        let most = limits::COLUMNS_MAX;
        return Err(Error::over_limit(format!("a table may be altered in {most} ways at once")));
    }
    let read_one = |change: Vec<u8>| {
        let TableChange { kind } = read(&change.into())?;
        match kind {
            Some(ChangeKind::Rename(to)) => Ok(model::TableChange::Rename(TableName::decode(to)?)),
            Some(ChangeKind::RenameColumn(RenameColumn { from, to })) => {
                Ok(model::TableChange::RenameColumn { from, to })
            }
            Some(ChangeKind::AddColumn(schema)) => read_field(&schema).map(model::TableChange::AddColumn),
            Some(ChangeKind::DropColumn(name)) => Ok(model::TableChange::DropColumn(name)),
            None => Err(Error::invalid("a change of a table that this node does not know")),
        }
    };
    Ok((TableName::decode(table)?, changes.into_iter().map(read_one).collect::<Result<_>>()?))
}

fn read_field(schema: &[u8]) -> Result<FieldRef> {
    match &batch::decode_schema(schema)?.fields()[..] {
        [field] => Ok(field.clone()),
        fields => Err(Error::invalid(format!("{} columns where one is added", fields.len()))),
    }
}
