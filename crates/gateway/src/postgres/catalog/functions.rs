//! Functions over the system catalog, as PostgreSQL has them.

use super::facts::{Facts, PG_CATALOG, PUBLIC};
use super::tables;
use crate::postgres::settings::{SERVER_VERSION, Settings};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, StringArray};
use arrow_schema::DataType;
use farpool_datafusion::SystemFunction;
use farpool_model::{Error, Result, quoted};
use farpool_postgres::types::oid;
use parking_lot::RwLock;
use std::sync::Arc;

type Known = Arc<RwLock<Arc<Facts>>>;

/// The name of the only user that objects belong to.
pub(super) const OWNER: &str = "farpool";

pub(super) const TEXT: DataType = DataType::Utf8;
pub(super) const OID: DataType = DataType::Int64;
/// The number of the encoding UTF8.
const UTF8: i64 = 6;

/// Returns all functions.
pub(super) fn all(facts: &Known) -> Vec<SystemFunction> {
    let mut all = Vec::new();
    for name in [
        "pg_table_is_visible",
        "pg_type_is_visible",
        "pg_function_is_visible",
        "pg_operator_is_visible",
        "pg_collation_is_visible",
        "pg_conversion_is_visible",
        "pg_opclass_is_visible",
        "pg_opfamily_is_visible",
        "pg_ts_config_is_visible",
        "pg_ts_dict_is_visible",
        "pg_ts_parser_is_visible",
        "pg_ts_template_is_visible",
        "pg_statistics_obj_is_visible",
    ] {
        all.push(of_oid(facts, name, DataType::Boolean, |facts, oid| {
            // Objects of PostgreSQL's own have no entry.
            let schema = facts.relations.get(&oid).map_or(PG_CATALOG, |relation| relation.schema);
            Some(Value::Bool(schema == PUBLIC || schema == PG_CATALOG))
        }));
    }
    for name in ["pg_relation_size", "pg_total_relation_size", "pg_table_size"] {
        all.push(of_oid(facts, name, OID, |facts, oid| {
            i64::try_from(facts.relations.get(&oid)?.bytes).ok().map(Value::Int)
        }));
    }
    all.push(database_size(facts));
    all.push(of_oid(facts, "pg_indexes_size", OID, |_, _| Some(Value::Int(0))));
    all.push(of_oid(facts, "pg_get_userbyid", TEXT, |_, _| Some(Value::Text(OWNER.into()))));
    all.push(of_oid(facts, "regrole_name", TEXT, |_, _| Some(Value::Text(OWNER.into()))));
    all.push(of_oid(facts, "regclass_name", TEXT, |facts, oid| {
        Some(Value::Text(facts.relation_name(oid).unwrap_or_else(|| oid.to_string())))
    }));
    all.push(of_oid(facts, "regnamespace_name", TEXT, |facts, oid| {
        Some(Value::Text(facts.schemas.get(&oid).map_or_else(|| oid.to_string(), |name| quoted(name))))
    }));
    all.push(of_oid(facts, "regtype_name", TEXT, |_, oid| Some(Value::Text(type_name(oid, -1)))));
    for name in ["regproc_name", "regprocedure_name", "regoper_name", "regcollation_name"] {
        all.push(of_oid(facts, name, TEXT, |_, oid| {
            Some(Value::Text(if oid == 0 { "-".into() } else { oid.to_string() }))
        }));
    }
    all.push(of_text(facts, "regclass_oid", OID, |facts, name| {
        match oid_of(name, |name| facts.relation(name)) {
            Some(oid) => Ok(Some(Value::Int(oid))),
            None => Err(Error::not_found(format!("relation \"{name}\" does not exist"))),
        }
    }));
    all.push(of_text(facts, "to_regclass", OID, |facts, name| Ok(facts.relation(name).map(Value::Int))));
    all.push(of_text(facts, "to_regtype", OID, |_, name| Ok(tables::type_named(name).map(Value::Int))));
    all.push(of_text(facts, "to_regnamespace", OID, |facts, name| Ok(facts.schema(name).map(Value::Int))));
    all.push(of_oid(facts, "pg_size_pretty", TEXT, |_, bytes| Some(Value::Text(size(bytes)))));
    all.push(of_text(facts, "regnamespace_oid", OID, |facts, name| {
        match oid_of(name, |name| facts.schema(name)) {
            Some(oid) => Ok(Some(Value::Int(oid))),
            None => Err(Error::not_found(format!("schema \"{name}\" does not exist"))),
        }
    }));
    all.push(of_text(facts, "regtype_oid", OID, |_, name| match oid_of(name, tables::type_named) {
        Some(oid) => Ok(Some(Value::Int(oid))),
        None => Err(Error::not_found(format!("type \"{name}\" does not exist"))),
    }));
    for name in ["regproc_oid", "regprocedure_oid", "regoper_oid", "regcollation_oid", "regrole_oid"] {
        all.push(of_text(facts, name, OID, |_, _| Ok(Some(Value::Int(0)))));
    }
    all.push(of_text(facts, "quote_ident", TEXT, |_, name| Ok(Some(Value::Text(quoted(name))))));
    all.push(of_text(facts, "current_setting", TEXT, |_, name| {
        let settings = Settings::default();
        Ok(settings.get(name).ok().map(|value| Value::Text(value.to_string())))
    }));
    all.push(SystemFunction {
        name: "pg_get_viewdef",
        arguments: vec![vec![OID], vec![OID, DataType::Boolean], vec![OID, DataType::Int32]],
        returns: TEXT,
        compute: over_oids(facts, |facts, oid| facts.relations.get(&oid)?.text.clone().map(Value::Text)),
    });
    all.push(SystemFunction {
        name: "format_type",
        arguments: vec![vec![OID, DataType::Int32], vec![OID, DataType::Int64]],
        returns: TEXT,
        compute: Arc::new(|columns, rows| {
            let modifiers = arrow_cast::cast(&columns[1], &DataType::Int32)
                .map_err(|error| Error::internal(error.to_string()))?;
            let (oids, modifiers) =
                (columns[0].as_primitive::<Int64Type>(), modifiers.as_primitive::<Int32Type>());
            let name = |row: usize| {
                let modifier = if modifiers.is_null(row) { -1 } else { modifiers.value(row) };
                oids.is_valid(row).then(|| type_name(oids.value(row), modifier))
            };
            Ok(Arc::new((0..rows).map(name).collect::<StringArray>()))
        }),
    });
    all.extend(constants(&facts.read().database));
    all.extend(super::lists::all());
    all
}

