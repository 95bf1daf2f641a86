//! Small tables that no pool holds, and whose rows go along with a program that looks them up: the lists of VALUES
//! clauses, and tables in the memory of this process.

use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, Field, Schema};
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr as Logical, LogicalPlan, TableScan, Values};
use farpool_model::{
    ColumnStatistics, GivenRows, Literal, TableInfo, Version, cast, limits, schema::canonical_type,
};
use farpool_sql::literal;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;

/// Returns whether `plan` has operators on one relation alone, which no pool holds and whose rows may go along.
pub(crate) fn may_go_along(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Values(_) => true,
        LogicalPlan::TableScan(scan) => memory_table(scan).is_some(),
        LogicalPlan::Join(_) => false,
        other => matches!(other.inputs()[..], [input] if may_go_along(input)),
    }
}

fn memory_table(scan: &TableScan) -> Option<Arc<dyn TableProvider>> {
    source_as_provider(&scan.source).ok().filter(|provider| provider.downcast_ref::<MemTable>().is_some())
}

/// Rows of such a table, and their description.
pub(crate) struct Given {
    pub info: TableInfo,
    pub rows: Arc<GivenRows>,
}

impl Given {
    /// Returns the rows of a VALUES clause; `None` if some are not constant, or they are too many.
    pub(crate) fn of_values(values: &Values) -> Option<Given> {
        let schema = values.schema.as_arrow();
        let constant = |expr: &Logical| match expr {
            Logical::Literal(scalar, _) => literal::from_scalar(scalar),
            _ => None,
        };
        if values.values.len().saturating_mul(schema.fields().len()) > limits::GIVEN_VALUES_MAX {
            return None;
        }
        let column = |column: usize| values.values.iter().map(|row| constant(row.get(column)?)).collect();
        Given::new(
            schema,
            values.values.len(),
            (0..schema.fields().len()).map(column).collect::<Option<_>>()?,
        )
    }

    /// Returns the rows of a scan of a table in memory; `None` if it is none, is being changed, or has too many rows.
    pub(crate) fn of_scan(scan: &TableScan) -> Option<Given> {
        let provider = memory_table(scan)?;
        let table = provider.downcast_ref::<MemTable>()?;
        if !scan.filters.is_empty() || scan.fetch.is_some() {
            return None;
        }
        let schema = scan.source.schema();
        let every: Vec<usize> = (0..schema.fields().len()).collect();
        let places = scan.projection.as_ref().unwrap_or(&every);
        let schema = schema.project(places).ok()?;
        let parts = table.batches.iter().map(|part| part.try_read().ok()).collect::<Option<Vec<_>>>()?;
        let batches = || parts.iter().flat_map(|part| part.iter());
        let count: usize = batches().map(|batch| batch.num_rows()).sum();
        let arrays = |place: usize| batches().filter_map(move |batch| batch.columns().get(place));
        let of_array = |array: &ArrayRef| array.to_data().get_slice_memory_size().unwrap_or(usize::MAX);
        let bytes =
            places.iter().flat_map(|place| arrays(*place)).map(of_array).fold(0, usize::saturating_add);
        if count.saturating_mul(places.len()) > limits::GIVEN_VALUES_MAX || bytes > limits::GIVEN_BYTES_MAX {
            return None;
        }
        let column = |place: &usize| {
            let arrays = arrays(*place);
            let value = |array, row| literal::from_scalar(&ScalarValue::try_from_array(array, row).ok()?);
            arrays.flat_map(|array| (0..array.len()).map(move |row| value(array, row))).collect()
        };
        Given::new(&schema, count, places.iter().map(column).collect::<Option<_>>()?)
    }

    /// Describes `count` rows of these columns; `None` if a pool does not have their types.
    fn new(schema: &Schema, count: usize, columns: Vec<Vec<Literal>>) -> Option<Given> {
        let field = |field: &Arc<Field>| {
            let held = canonical_type(field.data_type())?;
            let comes_back = held == *field.data_type() || is_text(field.data_type());
            comes_back.then(|| Field::new(field.name(), held, true))
        };
        let schema = Schema::new(schema.fields().iter().map(field).collect::<Option<Vec<_>>>()?);
        let schema = farpool_model::schema::canonical_schema(&schema).ok()?;
        let is_of = |(column, field): (&Vec<Literal>, &Arc<Field>)| {
            column.iter().all(|literal| literal.data_type() == field.data_type())
        };
        if !columns.iter().zip(schema.fields()).all(is_of) {
            return None;
        }
        let values = |column: &Vec<Literal>| column.iter().map(|literal| literal.value().clone()).collect();
        let rows = GivenRows::new(&schema, count, columns.iter().map(values).collect()).ok()?;
        let (bytes, rows) = (cast::u64_from(rows.bytes()), Arc::new(rows));
        let info = TableInfo {
            name: GivenRows::name().ok()?,
            version: Version(0),
            schema,
            rows: cast::u64_from(count),
            bytes_plain: bytes,
            bytes_encoded: bytes,
            columns: columns.iter().map(|column| described(column)).collect(),
            rows_profiled: None,
            encryption: None,
            bytes_resident: None,
            is_pinned: false,
        };
        Some(Given { info, rows })
    }
}

/// Returns whether the pool has the type's values as views.
fn is_text(data_type: &DataType) -> bool {
    use DataType::{Binary, LargeBinary, LargeUtf8, Utf8};
    matches!(data_type, Utf8 | LargeUtf8 | Binary | LargeBinary)
}

fn described(column: &[Literal]) -> ColumnStatistics {
    let known = || column.iter().filter(|literal| !literal.is_null());
    let order = |a: &&Literal, b: &&Literal| a.compare(b).unwrap_or(Ordering::Equal);
    let distinct: HashSet<&Literal> = known().collect();
    ColumnStatistics {
        null_count: cast::u64_from(column.len() - known().count()),
        min: known().min_by(order).cloned(),
        max: known().max_by(order).cloned(),
        distinct_count: Some(cast::u64_from(distinct.len())),
        ..ColumnStatistics::default()
    }
}
