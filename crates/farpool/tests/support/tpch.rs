//! TPC-H: generated tables, the queries and the recorded answers.

use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::datatypes::SchemaRef;
use std::path::{Path, PathBuf};
use tpchgen::generators as make;
use tpchgen_arrow as arrows;

/// The numbers of the queries.
pub const QUERIES: std::ops::RangeInclusive<usize> = 1..=22;

/// Returns the eight tables at `scale`: name, schema, batches.
pub fn tables(scale: f64) -> Vec<(&'static str, SchemaRef, Vec<RecordBatch>)> {
    vec![
        table("region", arrows::RegionArrow::new(make::RegionGenerator::new(scale, 1, 1))),
        table("nation", arrows::NationArrow::new(make::NationGenerator::new(scale, 1, 1))),
        table("supplier", arrows::SupplierArrow::new(make::SupplierGenerator::new(scale, 1, 1))),
        table("customer", arrows::CustomerArrow::new(make::CustomerGenerator::new(scale, 1, 1))),
        table("part", arrows::PartArrow::new(make::PartGenerator::new(scale, 1, 1))),
        table("partsupp", arrows::PartSuppArrow::new(make::PartSuppGenerator::new(scale, 1, 1))),
        table("orders", arrows::OrderArrow::new(make::OrderGenerator::new(scale, 1, 1))),
        table("lineitem", arrows::LineItemArrow::new(make::LineItemGenerator::new(scale, 1, 1))),
    ]
}

fn table(name: &'static str, reader: impl RecordBatchReader) -> (&'static str, SchemaRef, Vec<RecordBatch>) {
    let schema = reader.schema();
    let batches = reader.collect::<Result<Vec<_>, _>>().expect("generators do not fail");
    (name, schema, batches)
}

/// Returns the text of a query.
pub fn query(number: usize) -> String {
    read(&folder().join(format!("queries/q{number:02}.sql")))
}

/// Returns DuckDB's recorded answer to a query at a scale such as `0.01`.
pub fn recorded(scale: &str, number: usize) -> String {
    read(&folder().join(format!("answers/sf{scale}/q{number:02}.tsv")))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/tpch")
}