/// Returns the number of an object by its name, or by the number itself as a text.
fn oid_of(written: &str, named: impl Fn(&str) -> Option<i64>) -> Option<i64> {
    written.parse().ok().or_else(|| named(written))
}

/// The size of the database, whichever number or name is given.
fn database_size(facts: &Known) -> SystemFunction {
    let facts = Arc::clone(facts);
    SystemFunction {
        name: "pg_database_size",
        arguments: vec![vec![OID], vec![TEXT]],
        returns: OID,
        compute: Arc::new(move |_, rows| {
            let bytes: u64 = facts.read().relations.values().map(|relation| relation.bytes).sum();
            let size = i64::try_from(bytes).ok().map(Value::Int);
            Ok(column(vec![size; rows], &OID))
        }),
    }
}

/// Functions whose result is always the same, because there is nothing of their kind.
fn constants(database: &str) -> Vec<SystemFunction> {
    let (boolean, int) = (DataType::Boolean, DataType::Int32);
    let nothing: &[(&str, &[&[DataType]])] = &[
        ("pg_get_expr", &[&[TEXT, OID], &[TEXT, OID, boolean.clone()]]),
        ("pg_get_constraintdef", &[&[OID], &[OID, boolean.clone()]]),
        ("pg_get_indexdef", &[&[OID], &[OID, int.clone(), boolean.clone()], &[OID, OID, boolean.clone()]]),
        ("pg_get_triggerdef", &[&[OID], &[OID, boolean.clone()]]),
        ("pg_get_ruledef", &[&[OID], &[OID, boolean.clone()]]),
        ("pg_get_partkeydef", &[&[OID]]),
        ("pg_get_functiondef", &[&[OID]]),
        ("pg_get_function_result", &[&[OID]]),
        ("pg_get_function_arguments", &[&[OID]]),
        ("pg_get_function_identity_arguments", &[&[OID]]),
        ("pg_get_statisticsobjdef_columns", &[&[OID]]),
        ("pg_get_serial_sequence", &[&[TEXT, TEXT]]),
        ("pg_tablespace_location", &[&[OID]]),
        ("obj_description", &[&[OID], &[OID, TEXT]]),
        ("col_description", &[&[OID, int.clone()], &[OID, OID]]),
        ("shobj_description", &[&[OID, TEXT]]),
    ];
    let mut all: Vec<SystemFunction> = nothing
        .iter()
        .map(|(name, arguments)| SystemFunction {
            name,
            arguments: arguments.iter().map(|types| types.to_vec()).collect(),
            returns: TEXT,
            compute: Arc::new(|_, rows| Ok(arrow_array::new_null_array(&TEXT, rows))),
        })
        .collect();
    for name in [
        "has_table_privilege",
        "has_schema_privilege",
        "has_database_privilege",
        "has_column_privilege",
        "has_any_column_privilege",
        "has_sequence_privilege",
        "has_function_privilege",
        "pg_has_role",
    ] {
        // What a token may do is checked by the pool when it is done.
        let arguments = [
            vec![OID, TEXT],
            vec![TEXT, TEXT],
            vec![TEXT, OID, TEXT],
            vec![TEXT, TEXT, TEXT],
            vec![OID, OID, TEXT],
        ];
        all.push(always(name, arguments.to_vec(), Value::Bool(true)));
    }
    let text = |text: &str| Value::Text(text.to_string());
    let version = format!("PostgreSQL {SERVER_VERSION}");
    all.push(always("version", vec![vec![]], Value::Text(version)));
    for name in ["current_database", "current_catalog"] {
        all.push(always(name, vec![vec![]], text(database)));
    }
    all.push(always("current_schema", vec![vec![]], text("public")));
    for name in ["current_user", "session_user", "current_role", "user"] {
        all.push(always(name, vec![vec![]], text(OWNER)));
    }
    all.push(always("pg_is_in_recovery", vec![vec![]], Value::Bool(false)));
    // There are no advisory locks, which could be held.
    all.push(always("pg_advisory_unlock_all", vec![vec![]], text("")));
    // Nothing of a pool can be published to others; psql gives the number of the table as a text.
    all.push(always("pg_relation_is_publishable", vec![vec![OID], vec![TEXT]], Value::Bool(false)));
    all.push(always("getdatabaseencoding", vec![vec![]], text("UTF8")));
    all.push(always("pg_char_to_encoding", vec![vec![TEXT]], Value::Int(UTF8)));
    all.push(always("pg_stat_get_numscans", vec![vec![OID]], Value::Int(0)));
    all.push(always("pg_my_temp_schema", vec![vec![]], Value::Int(0)));
    all.push(always("pg_encoding_to_char", vec![vec![DataType::Int32]], text("UTF8")));
    all
}

