//! Encodes and decodes the ALTER TABLE request of the native protocol: changes of a table's columns or name.

use crate::batch::{decode_schema, encode_schema};
use crate::proto;
use crate::proto::ChangeKind;
use crate::request::{body, read};
use arrow_schema::{FieldRef, Schema};
use bytes::Bytes;
use farpool_model::{Error, Result, TableChange, TableName, limits};

/// Encodes the body of an `AlterTable` message.
pub(crate) fn write_alter(table: &TableName, changes: &[TableChange]) -> Result<Bytes> {
    let write = |change: &TableChange| {
        let kind = match change {
            TableChange::Rename(to) => ChangeKind::Rename(to.encoded()),
            TableChange::RenameColumn { from, to } => {
                ChangeKind::RenameColumn(proto::RenameColumn { from: from.clone(), to: to.clone() })
            }
            TableChange::AddColumn(field) => {
                ChangeKind::AddColumn(encode_schema(&Schema::new(vec![field.clone()]))?.to_vec())
            }
            TableChange::DropColumn(name) => ChangeKind::DropColumn(name.clone()),
        };
        Ok(body(&proto::TableChange { kind: Some(kind) }).to_vec())
    };
    let changes = changes.iter().map(write).collect::<Result<_>>()?;
    Ok(body(&proto::AlterTable { table: table.encoded(), changes }))
}

/// Decodes the body of an `AlterTable` message; returns the table's name and the changes.
pub(crate) fn read_alter(bytes: &Bytes) -> Result<(TableName, Vec<TableChange>)> {
    let proto::AlterTable { table, changes } = read(bytes)?;
    if changes.is_empty() {
        return Err(Error::invalid("no change of a table"));
    }
    if changes.len() > limits::COLUMNS_MAX {
        let most = limits::COLUMNS_MAX;
        return Err(Error::over_limit(format!("a table may be altered in {most} ways at once")));
    }
    let read_one = |change: Vec<u8>| {
        let proto::TableChange { kind } = read(&change.into())?;
        match kind {
            Some(ChangeKind::Rename(to)) => Ok(TableChange::Rename(TableName::decode(to)?)),
            Some(ChangeKind::RenameColumn(proto::RenameColumn { from, to })) => {
                Ok(TableChange::RenameColumn { from, to })
            }
            Some(ChangeKind::AddColumn(schema)) => read_field(&schema).map(TableChange::AddColumn),
            Some(ChangeKind::DropColumn(name)) => Ok(TableChange::DropColumn(name)),
            None => Err(Error::invalid("a change of a table that this node does not know")),
        }
    };
    Ok((TableName::decode(table)?, changes.into_iter().map(read_one).collect::<Result<_>>()?))
}

fn read_field(schema: &[u8]) -> Result<FieldRef> {
    match &decode_schema(schema)?.fields()[..] {
        [field] => Ok(field.clone()),
        fields => Err(Error::invalid(format!("{} columns where one is added", fields.len()))),
    }
}
