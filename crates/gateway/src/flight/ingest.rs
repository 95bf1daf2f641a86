//! Bulk ingestion: rows of a client become a table, or are appended to one. All rows appear at once, or none does.

use super::convert::{cast_batch, cast_column};
use super::options::Options;
use super::statements::{outside_of_transactions, pool_of};
use super::status::{not_done, status};
use super::uploads::Upload;
use super::users::User;
use arrow_array::{ArrayRef, RecordBatch, new_null_array};
use arrow_flight::sql::{CommandStatementIngest, TableExistsOption, TableNotExistOption};
use arrow_schema::{FieldRef, Schema, SchemaRef};
use farpool_model::schema::canonical_schema;
use farpool_model::{Error, ErrorKind, LoadMode, Result, SchemaName, TableName, cast};
use farpool_transfer::{BatchStream, Pool};
use futures::{StreamExt, stream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tonic::Status;

/// The table that rows go into, and how.
#[derive(Debug)]
struct Target {
    name: TableName,
    mode: LoadMode,
    schema: SchemaRef,
    /// For each column of the table, its place among those of the rows; `None` if they do not have it.
    places: Vec<Option<usize>>,
}

/// Loads rows; returns their number.
pub(super) async fn ingest(
    user: &User,
    options: &Options,
    command: CommandStatementIngest,
    mut upload: Upload,
) -> std::result::Result<u64, Status> {
    outside_of_transactions(command.transaction_id.as_deref())?;
    let pool = pool_of(user, command.catalog.as_deref())?;
    if command.temporary {
        let advice = "load into a table, and drop it when it is not needed any more";
        return Err(not_done("temporary tables are not done", advice));
    }
    if let Some(option) = command.options.keys().next() {
        let error = Error::invalid(format!("the option {option:?} of an ingestion is not known"));
        return Err(status(&error.advise("leave it out")));
    }
    let running = user.executions.begin(rand::random(), options.timeout);
    let loaded = running.guard(async move {
        let schema = upload.schema().await?;
        let schema = schema.ok_or_else(|| Error::invalid("rows without a schema"))?;
        let target = target(&*pool, options, &command, &schema).await?;
        load(&*pool, target, upload).await
    });
    let loaded = loaded.await;
    user.engine.catalog.forget();
    loaded.map_err(|error| status(&error))
}

async fn target(
    pool: &dyn Pool,
    options: &Options,
    command: &CommandStatementIngest,
    rows: &Schema,
) -> Result<Target> {
    let schema = command.schema.as_deref().filter(|schema| !schema.is_empty());
    let schema = schema.or(options.in_schema.as_deref()).unwrap_or(SchemaName::PUBLIC);
    let name = TableName::in_schema(&SchemaName::new(schema)?, &command.table)?;
    let existing = match pool.table(&name).await {
        Ok(info) => Some(info.schema),
        Err(error) if error.kind == ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let shown = format!("{:?}", name.as_str());
    let wanted = command.table_definition_options.unwrap_or_default();
    let create = |mode| {
        let schema = canonical_schema(rows)?;
        let places = (0..schema.fields().len()).map(Some).collect();
        Ok(Target { name: name.clone(), mode, schema, places })
    };
    match (existing, wanted.if_exists(), wanted.if_not_exist()) {
        (_, TableExistsOption::Unspecified, _) | (_, _, TableNotExistOption::Unspecified) => {
            Err(Error::invalid("the request does not say what to do if the table exists, and if it does not")
                .advise("choose to create it, to append or to replace"))
        }
        (Some(_), TableExistsOption::Fail, _) => {
            Err(Error::new(ErrorKind::Exists, format!("there is a table {shown} already"))
                .advise("append to it, replace it, or choose another name"))
        }
        (Some(schema), TableExistsOption::Append, _) => {
            let places = places(&schema, rows)?;
            Ok(Target { name: name.clone(), mode: LoadMode::Append, schema, places })
        }
        (_, TableExistsOption::Replace, TableNotExistOption::Create)
        | (Some(_), TableExistsOption::Replace, _) => create(LoadMode::Replace),
        (None, _, TableNotExistOption::Create) => create(LoadMode::Create),
        (None, _, TableNotExistOption::Fail) => Err(Error::not_found(format!("there is no table {shown}"))
            .advise("check the name, or have it created")),
    }
}

/// Returns the places of a table's columns among those of the rows, which are known by their names.
fn places(table: &Schema, rows: &Schema) -> Result<Vec<Option<usize>>> {
    for (place, field) in rows.fields().iter().enumerate() {
        let name = field.name();
        if rows.fields().iter().take(place).any(|other| other.name() == name) {
            return Err(
                Error::invalid(format!("two columns of the rows are named {name:?}")).advise("rename one")
            );
        }
        if !table.fields().iter().any(|column| column.name() == name) {
            let names: Vec<&str> =
                table.fields().iter().map(|column| column.name().as_str()).take(20).collect();
            return Err(Error::not_found(format!("the table has no column {name:?}"))
                .advise(format!("it has {}", names.join(", "))));
        }
    }
    let place = |column: &FieldRef| rows.fields().iter().position(|field| field.name() == column.name());
    Ok(table.fields().iter().map(place).collect())
}

async fn load(pool: &dyn Pool, target: Target, upload: Upload) -> Result<u64> {
    let Target { name, mode, schema, places } = target;
    let count = Arc::new(AtomicU64::new(0));
    let (counted, columns) = (Arc::clone(&count), Arc::clone(&schema));
    let batches: BatchStream = stream::try_unfold(upload, move |mut upload| {
        let (counted, columns, places) = (Arc::clone(&counted), Arc::clone(&columns), places.clone());
        async move {
            let Some(batch) = upload.next().await? else { return Ok(None) };
            let batch = fitted(&batch, &columns, &places)
                .map_err(|error| error.at(format!("after row {}", counted.load(Ordering::Relaxed))))?;
            counted.fetch_add(cast::u64_from(batch.num_rows()), Ordering::Relaxed);
            Ok(Some((batch, upload)))
        }
    })
    .boxed();
    pool.load(&name, mode.into(), schema, None, batches).await?;
    Ok(count.load(Ordering::Relaxed))
}

/// Returns rows with the columns of the table.
fn fitted(batch: &RecordBatch, schema: &SchemaRef, places: &[Option<usize>]) -> Result<RecordBatch> {
    if places.iter().enumerate().all(|(at, place)| *place == Some(at)) {
        return cast_batch(batch, schema);
    }
    let column = |(field, place): (&FieldRef, &Option<usize>)| -> Result<ArrayRef> {
        match place {
            Some(place) => cast_column(batch.column(*place), field),
            None => Ok(new_null_array(field.data_type(), batch.num_rows())),
        }
    };
    let columns = schema.fields().iter().zip(places).map(column).collect::<Result<Vec<_>>>()?;
    RecordBatch::try_new(Arc::clone(schema), columns).map_err(|error| Error::invalid(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_schema::{DataType, Field};

    #[test]
    fn columns_are_found_by_their_names() {
        let schema = |names: &[&str]| {
            Schema::new(names.iter().map(|name| Field::new(*name, DataType::Int32, true)).collect::<Vec<_>>())
        };
        let table = schema(&["a", "b", "c"]);
        assert_eq!(places(&table, &schema(&["c", "a"])).unwrap(), [Some(1), None, Some(0)]);
        assert_eq!(places(&table, &schema(&["x"])).unwrap_err().kind, ErrorKind::NotFound);
        assert_eq!(places(&table, &schema(&["a", "a"])).unwrap_err().kind, ErrorKind::Invalid);
    }
}