/// A value that a function computes.
#[derive(Clone)]
enum Value {
    Bool(bool),
    Int(i64),
    Text(String),
}

fn column(values: Vec<Option<Value>>, data_type: &DataType) -> ArrayRef {
    match data_type {
        DataType::Boolean => {
            let value = |value| if let Some(Value::Bool(value)) = value { Some(value) } else { None };
            Arc::new(values.into_iter().map(value).collect::<BooleanArray>())
        }
        DataType::Int64 => {
            let value = |value| if let Some(Value::Int(value)) = value { Some(value) } else { None };
            Arc::new(values.into_iter().map(value).collect::<Int64Array>())
        }
        _ => {
            let value = |value| if let Some(Value::Text(value)) = value { Some(value) } else { None };
            Arc::new(values.into_iter().map(value).collect::<StringArray>())
        }
    }
}

fn always(name: &'static str, arguments: Vec<Vec<DataType>>, value: Value) -> SystemFunction {
    let returns = match value {
        Value::Bool(_) => DataType::Boolean,
        Value::Int(_) => DataType::Int64,
        Value::Text(_) => TEXT,
    };
    let data_type = returns.clone();
    let compute =
        Arc::new(move |_: &[ArrayRef], rows: usize| Ok(column(vec![Some(value.clone()); rows], &data_type)));
    SystemFunction { name, arguments, returns, compute }
}

type Computed = dyn Fn(&[ArrayRef], usize) -> Result<ArrayRef> + Send + Sync;

fn over_oids(
    facts: &Known,
    value: impl Fn(&Facts, i64) -> Option<Value> + Send + Sync + 'static,
) -> Arc<Computed> {
    over_oids_as(facts, TEXT, value)
}

fn over_oids_as(
    facts: &Known,
    returns: DataType,
    value: impl Fn(&Facts, i64) -> Option<Value> + Send + Sync + 'static,
) -> Arc<Computed> {
    let facts = Arc::clone(facts);
    Arc::new(move |columns, rows| {
        let facts = Arc::clone(&facts.read());
        let oids = columns[0].as_primitive::<Int64Type>();
        let values =
            (0..rows).map(|row| oids.is_valid(row).then(|| value(&facts, oids.value(row))).flatten());
        Ok(column(values.collect(), &returns))
    })
}

