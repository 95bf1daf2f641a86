//! HyperLogLogs in the format of Redis, which clients of the Redis protocol create with `PFADD`: SQL functions that
//! count the elements of such a value, merge values, and create values from columns.
//!
//! They are not converted to or from farpool's own sketches, because elements are hashed differently, and a register
//! does not tell which elements have set it.

use super::statistic::state_type;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryViewArray, BooleanArray, UInt64Array};
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, EmitTo, GroupsAccumulator,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use farpool_model::Error;
use farpool_statistics::redis_hll::{Corrupt, Writer, read};
use std::sync::Arc;

/// Creates the function `hll_count`.
pub(super) fn count() -> ScalarUDF {
    ScalarUDF::from(Count { signature: Signature::user_defined(Volatility::Immutable) })
}

/// Creates the aggregates `hll` and `hll_merge`.
pub(super) fn aggregates() -> Vec<AggregateUDF> {
    let of = |name, kind| {
        AggregateUDF::from(Aggregate {
            name,
            kind,
            signature: Signature::user_defined(Volatility::Immutable),
        })
    };
    vec![of("hll", Kind::Make), of("hll_merge", Kind::Merge)]
}

fn invalid(message: String) -> DataFusionError {
    farpool_sql::error::wrap(Error::invalid(message))
}

fn corrupt(error: Corrupt) -> DataFusionError {
    farpool_sql::error::wrap(error.into_error())
}

/// Returns the type to which HyperLogLog values are converted. Strings are refused later, with a message that explains
/// it.
fn value_type(data_type: &DataType) -> Result<DataType> {
    if data_type.is_string() {
        return Ok(DataType::Utf8View);
    }
    state_type(data_type).map_err(farpool_sql::error::wrap)
}

/// Returns the error for HyperLogLog values that are strings.
fn not_binary(name: &str, data_type: &DataType) -> DataFusionError {
    let error = Error::invalid(format!("{name} takes HyperLogLogs, which are binary, not {data_type}"));
    farpool_sql::error::wrap(error.advise("a space whose values are read as such is created as BINARY"))
}

/// `hll_count(value)`: the estimated number of elements of a HyperLogLog value, as `PFCOUNT` returns it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Count {
    signature: Signature,
}

impl ScalarUDFImpl for Count {
    fn name(&self) -> &str {
        "hll_count"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [value] => Ok(vec![value_type(value)?]),
            _ => Err(invalid("hll_count takes one HyperLogLog".into())),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::UInt64)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let values = arrays[0].as_binary_view_opt();
        let values = values.ok_or_else(|| not_binary("hll_count", arrays[0].data_type()))?;
        let counts = values.iter().map(|value| value.map(counted).transpose());
        Ok(ColumnarValue::Array(Arc::new(counts.collect::<Result<UInt64Array>>()?)))
    }
}

fn counted(value: &[u8]) -> Result<u64> {
    read(value).map_err(farpool_sql::error::wrap)?.known_count().map_err(corrupt)
}

/// Input of an aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// Elements, from which a HyperLogLog value is made.
    Make,
    /// HyperLogLog values, which are merged.
    Merge,
}

/// `hll(element)` and `hll_merge(value)`, which both return a HyperLogLog value; NULL if all inputs are NULL.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Aggregate {
    name: &'static str,
    kind: Kind,
    signature: Signature,
}

impl AggregateUDFImpl for Aggregate {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [of] = types else { return Err(invalid(format!("{} takes one column", self.name))) };
        match self.kind {
            Kind::Merge => Ok(vec![value_type(of)?]),
            // Elements are strings of bytes. An integer becomes its decimal digits, as clients of the Redis protocol
            // send it.
            Kind::Make if state_type(of).is_ok() => Ok(vec![DataType::BinaryView]),
            Kind::Make if of.is_integer() || of.is_string() => Ok(vec![DataType::Utf8View]),
            Kind::Make => {
                let error = Error::invalid(format!("hll takes texts, binaries and integers, not {of}"));
                Err(farpool_sql::error::wrap(error.advise("cast the column to the text that clients use")))
            }
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::BinaryView)
    }

    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let name = format!("{}[state]", arguments.name);
        Ok(vec![Arc::new(Field::new(name, DataType::BinaryView, true))])
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Alone(self.groups(&arguments, 1)?)))
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs<'_>) -> bool {
        !arguments.is_distinct
    }

    fn create_groups_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(self.groups(&arguments, 0)?))
    }
}

