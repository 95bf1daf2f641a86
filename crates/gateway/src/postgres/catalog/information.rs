//! The information schema (ISO 9075-11), with the columns that it has in PostgreSQL 15. There are no constraints, routines,
//! sequences, triggers and domains, so that their tables are empty.

use super::facts::{Facts, RelationFacts};
use super::functions::{OWNER, type_name};
use super::rows::{Cell, Int, Rows, text};
use super::tables;
use arrow_array::RecordBatch;
use arrow_schema::Field;
use farpool_model::{Error, Result};
use farpool_postgres::types::{PostgresType, element_of, oid};

/// The tables with their columns, as [`Rows::new`] takes them.
const TABLES: &[(&str, &str)] = &[
    ("applicable_roles", "grantee:t role_name:t is_grantable:t"),
    ("check_constraints", "constraint_catalog:t constraint_schema:t constraint_name:t check_clause:t"),
    (
        "column_privileges",
        "grantor:t grantee:t table_catalog:t table_schema:t table_name:t column_name:t privilege_type:t is_grantable:t",
    ),
    (
        "columns",
        "table_catalog:t table_schema:t table_name:t column_name:t ordinal_position:4 column_default:t is_nullable:t \
         data_type:t character_maximum_length:4 character_octet_length:4 numeric_precision:4 numeric_precision_radix:4 \
         numeric_scale:4 datetime_precision:4 interval_type:t interval_precision:4 character_set_catalog:t \
         character_set_schema:t character_set_name:t collation_catalog:t collation_schema:t collation_name:t \
         domain_catalog:t domain_schema:t domain_name:t udt_catalog:t udt_schema:t udt_name:t scope_catalog:t \
         scope_schema:t scope_name:t maximum_cardinality:4 dtd_identifier:t is_self_referencing:t is_identity:t \
         identity_generation:t identity_start:t identity_increment:t identity_maximum:t identity_minimum:t \
         identity_cycle:t is_generated:t generation_expression:t is_updatable:t",
    ),
    (
        "constraint_column_usage",
        "table_catalog:t table_schema:t table_name:t column_name:t constraint_catalog:t constraint_schema:t \
         constraint_name:t",
    ),
    (
        "constraint_table_usage",
        "table_catalog:t table_schema:t table_name:t constraint_catalog:t constraint_schema:t constraint_name:t",
    ),
    (
        "domains",
        "domain_catalog:t domain_schema:t domain_name:t data_type:t character_maximum_length:4 \
         character_octet_length:4 collation_name:t numeric_precision:4 numeric_precision_radix:4 numeric_scale:4 \
         datetime_precision:4 domain_default:t udt_catalog:t udt_schema:t udt_name:t dtd_identifier:t",
    ),
    ("enabled_roles", "role_name:t"),
    ("information_schema_catalog_name", "catalog_name:t"),
    (
        "key_column_usage",
        "constraint_catalog:t constraint_schema:t constraint_name:t table_catalog:t table_schema:t table_name:t \
         column_name:t ordinal_position:4 position_in_unique_constraint:4",
    ),
    (
        "parameters",
        "specific_catalog:t specific_schema:t specific_name:t ordinal_position:4 parameter_mode:t is_result:t \
         as_locator:t parameter_name:t data_type:t udt_catalog:t udt_schema:t udt_name:t dtd_identifier:t \
         parameter_default:t",
    ),
    (
        "referential_constraints",
        "constraint_catalog:t constraint_schema:t constraint_name:t unique_constraint_catalog:t \
         unique_constraint_schema:t unique_constraint_name:t match_option:t update_rule:t delete_rule:t",
    ),
    (
        "role_table_grants",
        "grantor:t grantee:t table_catalog:t table_schema:t table_name:t privilege_type:t is_grantable:t \
         with_hierarchy:t",
    ),
    (
        "routines",
        "specific_catalog:t specific_schema:t specific_name:t routine_catalog:t routine_schema:t routine_name:t \
         routine_type:t data_type:t type_udt_catalog:t type_udt_schema:t type_udt_name:t dtd_identifier:t \
         routine_body:t routine_definition:t external_name:t external_language:t parameter_style:t \
         is_deterministic:t sql_data_access:t is_null_call:t security_type:t",
    ),
    (
        "schemata",
        "catalog_name:t schema_name:t schema_owner:t default_character_set_catalog:t default_character_set_schema:t \
         default_character_set_name:t sql_path:t",
    ),
    (
        "sequences",
        "sequence_catalog:t sequence_schema:t sequence_name:t data_type:t numeric_precision:4 \
         numeric_precision_radix:4 numeric_scale:4 start_value:t minimum_value:t maximum_value:t increment:t \
         cycle_option:t",
    ),
    (
        "table_constraints",
        "constraint_catalog:t constraint_schema:t constraint_name:t table_catalog:t table_schema:t table_name:t \
         constraint_type:t is_deferrable:t initially_deferred:t enforced:t nulls_distinct:t",
    ),
    (
        "table_privileges",
        "grantor:t grantee:t table_catalog:t table_schema:t table_name:t privilege_type:t is_grantable:t \
         with_hierarchy:t",
    ),
    (
        "tables",
        "table_catalog:t table_schema:t table_name:t table_type:t self_referencing_column_name:t \
         reference_generation:t user_defined_type_catalog:t user_defined_type_schema:t user_defined_type_name:t \
         is_insertable_into:t is_typed:t commit_action:t",
    ),
    (
        "triggers",
        "trigger_catalog:t trigger_schema:t trigger_name:t event_manipulation:t event_object_catalog:t \
         event_object_schema:t event_object_table:t action_order:4 action_condition:t action_statement:t \
         action_orientation:t action_timing:t",
    ),
    (
        "view_table_usage",
        "view_catalog:t view_schema:t view_name:t table_catalog:t table_schema:t table_name:t",
    ),
    (
        "views",
        "table_catalog:t table_schema:t table_name:t view_definition:t check_option:t is_updatable:t \
         is_insertable_into:t is_trigger_updatable:t is_trigger_deletable:t is_trigger_insertable_into:t",
    ),
];

