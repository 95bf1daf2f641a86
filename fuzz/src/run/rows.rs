//! The rows of a result, compared by hashes, since there may be many columns.

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use farpool_columns::RowGroup;
use farpool_model::{Accumulation, Fold, Output, Pick, Program};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The rows of a result, which are compared by hashes and sorted integers.
pub(super) struct Rows {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl Rows {
    pub fn new(schema: &SchemaRef) -> Self {
        Rows { schema: schema.clone(), batches: Vec::new() }
    }

    pub fn add(&mut self, batch: &RecordBatch) {
        assert_eq!(batch.schema(), self.schema);
        self.batches.push(batch.clone());
    }

    pub fn add_encoded(&mut self, group: &RowGroup) {
        let columns =
            group.chunks.iter().map(|chunk| chunk.decode(0..group.rows).expect("rows can be decoded"));
        let batch = RecordBatch::try_new(self.schema.clone(), columns.collect());
        self.batches.push(batch.expect("the columns of the result"));
    }

    pub fn count(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// Returns the sorted values of a column of 64-bit integers.
    pub fn integers(&self, column: usize) -> Vec<i64> {
        let mut values: Vec<i64> = self
            .batches
            .iter()
            .flat_map(|batch| batch.column(column).as_primitive::<Int64Type>().values().to_vec())
            .collect();
        values.sort_unstable();
        values
    }

    /// Returns the sorted integers of the rows in which another column is true.
    pub fn integers_where(&self, column: usize, condition: usize) -> Vec<i64> {
        let mut values = Vec::new();
        for batch in &self.batches {
            let (integers, holds) =
                (batch.column(column).as_primitive::<Int64Type>(), batch.column(condition).as_boolean());
            let rows = (0..batch.num_rows()).filter(|row| holds.is_valid(*row) && holds.value(*row));
            values.extend(rows.map(|row| integers.value(row)));
        }
        values.sort_unstable();
        values
    }

    /// Asserts that both are the result of `program`, as far as that is defined.
    pub fn assert_same(&self, other: &Rows, program: &Program, way: &str) {
        assert_eq!(self.schema, other.schema, "{way}");
        let mut decide = BTreeSet::new();
        program.having.iter().for_each(|having| having.collect_columns(&mut decide));
        if !decide.iter().all(|column| is_defined(&program.output, *column)) {
            return;
        }
        assert_eq!(self.count(), other.count(), "{way}, rows of {program:?}");
        let defined = defined(program);
        assert!(self.hashes(&defined) == other.hashes(&defined), "{way}, {program:?}");
    }

    fn hashes(&self, columns: &[usize]) -> Vec<u64> {
        let mut hashes: Vec<u64> = self.batches.iter().flat_map(|batch| hashes(batch, columns)).collect();
        hashes.sort_unstable();
        hashes
    }
}

/// Returns the columns of the result whose values are defined: all, unless a limit selects some of the rows; then those
/// that the order uses. Sums of floats are excluded, since they depend on the order of rows.
fn defined(program: &Program) -> Vec<usize> {
    let looked_at = |column: &usize| match program.limit {
        Some(_) => program.order.iter().any(|key| key.column == *column),
        None => true,
    };
    let defined = (0..program.output.width()).filter(|column| is_defined(&program.output, *column));
    defined.filter(looked_at).collect()
}

fn is_defined(output: &Output, column: usize) -> bool {
    let Output::Aggregate { keys, aggregates } = output else { return true };
    let Some(aggregate) = column.checked_sub(keys.len()).map(|place| &aggregates[place]) else { return true };
    match aggregate.function.accumulation() {
        Accumulation::Count
        | Accumulation::Fold(Fold::Pick(Pick::Least | Pick::Greatest) | Fold::Bits(_)) => true,
        Accumulation::Sum => !aggregate.data_type.is_floating(),
        Accumulation::Mean | Accumulation::Fold(Fold::Pick(Pick::Any)) | Accumulation::State(_) => false,
    }
}

fn hashes(batch: &RecordBatch, columns: &[usize]) -> Vec<u64> {
    let mut hashers = vec![DefaultHasher::new(); batch.num_rows()];
    columns.iter().for_each(|column| hash_column(batch.column(*column), &mut hashers));
    hashers.iter().map(Hasher::finish).collect()
}

fn hash_column(column: &ArrayRef, hashers: &mut [DefaultHasher]) {
    let mut each = |hash: &dyn Fn(usize, &mut DefaultHasher)| {
        for (row, hasher) in hashers.iter_mut().enumerate() {
            column.is_null(row).hash(hasher);
            if column.is_valid(row) {
                hash(row, hasher);
            }
        }
    };
    match column.data_type() {
        DataType::Boolean => each(&|row, h| column.as_boolean().value(row).hash(h)),
        DataType::Utf8View => each(&|row, h| column.as_string_view().value(row).hash(h)),
        DataType::BinaryView => each(&|row, h| column.as_binary_view().value(row).hash(h)),
        DataType::Float32 => {
            each(&|row, h| float_bits(column.as_primitive::<Float32Type>().value(row).into()).hash(h));
        }
        DataType::Float64 => {
            each(&|row, h| float_bits(column.as_primitive::<Float64Type>().value(row)).hash(h))
        }
        other => {
            let width = other.primitive_width().expect("a canonical type");
            let data = column.to_data();
            let bytes = &data.buffers()[0].as_slice()[data.offset() * width..];
            each(&|row, h| bytes[row * width..][..width].hash(h));
        }
    }
}

/// Returns the bits of a float; neither the sign nor the payload of a computed NaN is defined, and zeros are
/// equal.
fn float_bits(value: f64) -> u64 {
    match value {
        _ if value.is_nan() => f64::NAN.to_bits(),
        0.0 => 0,
        _ => value.to_bits(),
    }
}