impl Aggregate {
    /// Creates the accumulators. Refuses DISTINCT, because a HyperLogLog value does not depend on how often an element
    /// occurs.
    fn groups(&self, arguments: &AccumulatorArgs<'_>, count: usize) -> Result<Groups> {
        if arguments.is_distinct {
            let message = format!("{}(DISTINCT …) is not supported: it gives the same without", self.name);
            return Err(DataFusionError::NotImplemented(message));
        }
        let of = arguments.expr_fields.first().map(|field| field.data_type().clone());
        if let (Kind::Merge, Some(of @ DataType::Utf8View)) = (self.kind, &of) {
            return Err(not_binary(self.name, of));
        }
        let mut groups = Groups { kind: self.kind, values: Vec::new(), bytes: 0 };
        groups.resize(count);
        Ok(groups)
    }
}

/// The HyperLogLog values of all groups. A value takes some bytes for few elements, and up to 12 KiB for many.
#[derive(Debug)]
struct Groups {
    kind: Kind,
    values: Vec<Option<Writer>>,
    /// Total bytes of the HyperLogLog values.
    bytes: usize,
}

impl Groups {
    fn resize(&mut self, count: usize) {
        self.values.resize_with(count, || None);
    }

    /// Changes the HyperLogLog value of a group, which is created if there is none.
    fn change<T>(
        &mut self,
        group: usize,
        change: impl FnOnce(&mut Writer) -> std::result::Result<T, Corrupt>,
    ) -> Result<()> {
        let place = &mut self.values[group];
        let before = place.as_ref().map_or(0, Writer::bytes_held);
        let value = place.get_or_insert_default();
        let changed = change(value);
        self.bytes = self.bytes - before + value.bytes_held();
        changed.map(drop).map_err(corrupt)
    }

    fn add(&mut self, values: &ArrayRef, groups: &[usize], filter: Option<&BooleanArray>) -> Result<()> {
        let counts = |row: usize| filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
        let group = |row: usize| groups.get(row).copied().unwrap_or(0);
        let rows = (0..values.len()).filter(|row| values.is_valid(*row) && counts(*row));
        match (self.kind, values.data_type()) {
            (Kind::Make, DataType::Utf8View) => {
                let texts = values.as_string_view();
                for row in rows {
                    self.change(group(row), |value| value.add(texts.value(row).as_bytes()))?;
                }
            }
            (Kind::Make, _) => {
                let bytes = values.as_binary_view();
                for row in rows {
                    self.change(group(row), |value| value.add(bytes.value(row)))?;
                }
            }
            (Kind::Merge, _) => self.merge(values, groups, filter)?,
        }
        Ok(())
    }

    fn merge(&mut self, values: &ArrayRef, groups: &[usize], filter: Option<&BooleanArray>) -> Result<()> {
        let counts = |row: usize| filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
        let values = values.as_binary_view();
        for row in (0..values.len()).filter(|row| values.is_valid(*row) && counts(*row)) {
            let other = read(values.value(row)).map_err(farpool_sql::error::wrap)?;
            let group = groups.get(row).copied().unwrap_or(0);
            self.change(group, |value| value.merge(other))?;
        }
        Ok(())
    }

    fn written(&mut self, emit_to: EmitTo) -> ArrayRef {
        let values: BinaryViewArray = emit_to
            .take_needed(&mut self.values)
            .into_iter()
            .map(|value| {
                value.map(|mut value| {
                    self.bytes -= value.bytes_held();
                    value.forget_count();
                    value.bytes().to_vec()
                })
            })
            .collect();
        Arc::new(values)
    }
}

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.resize(total_num_groups);
        self.add(&values[0], group_indices, filter)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.resize(total_num_groups);
        self.merge(&values[0], group_indices, None)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        Ok(self.written(emit_to))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.written(emit_to)])
    }

    /// Returns a HyperLogLog value for each row.
    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let rows: Vec<usize> = (0..values[0].len()).collect();
        let mut each = Groups { kind: self.kind, values: Vec::new(), bytes: 0 };
        each.resize(rows.len());
        each.add(&values[0], &rows, filter)?;
        Ok(vec![each.written(EmitTo::All)])
    }

    fn size(&self) -> usize {
        size_of::<Groups>() + self.bytes + self.values.capacity() * size_of::<Option<Writer>>()
    }
}

/// An accumulator of a single group.
#[derive(Debug)]
struct Alone(Groups);

impl Alone {
    fn value(&self) -> ScalarValue {
        let value = self.0.values[0].as_ref().map(|value| {
            let mut value = value.clone();
            value.forget_count();
            value.bytes().to_vec()
        });
        ScalarValue::BinaryView(value)
    }
}

impl Accumulator for Alone {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.add(&values[0], &[], None)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge(&states[0], &[], None)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(self.value())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.value()])
    }

    fn size(&self) -> usize {
        size_of::<Alone>() + self.0.bytes
    }
}
