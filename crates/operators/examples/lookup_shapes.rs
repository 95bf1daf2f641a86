//! Times lookups (joins) on made-up rows, with one thread: how long a row takes to be built, and to be probed.
//!
//! `cargo run --release -p farpool-operators --example lookup_shapes -- [MILLIONS OF PROBED ROWS [NAME]]`

#![expect(clippy::disallowed_methods, reason = "an example measures time")]

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use farpool_model::{LookupKey, LookupKind, Program, TableName, limits};
use farpool_operators::{HashKey, Lookup, LookupBuild, Needs};
use std::sync::Arc;
use std::time::Instant;

/// Distance between two keys that are spread over 56 bits.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Name, number of keys, whether they are spread over a wide range, rows for each key, and how many in a hundred of the
/// probed rows have a match.
const SHAPES: [(&str, u64, bool, u64, u64); 10] = [
    ("16 dense", 16, false, 1, 100),
    ("1 K dense", 1 << 10, false, 1, 100),
    ("1 M dense", 1 << 20, false, 1, 100),
    ("1 M dense, 10 % match", 1 << 20, false, 1, 10),
    ("4 M dense", 4 << 20, false, 1, 100),
    ("1 K wide", 1 << 10, true, 1, 100),
    ("1 M wide", 1 << 20, true, 1, 100),
    ("1 M wide, 10 % match", 1 << 20, true, 1, 10),
    ("4 M wide", 4 << 20, true, 1, 100),
    ("1 M wide, 4 rows each", 1 << 20, true, 4, 25),
];

fn schema(names: &[&str]) -> SchemaRef {
    let field = |name: &&str| Field::new(*name, DataType::Int64, true);
    Arc::new(Schema::new(names.iter().map(field).collect::<Vec<_>>()))
}

/// Returns batches of rows with a key, which `key` makes of the row's number, and the number.
fn batches(schema: &SchemaRef, rows: u64, key: impl Fn(u64) -> i64) -> Vec<RecordBatch> {
    let firsts = (0..rows).step_by(limits::BATCH_ROWS);
    let batch = |first: u64| {
        let rows = first..rows.min(first + limits::BATCH_ROWS as u64);
        let keys = Int64Array::from_iter_values(rows.clone().map(&key));
        let numbers = Int64Array::from_iter_values(rows.map(|row| row as i64));
        let columns: Vec<ArrayRef> = vec![Arc::new(keys), Arc::new(numbers)];
        RecordBatch::try_new(schema.clone(), columns).expect("columns of the schema")
    };
    firsts.map(batch).collect()
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let millions: u64 = arguments.next().map_or(16, |count| count.parse().expect("a number of million rows"));
    let wanted = arguments.next().unwrap_or_default();
    let (build, probe) = (schema(&["key", "payload"]), schema(&["key", "number"]));
    println!(
        "{:<24}{:>12}{:>12}{:>12}{:>12}{:>12}",
        "ns a row", "build", "bytes a row", "find", "semi", "inner"
    );
    for (name, keys, is_wide, rows_each, percent) in
        SHAPES.into_iter().filter(|shape| shape.0.contains(&wanted))
    {
        let key =
            |number: u64| if is_wide { (number.wrapping_mul(SPREAD) >> 8) as i64 } else { number as i64 };
        let rows = keys * rows_each;
        let built = batches(&build, rows, |row| key(row % keys));
        let begun = Instant::now();
        let table = LookupBuild::new(build.clone(), built, &[0], HashKey::new(5), Needs::MatchesAndCondition)
            .and_then(LookupBuild::finish);
        let table = Arc::new(table.expect("a table"));
        let of_build = begun.elapsed().as_nanos() as f64 / rows as f64;
        let probed_rows = millions << 20;
        // Keys without a match are as wide as those with one.
        let all = keys * 100 / percent;
        let probed = batches(&probe, probed_rows, |row| key((row.wrapping_mul(SPREAD) >> 20) % all));
        let time = |kind: LookupKind| {
            let lookup = farpool_model::Lookup {
                kind,
                program: Program::scan(TableName::new("t").expect("a name"), &build, &[0]),
                table_schema: build.clone(),
                given: None,
                keys: vec![LookupKey { row: 0, result: 0 }],
                residual: None,
                mark: "mark".to_string(),
            };
            let lookup = Lookup::new(&lookup, &probe, table.clone(), |_| true).expect("a lookup");
            let begun = Instant::now();
            let mut found = 0;
            for batch in &probed {
                let mut probing = lookup.probe(batch.clone()).expect("a batch of the schema");
                while let Some(joined) = lookup.next(&mut probing).expect("no condition that fails") {
                    found += joined.num_rows();
                }
            }
            (begun.elapsed().as_nanos() as f64 / probed_rows as f64, found)
        };
        let exists = time(LookupKind::Exists).0;
        let (semi, inner) = (time(LookupKind::Semi).0, time(LookupKind::Inner).0);
        let bytes = table.bytes() as f64 / rows as f64;
        println!("{name:<24}{of_build:>12.1}{bytes:>12.1}{exists:>12.1}{semi:>12.1}{inner:>12.1}");
    }
}
