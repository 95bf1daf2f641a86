//! Sending rows to the node: as fast as it gives credit, until all are there or it refuses.

use super::connection::Channel;
use super::query::unexpected;
use crate::BatchStream;
use arrow_array::RecordBatch;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, SchemaRef};
use farpool_model::{Error, Result, TableInfo, limits};
use farpool_wire::{Request, Response};
use futures::StreamExt;

/// Sends `batches` on `channel`, on which the load has begun; `schema` is the canonical schema.
///
/// # Errors
/// Those of the batches, after which the node forgets the load; those of the node, as soon as it says so.
pub(super) async fn load(
    mut channel: Channel,
    schema: &SchemaRef,
    batches: BatchStream,
) -> Result<TableInfo> {
    let mut batches = batches.fuse();
    loop {
        tokio::select! {
            biased;
            answer = answer(&mut channel) => return answer,
            batch = batches.next() => match batch {
                Some(batch) => send(&mut channel, schema, &batch?).await?,
                None => break,
            },
        }
    }
    Request::LoadEnd.encode()?.into_iter().for_each(|message| channel.send(message));
    answer(&mut channel).await
}

/// Sends one batch, in parts of at most a row group, waiting for credit as needed. Once the node has refused the
/// load, the rest of the batch goes nowhere.
async fn send(channel: &mut Channel, schema: &SchemaRef, batch: &RecordBatch) -> Result<()> {
    for start in (0..batch.num_rows()).step_by(limits::ROW_GROUP_ROWS) {
        let rows = limits::ROW_GROUP_ROWS.min(batch.num_rows() - start);
        let part = canonical(&batch.slice(start, rows), schema)?;
        for message in Request::LoadBatch(part).encode()? {
            if !channel.may_send().await {
                return Ok(());
            }
            channel.send(message);
        }
    }
    Ok(())
}

/// What the node says of the load: before all rows are there, only that it refuses it.
async fn answer(channel: &mut Channel) -> Result<TableInfo> {
    let message = channel.receive().await?;
    match Response::decode(&message, None)? {
        Response::Loaded(table) => Ok(table),
        Response::Error(error) => Err(error),
        other => Err(unexpected(other.kind())),
    }
}

/// The batch in the schema that the pool holds.
fn canonical(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    if batch.num_columns() != schema.fields().len() {
        return Err(Error::invalid(format!(
            "a batch has {} columns, its schema {}",
            batch.num_columns(),
            schema.fields().len()
        )));
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| {
        // There is no direct way from values of fixed size to views.
        let column = match column.data_type() {
            DataType::FixedSizeBinary(_) => cast_with_options(column, &DataType::Binary, &options),
            _ => Ok(column.clone()),
        };
        column
            .and_then(|column| match column.data_type() == field.data_type() {
                true => Ok(column),
                false => cast_with_options(&column, field.data_type(), &options),
            })
            .map_err(|error| Error::invalid(error.to_string()).at(format!("column {:?}", field.name())))
    });
    RecordBatch::try_new(schema.clone(), columns.collect::<Result<_>>()?)
        .map_err(|error| Error::invalid(error.to_string()))
}
