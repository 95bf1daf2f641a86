//! Prepared statements, of the extended protocol and of PREPARE.

use super::extended::unknown_statement;
use super::{Outcome, Place, Session, Started};
use crate::postgres::commands::Command;
use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Schema, SchemaRef};
use bytes::Bytes;
use farpool_datafusion::Parameters;
use farpool_model::{Error, limits};
use farpool_postgres::failure::{Failure, code};
use farpool_postgres::messages::Format;
use farpool_postgres::types::{PostgresType, arrow_type, oid};
use farpool_postgres::values::array_of_one;
use std::sync::Arc;

/// A statement with the types of its parameters.
#[derive(Debug)]
pub(super) struct Prepared {
    pub text: String,
    pub command: Command,
    /// The object ids of the parameters' types.
    pub parameters: Vec<u32>,
    /// The columns of the result; `None` if the statement returns no rows, or those of another one.
    pub schema: Option<SchemaRef>,
}

impl Prepared {
    /// Checks that a result has the columns that the client was told of.
    pub fn check_result(&self, schema: &Schema) -> Result<(), Failure> {
        let Some(told) = &self.schema else { return Ok(()) };
        let types = |schema: &Schema| {
            let fields = schema.fields().iter();
            fields.map(|field| PostgresType::of(field.data_type()).oid).collect::<Vec<_>>()
        };
        match types(told) == types(schema) {
            true => Ok(()),
            false => {
                let message = "cached plan must not change result type";
                Err(Failure::new(code::FEATURE_NOT_SUPPORTED, message).hint("prepare the statement again"))
            }
        }
    }
}

/// Returns the Arrow types of parameters that the client has named; `None` for those that it has not.
///
/// # Errors
/// A failure for a type that is not known.
pub(super) fn arrow_types(oids: &[u32]) -> Result<Vec<Option<DataType>>, Failure> {
    let known = |&wanted: &u32| match wanted {
        0 | oid::UNKNOWN => Ok(None),
        wanted => arrow_type(wanted).map(Some).ok_or_else(|| {
            let message = format!("parameters of the type with oid {wanted} are not known");
            Failure::new(code::UNDEFINED_OBJECT, message).hint("send the value as text")
        }),
    };
    oids.iter().map(known).collect()
}

/// Returns the object ids of all parameters: as the client has named them, otherwise of the types that follow from the
/// statement, otherwise of text.
pub(super) fn parameter_oids(named: &[u32], inferred: &[Option<DataType>]) -> Vec<u32> {
    let oid = |(place, inferred): (usize, &Option<DataType>)| match named.get(place) {
        Some(&named) if named != 0 && named != oid::UNKNOWN => named,
        _ => inferred.as_ref().map_or(oid::TEXT, |known| PostgresType::of(known).oid),
    };
    inferred.iter().enumerate().map(oid).collect()
}

/// The names that PREPARE may give a type, with its object id.
const TYPE_NAMES: &[(&str, u32)] = &[
    ("bool", oid::BOOL),
    ("boolean", oid::BOOL),
    ("bytea", oid::BYTEA),
    ("smallint", oid::INT2),
    ("int2", oid::INT2),
    ("int", oid::INT4),
    ("integer", oid::INT4),
    ("int4", oid::INT4),
    ("bigint", oid::INT8),
    ("int8", oid::INT8),
    ("real", oid::FLOAT4),
    ("float4", oid::FLOAT4),
    ("double precision", oid::FLOAT8),
    ("float8", oid::FLOAT8),
    ("numeric", oid::NUMERIC),
    ("decimal", oid::NUMERIC),
    ("text", oid::TEXT),
    ("varchar", oid::VARCHAR),
    ("character varying", oid::VARCHAR),
    ("date", oid::DATE),
    ("time", oid::TIME),
    ("timestamp", oid::TIMESTAMP),
    ("timestamp without time zone", oid::TIMESTAMP),
    ("timestamptz", oid::TIMESTAMPTZ),
    ("timestamp with time zone", oid::TIMESTAMPTZ),
    ("interval", oid::INTERVAL),
    ("unknown", 0),
];

/// Returns the object id of a type that is written in SQL, of which the precision does not count.
fn type_named(written: &str) -> Result<u32, Failure> {
    let lower = written.to_lowercase();
    let name = lower.split('(').next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    let name = name.strip_prefix("pg_catalog.").unwrap_or(&name);
    TYPE_NAMES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, oid)| *oid)
        .ok_or_else(|| Failure::new(code::UNDEFINED_OBJECT, format!("type \"{written}\" does not exist")))
}

impl Session {
    /// Keeps a prepared statement under a name.
    pub(super) fn keep(&mut self, name: String, prepared: Prepared) -> Outcome {
        let bytes: usize = self.statements.values().map(|known| known.text.len()).sum();
        let is_too_much =
            bytes + prepared.text.len() > limits::POSTGRES_STATEMENT_BYTES_MAX && !name.is_empty();
        if self.statements.len() >= limits::POSTGRES_STATEMENTS_MAX || is_too_much {
            let message = format!(
                "a session may have {} prepared statements, with texts of {} bytes",
                limits::POSTGRES_STATEMENTS_MAX,
                limits::POSTGRES_STATEMENT_BYTES_MAX
            );
            return Err(Failure::new(code::PROGRAM_LIMIT_EXCEEDED, message).hint("deallocate some").into());
        }
        self.statements.insert(name, Arc::new(prepared));
        Ok(())
    }