/// Rights of the owner of a table.
const PRIVILEGES: [&str; 5] = ["SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE"];

/// Returns the names of all tables.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    TABLES.iter().map(|(name, _)| *name)
}

/// Computes the rows of a table.
///
/// # Errors
/// `Internal` for a table that is not in the list.
pub(super) fn rows(facts: &Facts, table: &str) -> Result<RecordBatch> {
    let columns = TABLES.iter().find(|(name, _)| *name == table).map(|(_, columns)| *columns);
    let columns = columns
        .ok_or_else(|| Error::internal(format!("there is no table {table} of the information schema")))?;
    let mut rows = Rows::new(columns);
    let relations = facts.relations.values();
    match table {
        "information_schema_catalog_name" => rows.add(&[("catalog_name", text(&facts.database))]),
        "enabled_roles" => rows.add(&[("role_name", text(OWNER))]),
        "schemata" => facts.schemas.values().for_each(|name| {
            rows.add(&[
                ("catalog_name", text(&facts.database)),
                ("schema_name", text(name)),
                ("schema_owner", text(OWNER)),
            ]);
        }),
        "tables" => relations.for_each(|relation| {
            let kind = if relation.is_view() { "VIEW" } else { "BASE TABLE" };
            let more = [
                ("table_type", text(kind)),
                ("is_insertable_into", yes_or_no(!relation.is_view())),
                ("is_typed", text("NO")),
            ];
            rows.add(&[named(facts, relation).as_slice(), &more].concat());
        }),
        "views" => relations.for_each(|relation| {
            let Some(definition) = &relation.text else { return };
            let never = |name| (name, text("NO"));
            let more = [
                ("view_definition", text(definition)),
                ("check_option", text("NONE")),
                never("is_updatable"),
                never("is_insertable_into"),
                never("is_trigger_updatable"),
                never("is_trigger_deletable"),
                never("is_trigger_insertable_into"),
            ];
            rows.add(&[named(facts, relation).as_slice(), &more].concat());
        }),
        "columns" => relations.for_each(|relation| {
            for (number, field) in (1..).zip(&relation.columns) {
                let of_relation = named(facts, relation);
                rows.add(
                    &[of_relation.as_slice(), &column(&facts.database, number, field, relation.is_view())]
                        .concat(),
                );
            }
        }),
        "table_privileges" | "role_table_grants" => relations.for_each(|relation| {
            for privilege in privileges(relation) {
                rows.add(&[named(facts, relation).as_slice(), &granted(privilege)].concat());
            }
        }),
        "column_privileges" => relations.for_each(|relation| {
            for field in &relation.columns {
                let of_column =
                    privileges(relation).iter().filter(|name| !["DELETE", "TRUNCATE"].contains(name));
                for privilege in of_column {
                    let name = [("column_name", text(field.name()))];
                    rows.add(&[named(facts, relation).as_slice(), &name, &granted(privilege)].concat());
                }
            }
        }),
        // There is nothing of these kinds.
        _ => {}
    }
    rows.batch()
}

type Named = (&'static str, Cell);

fn named(facts: &Facts, relation: &RelationFacts) -> [Named; 3] {
    [
        ("table_catalog", text(&facts.database)),
        ("table_schema", text(facts.schema_of(relation))),
        ("table_name", text(&relation.name)),
    ]
}

fn privileges(relation: &RelationFacts) -> &'static [&'static str] {
    if relation.is_view() { &PRIVILEGES[..1] } else { &PRIVILEGES }
}

fn granted(privilege: &str) -> [Named; 4] {
    [
        ("grantor", text(OWNER)),
        ("grantee", text(OWNER)),
        ("privilege_type", text(privilege)),
        ("is_grantable", text("NO")),
    ]
}

