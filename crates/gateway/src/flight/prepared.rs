//! Prepared statements: their parameters and results as clients are told of them, and the values that were given.

use super::convert::{sent_schema, sent_type};
use super::options::Options;
use super::service::Service;
use super::statements::Asked;
use super::status::status;
use super::users::User;
use crate::postgres::catalog::names_objects;
use arrow_array::{ArrayRef, RecordBatch, new_null_array};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use farpool_datafusion::{Parameters, Statement};
use farpool_model::{Error, Result};
use parking_lot::Mutex;
use std::sync::Arc;
use tonic::Status;
use tonic::metadata::AsciiMetadataValue;

/// A prepared statement.
#[derive(Debug)]
pub(super) struct Prepared {
    pub asked: Asked,
    /// The parameters `$1`, `$2`, …, in this order.
    pub parameters: SchemaRef,
    /// The columns of the result; none if the statement changes something.
    pub schema: SchemaRef,
    binding: Mutex<Binding>,
}

/// The values that a prepared statement was given last, in one or more rows.
#[derive(Clone, Debug, Default)]
pub(super) struct Binding {
    pub rows: Vec<RecordBatch>,
    /// The number of times that values were given.
    pub number: u64,
}

impl Prepared {
    /// Returns the bytes of the text and of the values.
    pub fn bytes(&self) -> usize {
        let values = self.binding.lock().rows.iter().map(RecordBatch::get_array_memory_size).sum::<usize>();
        self.asked.text.len() + values
    }

    /// Returns the values that were given last.
    pub fn binding(&self) -> Binding {
        self.binding.lock().clone()
    }

    /// Gives values.
    pub fn bind(&self, rows: Vec<RecordBatch>) {
        let mut binding = self.binding.lock();
        *binding = Binding { rows, number: binding.number + 1 };
    }

    /// Returns the only row of values, or none.
    ///
    /// # Errors
    /// `Invalid` if there are several.
    pub fn only_values(&self, binding: &Binding) -> Result<Parameters> {
        match &binding.rows[..] {
            [] => Ok(Parameters::None),
            [batch] if batch.num_rows() == 1 => Ok(self.values(batch, 0)),
            _ => Err(Error::invalid("a result is that of one row of values, and several were given")
                .advise("run the statement once for each row, or as an update if it changes something")),
        }
    }

    /// Returns the values in a row of a batch.
    pub fn values(&self, batch: &RecordBatch, row: usize) -> Parameters {
        let value = |(place, column): (usize, &ArrayRef)| match column.data_type() {
            DataType::Null => {
                let known = self.parameters.fields().get(place);
                new_null_array(known.map_or(&DataType::Utf8, |field| field.data_type()), 1)
            }
            _ => column.slice(row, 1),
        };
        let values: Vec<ArrayRef> = batch.columns().iter().enumerate().map(value).collect();
        // Parameters of which the statement does not tell the numbers have names.
        match self.parameters.fields().is_empty() {
            false => Parameters::Numbered(values),
            true => {
                let schema = batch.schema();
                let names =
                    schema.fields().iter().map(|field| field.name().trim_start_matches('$').to_string());
                Parameters::Named(names.zip(values).collect())
            }
        }
    }
}

/// Returns the parameters of a statement as clients are told of them. Without a type, a value is text.
fn parameters(types: &[Option<DataType>]) -> SchemaRef {
    let field = |(place, data_type): (usize, &Option<DataType>)| {
        let data_type = data_type.as_ref().map_or(DataType::Utf8, sent_type);
        Field::new(format!("${}", place + 1), data_type, true)
    };
    Arc::new(Schema::new(types.iter().enumerate().map(field).collect::<Vec<_>>()))
}

/// Returns whether a client names itself as one that runs gRPC for Java.
pub(super) fn is_of_java(user_agent: &AsciiMetadataValue) -> bool {
    user_agent.to_str().is_ok_and(|name| name.contains("grpc-java"))
}

/// Returns parameters with times in milliseconds. The JDBC driver (18.3) writes milliseconds whatever it is told
/// (apache/arrow-java#838), so that it is told what it writes; its times have no more digits.
pub(super) fn in_milliseconds(parameters: &Schema) -> SchemaRef {
    let field = |field: &FieldRef| {
        let data_type = match field.data_type() {
            DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Millisecond, zone.clone()),
            DataType::Time32(_) | DataType::Time64(_) => DataType::Time32(TimeUnit::Millisecond),
            other => other.clone(),
        };
        field.as_ref().clone().with_data_type(data_type)
    };
    Arc::new(Schema::new(parameters.fields().iter().map(field).collect::<Vec<_>>()))
}

impl Service {
    /// Prepares a statement; returns its handle.
    pub(super) async fn prepare(
        &self,
        user: &User,
        options: &Options,
        text: &str,
    ) -> std::result::Result<(u128, Arc<Prepared>), Status> {
        let asked = Asked::of(text, options)?;
        let prepared = described(user, options, asked).await.map_err(|error| status(&error))?;
        let handle = user.keep_statement(prepared).map_err(|error| status(&error))?;
        Ok((handle, user.statement(handle).map_err(|error| status(&error))?))
    }
}

async fn described(user: &User, options: &Options, asked: Asked) -> Result<Prepared> {
    let running = user.executions.begin(rand::random(), options.timeout);
    if names_objects(&asked.text) {
        running.guard(user.engine.catalog.refresh()).await?;
    }
    let session = user.session_in(asked.in_schema.as_deref());
    let statement = Statement::from(asked.text.as_str());
    let described = running.guard(async move { session.describe(&statement, &[]).await }).await?;
    let schema = match asked.returns_rows() {
        true => sent_schema(&described.schema),
        false => Arc::new(Schema::empty()),
    };
    let parameters = parameters(&described.parameters);
    Ok(Prepared { asked, parameters, schema, binding: Mutex::default() })
}

/// Returns the handle in a message.
///
/// # Errors
/// `NotFound` if it is none of this server.
pub(super) fn handle(bytes: &[u8]) -> Result<u128> {
    let handle: std::result::Result<[u8; 16], _> = bytes.try_into();
    handle.map(u128::from_be_bytes).map_err(|_| {
        Error::not_found("this is not the handle of a prepared statement")
            .advise("prepare the statement again")
    })
}