    /// Carries out PREPARE.
    pub(super) async fn prepare(&mut self, name: &str, types: &[String], text: &str) -> Outcome {
        if self.statements.contains_key(name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(Failure::new(code::DUPLICATE_STATEMENT, message).into());
        }
        let types = types.iter().map(|written| type_named(written)).collect::<Result<Vec<_>, _>>()?;
        let prepared = self.described(text.to_string(), &types).await?;
        self.keep(name.to_string(), prepared)
    }

    /// Carries out DEALLOCATE; of all statements without a name.
    pub(super) fn deallocate(&mut self, name: Option<&str>) -> Outcome {
        match name {
            None => self.statements.clear(),
            Some(name) => {
                self.statements.remove(name).ok_or_else(|| unknown_statement(name))?;
            }
        }
        Ok(())
    }

    /// Carries out EXECUTE: computes the values, and runs the prepared statement with them.
    pub(super) async fn execute_prepared(&mut self, name: &str, values: &[String]) -> Outcome<Started> {
        let prepared = Arc::clone(self.statements.get(name).ok_or_else(|| unknown_statement(name))?);
        if values.len() != prepared.parameters.len() {
            let (given, wanted) = (values.len(), prepared.parameters.len());
            let message = format!(
                "wrong number of parameters for prepared statement \"{name}\": expected {wanted}, got {given}"
            );
            return Err(Failure::new(code::SYNTAX_ERROR, message).into());
        }
        if let Command::Execute { .. } = prepared.command {
            return Err(Failure::new(code::FEATURE_NOT_SUPPORTED, "EXECUTE of an EXECUTE is not done").into());
        }
        let parameters = match values.is_empty() {
            true => Parameters::None,
            false => self.computed(values, &prepared.parameters).await?,
        };
        let place = Place { text: &prepared.text, offset: 0 };
        self.start(&prepared.command, place, parameters).await
    }

    /// Computes the values of EXECUTE, and converts them to the types of the parameters.
    async fn computed(&mut self, values: &[String], types: &[u32]) -> Outcome<Parameters> {
        let text = format!("SELECT {}", values.join(", "));
        let session = self.engine_session();
        let statement = self.entry.running.begin();
        let asked = text.clone();
        let rows = async move {
            let query = session.sql(asked.as_str()).await?;
            match query.is_command() {
                true => Err(Error::invalid("the values of EXECUTE change something")),
                false => query.collect().await,
            }
        };
        let rows = self.guarded(&statement, None, rows).await;
        self.entry.running.end();
        let rows = rows?;
        let row = rows.iter().find(|batch| batch.num_rows() == 1 && batch.num_columns() == values.len());
        let row = row.ok_or_else(|| Error::invalid("the values of EXECUTE are not one row"))?;
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let value = |(column, oid): (&arrow_array::ArrayRef, &u32)| {
            // The precision of a numeric is that of its value.
            let wanted = arrow_type(*oid).filter(|_| *oid != oid::NUMERIC);
            match wanted {
                Some(DataType::List(_)) if *column.data_type() == DataType::Utf8 => {
                    let text = column.as_string::<i32>();
                    let text = text.is_valid(0).then(|| Bytes::copy_from_slice(text.value(0).as_bytes()));
                    array_of_one(*oid, Format::Text, text.as_ref())
                }
                Some(wanted) => cast_with_options(column, &wanted, &options)
                    .map_err(|error| Failure::new(code::INVALID_TEXT, error.to_string())),
                None => Ok(Arc::clone(column)),
            }
        };
        let values = row.columns().iter().zip(types).map(value).collect::<Result<Vec<_>, _>>()?;
        Ok(Parameters::Numbered(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_known_by_their_names() {
        assert_eq!(type_named("NUMERIC(10, 2)").unwrap(), oid::NUMERIC);
        assert_eq!(type_named("timestamp  with time zone").unwrap(), oid::TIMESTAMPTZ);
        assert_eq!(type_named("pg_catalog.int4").unwrap(), oid::INT4);
        assert_eq!(type_named("circle").unwrap_err().code, code::UNDEFINED_OBJECT);
    }

    #[test]
    fn the_client_s_types_count_before_those_that_follow() {
        let inferred = [Some(DataType::Int64), None, Some(DataType::Date32)];
        assert_eq!(parameter_oids(&[oid::INT4, 0], &inferred), [oid::INT4, oid::TEXT, oid::DATE]);
        assert_eq!(arrow_types(&[0, oid::INT4]).unwrap(), [None, Some(DataType::Int32)]);
        assert!(arrow_types(&[3904]).is_err());
    }
}