fn of_oid(
    facts: &Known,
    name: &'static str,
    returns: DataType,
    value: impl Fn(&Facts, i64) -> Option<Value> + Send + Sync + 'static,
) -> SystemFunction {
    let compute = over_oids_as(facts, returns.clone(), value);
    SystemFunction { name, arguments: vec![vec![OID]], returns, compute }
}

fn of_text(
    facts: &Known,
    name: &'static str,
    returns: DataType,
    value: impl Fn(&Facts, &str) -> Result<Option<Value>> + Send + Sync + 'static,
) -> SystemFunction {
    let (facts, data_type) = (Arc::clone(facts), returns.clone());
    let compute = Arc::new(move |columns: &[ArrayRef], rows: usize| {
        let facts = Arc::clone(&facts.read());
        let names = columns[0].as_string::<i32>();
        let values = (0..rows).map(|row| match names.is_valid(row) {
            true => value(&facts, names.value(row)),
            false => Ok(None),
        });
        Ok(column(values.collect::<Result<_>>()?, &data_type))
    });
    SystemFunction { name, arguments: vec![vec![TEXT]], returns, compute }
}

/// Returns a number of bytes with its unit, as `pg_size_pretty` writes it: up to 10,239 of a unit.
fn size(bytes: i64) -> String {
    let (mut number, mut units) = (bytes, ["kB", "MB", "GB", "TB", "PB"].iter());
    let mut unit = "bytes";
    while number.abs() >= 10 * 1024 {
        let Some(next) = units.next() else { break };
        // Rounded to the nearest, away from zero.
        let half = if number < 0 { -512 } else { 512 };
        (number, unit) = ((number + half) / 1024, next);
    }
    format!("{number} {unit}")
}

/// Returns the name of a type as `format_type` writes it.
pub(super) fn type_name(type_oid: i64, modifier: i32) -> String {
    let known = u32::try_from(type_oid).unwrap_or(0);
    if let Some(element) = farpool_postgres::types::element_of(known) {
        return format!("{}[]", type_name(element.into(), modifier));
    }
    let with = |name: &str| match modifier {
        -1 => name.to_string(),
        modifier => format!("{name}({})", modifier - 4),
    };
    match known {
        oid::BOOL => "boolean".to_string(),
        oid::INT2 => "smallint".to_string(),
        oid::INT4 => "integer".to_string(),
        oid::INT8 => "bigint".to_string(),
        oid::FLOAT4 => "real".to_string(),
        oid::FLOAT8 => "double precision".to_string(),
        oid::VARCHAR => with("character varying"),
        oid::BPCHAR => with("character"),
        oid::CHAR => "\"char\"".to_string(),
        oid::TIME => "time without time zone".to_string(),
        oid::TIMESTAMP => "timestamp without time zone".to_string(),
        oid::TIMESTAMPTZ => "timestamp with time zone".to_string(),
        oid::NUMERIC if modifier >= 4 => {
            let (precision, scale) = ((modifier - 4) >> 16, (modifier - 4) & 0x7ff);
            // The scale has a sign in its 11 bits.
            let scale = if scale & 0x400 != 0 { scale - 0x800 } else { scale };
            format!("numeric({precision},{scale})")
        }
        0 => "-".to_string(),
        _ => tables::type_called(type_oid).map_or_else(|| "???".to_string(), str::to_string),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_written_as_postgresql_does() {
        assert_eq!(type_name(23, -1), "integer");
        assert_eq!(type_name(1700, (15 << 16 | 2) + 4), "numeric(15,2)");
        assert_eq!(type_name(1700, ((5 << 16) | (-2 & 0x7ff)) + 4), "numeric(5,-2)");
        assert_eq!(type_name(1700, -1), "numeric");
        assert_eq!(type_name(1007, -1), "integer[]");
        assert_eq!(type_name(25, -1), "text");
        assert_eq!(type_name(99_999, -1), "???");
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(size(0), "0 bytes");
        assert_eq!(size(10_239), "10239 bytes");
        assert_eq!(size(10_240), "10 kB");
        assert_eq!(size(5_336_100_000), "5089 MB");
        assert_eq!(size(-20_480), "-20 kB");
    }

    #[test]
    fn no_function_has_two_entries() {
        let all = all(&Known::default());
        let mut names: Vec<&str> = all.iter().map(|function| function.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }
}