fn column(database: &str, number: i64, field: &Field, is_of_view: bool) -> Vec<Named> {
    let PostgresType { oid: type_oid, modifier, .. } = PostgresType::of(field.data_type());
    let element = element_of(type_oid);
    let of_database = |catalog, schema| [(catalog, text(database)), (schema, text("pg_catalog"))];
    let data_type = match element {
        Some(_) => "ARRAY".to_string(),
        None => type_name(type_oid.into(), -1),
    };
    let called = tables::type_called(element.unwrap_or(type_oid).into()).unwrap_or("text");
    let mut cells = vec![
        ("column_name", text(field.name())),
        ("ordinal_position", Int(number)),
        ("is_nullable", yes_or_no(field.is_nullable())),
        ("data_type", text(&data_type)),
        ("udt_name", text(&if element.is_some() { format!("_{called}") } else { called.to_string() })),
        ("dtd_identifier", text(&number.to_string())),
        ("is_self_referencing", text("NO")),
        ("is_identity", text("NO")),
        ("identity_cycle", text("NO")),
        ("is_generated", text("NEVER")),
        ("is_updatable", yes_or_no(!is_of_view)),
    ];
    cells.extend(of_database("udt_catalog", "udt_schema"));
    let precision = match type_oid {
        oid::INT2 => Some((16, 2, Some(0))),
        oid::INT4 => Some((32, 2, Some(0))),
        oid::INT8 => Some((64, 2, Some(0))),
        oid::FLOAT4 => Some((24, 2, None)),
        oid::FLOAT8 => Some((53, 2, None)),
        oid::NUMERIC if modifier >= 4 => {
            let modifier = i64::from(modifier) - 4;
            Some((modifier >> 16, 10, Some(modifier & 0x7ff)))
        }
        _ => None,
    };
    if let Some((digits, radix, scale)) = precision {
        cells.extend([("numeric_precision", Int(digits)), ("numeric_precision_radix", Int(radix))]);
        cells.extend(scale.map(|scale| ("numeric_scale", Int(scale))));
    }
    match type_oid {
        oid::TEXT => {
            cells.push(("character_octet_length", Int(1 << 30)));
            cells.extend(of_database("collation_catalog", "collation_schema"));
            cells.push(("collation_name", text("C")));
        }
        oid::DATE => cells.push(("datetime_precision", Int(0))),
        oid::TIME | oid::TIMESTAMP | oid::TIMESTAMPTZ | oid::INTERVAL => {
            cells.push(("datetime_precision", Int(6)));
        }
        _ => {}
    }
    cells
}

fn yes_or_no(is: bool) -> Cell {
    text(if is { "YES" } else { "NO" })
}

#[cfg(test)]
mod tests {
    use super::super::facts::PUBLIC;
    use super::*;
    use arrow_array::Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int32Type;
    use arrow_schema::DataType;
    use std::sync::Arc;

    #[test]
    fn every_table_has_rows_that_fit_its_columns() {
        let mut facts = Facts::default();
        facts.schemas.insert(PUBLIC, "public".into());
        let columns = [
            Field::new("k", DataType::Int64, false),
            Field::new("d", DataType::Decimal128(15, 2), true),
            Field::new("a", DataType::new_list(DataType::Int32, true), true),
            Field::new("s", DataType::Utf8, true),
        ];
        let relation = RelationFacts {
            name: "t".into(),
            schema: PUBLIC,
            rows: Some(7),
            bytes: 10_000,
            columns: columns.into_iter().map(Arc::new).collect(),
            text: None,
        };
        facts.relations.insert(20_000, relation);
        for name in names() {
            assert!(rows(&facts, name).unwrap().num_columns() > 0, "{name}");
        }
        assert!(names().is_sorted() && rows(&facts, "nothing").is_err());
        let columns = rows(&facts, "columns").unwrap();
        let texts = |name: &str| -> Vec<Option<String>> {
            let column = columns.column_by_name(name).unwrap().as_string::<i32>();
            column.iter().map(|value| value.map(str::to_string)).collect()
        };
        assert_eq!(texts("data_type"), ["bigint", "numeric", "ARRAY", "text"].map(|t| Some(t.to_string())));
        assert_eq!(texts("udt_name"), ["int8", "numeric", "_int4", "text"].map(|t| Some(t.to_string())));
        assert_eq!(texts("is_nullable")[..2], ["NO", "YES"].map(|t| Some(t.to_string())));
        let numbers = |name: &str| -> Vec<Option<i32>> {
            columns.column_by_name(name).unwrap().as_primitive::<Int32Type>().iter().collect()
        };
        assert_eq!(numbers("ordinal_position"), [Some(1), Some(2), Some(3), Some(4)]);
        assert_eq!(numbers("numeric_precision"), [Some(64), Some(15), None, None]);
        assert_eq!(numbers("numeric_scale"), [Some(0), Some(2), None, None]);
        assert_eq!(columns.column_by_name("column_default").unwrap().null_count(), 4);
    }
}
