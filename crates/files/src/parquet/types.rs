//! Types that the `parquet` crate reads incorrectly or not at all, and that are converted to those that the file
//! states:
//!
//! | in the file | the crate | here |
//! | --- | --- | --- |
//! | INT96, times of Spark, Hive and Impala | nanoseconds, which end in 2262 and then wrap | microseconds |
//! | INTERVAL: months, days, milliseconds | days and milliseconds; months are dropped | an interval of all three |
//! | 128-bit integers of Polars, known by the Arrow schema in the footer | a panic | decimal(38, 0) |
//!
//! The footer is loaded without its Arrow schema and changed so that the crate returns the bytes of these values. The
//! columns are converted after reading.

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, Decimal128Array, FixedSizeBinaryArray, IntervalMonthDayNanoArray, RecordBatch,
    RecordBatchOptions, make_array,
};
use arrow_buffer::IntervalMonthDayNano;
use arrow_schema::{
    ArrowError, DataType, Field, FieldRef, Fields, IntervalUnit, Schema, SchemaRef, TimeUnit,
};
use base64::prelude::{BASE64_STANDARD, Engine};
use farpool_model::{Error, Result, brief};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::arrow::{ARROW_SCHEMA_META_KEY, encode_arrow_schema};
use parquet::basic::{ConvertedType, Type as Physical};
use parquet::errors::ParquetError;
use parquet::file::metadata::{FileMetaData, KeyValue, ParquetMetaData, ParquetMetaDataBuilder};
use parquet::schema::types::{SchemaDescriptor, Type, TypePtr};
use std::sync::Arc;

/// Bytes of a 128-bit integer, and of an INTERVAL.
const WIDE_BYTES: i32 = 16;
const INTERVAL_BYTES: i32 = 12;

/// The type in which 128-bit integers are returned. It holds integers of up to 38 digits.
const WIDE: DataType = DataType::Decimal128(38, 0);

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// The metadata at the end of a file, and the columns derived from it.
#[derive(Clone)]
pub(crate) struct Footer {
    pub read: ArrowReaderMetadata,
    pub schema: SchemaRef,
    /// Indexes of the columns of unsigned 128-bit integers.
    unsigned: Vec<usize>,
}

/// Returns the options with which a footer must be loaded for [`Footer::of`].
pub(super) fn plain_options() -> ArrowReaderOptions {
    ArrowReaderOptions::new().with_skip_arrow_metadata(true)
}

impl Footer {
    /// Determines the types of the columns; `plain` must have been loaded with [`plain_options`].
    pub(super) fn of(plain: &ArrowReaderMetadata) -> Result<Footer, ParquetError> {
        let given = plain.metadata();
        let wide = Wide::of(given)?;
        let leaves = Leaves::of(given.file_metadata().schema_descr());
        let metadata = match (&wide, leaves.has_intervals()) {
            (None, false) => given.clone(),
            (wide, _) => Arc::new(changed(given, wide.as_ref())),
        };
        let read = ArrowReaderMetadata::try_new(metadata, ArrowReaderOptions::new())?;
        let read = leaves.in_microseconds(read)?;
        let wide = wide.map(|wide| wide.columns).unwrap_or_default();
        let schema = leaves.returned(read.schema(), &wide);
        let unsigned = wide.iter().filter(|(_, is_signed)| !is_signed).map(|(column, _)| *column).collect();
        Ok(Footer { read, schema, unsigned })
    }

    /// Replaces the metadata for the reader by `read`, in which columns that are not converted may have other types.
    pub(super) fn over(self, read: ArrowReaderMetadata) -> Footer {
        let before = self.read.schema().fields().iter();
        let kept = |((returned, before), now): ((&FieldRef, &FieldRef), &FieldRef)| {
            let is_converted = before.data_type() != returned.data_type();
            if is_converted { returned.clone() } else { now.clone() }
        };
        let fields = self.schema.fields().iter().zip(before).zip(read.schema().fields()).map(kept);
        let fields: Fields = fields.collect();
        Footer { schema: Arc::new(Schema::new(fields)), read, unsigned: self.unsigned }
    }

    pub(crate) fn metadata(&self) -> &ParquetMetaData {
        self.read.metadata()
    }

    /// Converts a batch of the columns at the indexes `columns`, in ascending order, to the types of the schema.
    pub(super) fn converted(&self, batch: RecordBatch, columns: &[usize]) -> Result<RecordBatch> {
        let fields: Vec<FieldRef> = columns.iter().map(|i| self.schema.fields()[*i].clone()).collect();
        let types = || fields.iter().map(|field| field.data_type());
        if batch.columns().iter().map(|column| column.data_type()).eq(types()) {
            return Ok(batch);
        }
        let converted = batch.columns().iter().zip(columns).zip(&fields).map(|((column, i), field)| {
            let is_signed = !self.unsigned.contains(i);
            converted(column, field.data_type(), is_signed)
                .map_err(|error| error.at(format_args!("column {:?}", brief(field.name()))))
        });
        let converted = converted.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), converted, &options)
            .map_err(|error| not_made(&error))
    }
}

/// The Arrow schema of a footer with 128-bit integers, in which these columns are binaries.
struct Wide {
    schema: Schema,
    /// Indexes of the 128-bit integer columns, and whether they are signed.
    columns: Vec<(usize, bool)>,
}

impl Wide {
    /// Returns the changed schema; `None` for a footer without 128-bit integers, or whose Arrow schema cannot be read.
    fn of(metadata: &ParquetMetaData) -> Result<Option<Wide>, ParquetError> {
        let Some(bytes) = arrow_schema_bytes(metadata) else { return Ok(None) };
        // The stream's marker and length stand before the message in most files.
        let message = if bytes.starts_with(&[0xff; 4]) { bytes.get(8..).unwrap_or_default() } else { &bytes };
        let schema = arrow_ipc::root_as_message(message).ok().and_then(|message| message.header_as_schema());
        let fields: Vec<_> = schema.and_then(|schema| schema.fields()).into_iter().flatten().collect();
        if !fields.iter().any(has_wide_integer) {
            return Ok(None);
        }
        let mut columns = Vec::new();
        let mut made = Vec::new();
        for (i, field) in fields.into_iter().enumerate() {
            let name = field.name().unwrap_or_default();
            let wide = field.type_as_int().filter(|int| int.bitWidth() == 8 * WIDE_BYTES);
            made.push(match wide.filter(|_| field.dictionary().is_none()) {
                Some(int) => {
                    columns.push((i, int.is_signed()));
                    Field::new(name, DataType::FixedSizeBinary(WIDE_BYTES), field.nullable())
                }
                None if has_wide_integer(&field) => return Err(no_wide(name)),
                None => Field::from(field),
            });
        }
        Ok(Some(Wide { schema: Schema::new(made), columns }))
    }
}

/// Returns whether a field of an Arrow schema, or one nested in it, is an integer of more than 64 bits, for which
/// `arrow-ipc` panics.
pub(crate) fn has_wide_integer(field: &arrow_ipc::Field<'_>) -> bool {
    field.type_as_int().is_some_and(|int| int.bitWidth() > 64)
        || field.children().into_iter().flatten().any(|child| has_wide_integer(&child))
}

fn no_wide(name: &str) -> ParquetError {
    ParquetError::NYI(format!("column {:?} has lists or structs of 128-bit integers", brief(name)))
}

fn arrow_schema_bytes(metadata: &ParquetMetaData) -> Option<Vec<u8>> {
    let values = metadata.file_metadata().key_value_metadata()?;
    let found = values.iter().find(|entry| entry.key == ARROW_SCHEMA_META_KEY)?;
    BASE64_STANDARD.decode(found.value.as_deref()?).ok()
}

/// Returns the metadata in which INTERVAL columns are bytes, with the Arrow schema of `wide`.
fn changed(given: &ParquetMetaData, wide: Option<&Wide>) -> ParquetMetaData {
    let file = given.file_metadata();
    let mut entries = file.key_value_metadata().cloned();
    if let Some(wide) = wide {
        let entries = entries.get_or_insert_default();
        entries.retain(|entry| entry.key != ARROW_SCHEMA_META_KEY);
        entries.push(KeyValue::new(ARROW_SCHEMA_META_KEY.to_string(), encode_arrow_schema(&wide.schema)));
    }
    let root = without_intervals(&file.schema_descr().root_schema_ptr());
    let file = FileMetaData::new(
        file.version(),
        file.num_rows(),
        file.created_by().map(str::to_string),
        entries,
        Arc::new(SchemaDescriptor::new(root)),
        file.column_orders().cloned(),
    );
    ParquetMetaDataBuilder::new(file).set_row_groups(given.row_groups().to_vec()).build()
}

fn without_intervals(of: &TypePtr) -> TypePtr {
    match &**of {
        Type::GroupType { basic_info, fields } => {
            let fields = fields.iter().map(without_intervals).collect();
            Arc::new(Type::GroupType { basic_info: basic_info.clone(), fields })
        }
        Type::PrimitiveType { basic_info, .. } if basic_info.converted_type() == ConvertedType::INTERVAL => {
            let bytes = Type::primitive_type_builder(of.name(), Physical::FIXED_LEN_BYTE_ARRAY)
                .with_repetition(basic_info.repetition())
                .with_length(INTERVAL_BYTES)
                .with_id(basic_info.has_id().then(|| basic_info.id()));
            bytes.build().map_or_else(|_| of.clone(), Arc::new)
        }
        Type::PrimitiveType { .. } => of.clone(),
    }
}

/// Properties of the leaf columns of a file, in file order.
struct Leaves(Vec<Leaf>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaf {
    Int96,
    Interval,
    Other,
}

impl Leaves {
    fn of(schema: &SchemaDescriptor) -> Self {
        let leaf = |column: &Arc<parquet::schema::types::ColumnDescriptor>| match column.physical_type() {
            Physical::INT96 => Leaf::Int96,
            Physical::FIXED_LEN_BYTE_ARRAY
                if column.converted_type() == ConvertedType::INTERVAL
                    && column.type_length() == INTERVAL_BYTES =>
            {
                Leaf::Interval
            }
            _ => Leaf::Other,
        };
        Leaves(schema.columns().iter().map(leaf).collect())
    }

    fn has_intervals(&self) -> bool {
        self.0.contains(&Leaf::Interval)
    }

    /// Makes the reader return INT96 in microseconds, which hold every year that can be formatted.
    fn in_microseconds(&self, read: ArrowReaderMetadata) -> Result<ArrowReaderMetadata, ParquetError> {
        if !self.0.contains(&Leaf::Int96) {
            return Ok(read);
        }
        let schema = self.each(read.schema(), |leaf, data_type| match (leaf, data_type) {
            (Leaf::Int96, DataType::Timestamp(_, zone)) => {
                DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
            }
            _ => data_type.clone(),
        });
        let options = ArrowReaderOptions::new().with_schema(Arc::new(schema));
        ArrowReaderMetadata::try_new(read.metadata().clone(), options)
    }

    /// Returns the schema of the columns after [`Footer::converted`].
    fn returned(&self, read: &Schema, wide: &[(usize, bool)]) -> SchemaRef {
        let schema = self.each(read, |leaf, data_type| match leaf {
            Leaf::Interval if *data_type == DataType::FixedSizeBinary(INTERVAL_BYTES) => INTERVAL,
            _ => data_type.clone(),
        });
        let field = |(i, field): (usize, &FieldRef)| {
            let is_wide = wide.iter().any(|(column, _)| *column == i)
                && *field.data_type() == DataType::FixedSizeBinary(WIDE_BYTES);
            if is_wide { Arc::new(field.as_ref().clone().with_data_type(WIDE)) } else { field.clone() }
        };
        let fields: Fields = schema.fields().iter().enumerate().map(field).collect();
        Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
    }

    /// Returns the schema in which `change` has replaced the types of leaf columns.
    fn each(&self, schema: &Schema, change: impl Fn(Leaf, &DataType) -> DataType) -> Schema {
        let mut leaves = self.0.iter();
        let mut changed = |data_type: &DataType| match leaves.next() {
            Some(leaf) => change(*leaf, data_type),
            None => data_type.clone(),
        };
        let fields: Fields = schema.fields().iter().map(|field| with_leaves(field, &mut changed)).collect();
        Schema::new_with_metadata(fields, schema.metadata().clone())
    }
}

fn with_leaves(field: &FieldRef, change: &mut dyn FnMut(&DataType) -> DataType) -> FieldRef {
    let data_type = match field.data_type() {
        DataType::List(of) => DataType::List(with_leaves(of, change)),
        DataType::LargeList(of) => DataType::LargeList(with_leaves(of, change)),
        DataType::FixedSizeList(of, size) => DataType::FixedSizeList(with_leaves(of, change), *size),
        DataType::ListView(of) => DataType::ListView(with_leaves(of, change)),
        DataType::LargeListView(of) => DataType::LargeListView(with_leaves(of, change)),
        DataType::Map(of, is_sorted) => DataType::Map(with_leaves(of, change), *is_sorted),
        DataType::Struct(of) => DataType::Struct(of.iter().map(|field| with_leaves(field, change)).collect()),
        leaf => change(leaf),
    };
    Arc::new(field.as_ref().clone().with_data_type(data_type))
}

fn converted(column: &ArrayRef, to: &DataType, is_signed: bool) -> Result<ArrayRef> {
    match (column.data_type(), to) {
        (from, to) if from == to => Ok(column.clone()),
        (DataType::FixedSizeBinary(INTERVAL_BYTES), DataType::Interval(_)) => {
            intervals(column.as_fixed_size_binary())
        }
        (DataType::FixedSizeBinary(WIDE_BYTES), DataType::Decimal128(..)) => {
            integers(column.as_fixed_size_binary(), is_signed)
        }
        (_, nested) => {
            let data = column.to_data();
            let within = data.child_data().iter().zip(children(nested)).map(|(child, to)| {
                converted(&make_array(child.clone()), to, is_signed).map(|child| child.to_data())
            });
            let within = within.collect::<Result<Vec<_>>>()?;
            let data = data.into_builder().data_type(nested.clone()).child_data(within).build();
            data.map(make_array).map_err(|error| not_made(&error))
        }
    }
}

/// Returns the child types of a nested type.
fn children(of: &DataType) -> Vec<&DataType> {
    match of {
        DataType::Struct(fields) => fields.iter().map(|field| field.data_type()).collect(),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => vec![field.data_type()],
        _ => Vec::new(),
    }
}

/// Decodes intervals: months, days and milliseconds, each an unsigned 32-bit integer (Parquet, "Logical types",
/// INTERVAL).
fn intervals(column: &FixedSizeBinaryArray) -> Result<ArrayRef> {
    let interval = |bytes: &[u8]| {
        let (parts, _) = bytes.as_chunks::<4>();
        let part = |i: usize| parts.get(i).map_or(0, |part| u32::from_le_bytes(*part));
        let whole = |what: &str, value: u32| {
            i32::try_from(value).map_err(|_| {
                Error::over_limit(format!("an interval has {value} {what}, and {} is the most", i32::MAX))
            })
        };
        let nanoseconds = i64::from(part(2)) * 1_000_000;
        Ok(IntervalMonthDayNano::new(whole("months", part(0))?, whole("days", part(1))?, nanoseconds))
    };
    let values = column.iter().map(|bytes| bytes.map(interval).transpose());
    Ok(Arc::new(values.collect::<Result<IntervalMonthDayNanoArray>>()?))
}

/// Decodes 128-bit integers, little-endian.
fn integers(column: &FixedSizeBinaryArray, is_signed: bool) -> Result<ArrayRef> {
    let integer = |bytes: &[u8]| {
        let bits = u128::from_le_bytes(bytes.try_into().unwrap_or_default());
        let value = if is_signed { Some(bits.cast_signed()) } else { i128::try_from(bits).ok() };
        value.filter(|value| value.unsigned_abs() < 10_u128.pow(38)).ok_or_else(|| {
            let value = if is_signed { bits.cast_signed().to_string() } else { bits.to_string() };
            Error::over_limit(format!("{value} has more than the 38 digits of a decimal"))
                .advise("leave the column out, or write it as text")
        })
    };
    let values = column.iter().map(|bytes| bytes.map(integer).transpose());
    let values = values.collect::<Result<Decimal128Array>>()?;
    values
        .with_precision_and_scale(38, 0)
        .map(|values| -> ArrayRef { Arc::new(values) })
        .map_err(|error| not_made(&error))
}

fn not_made(error: &ArrowError) -> Error {
    Error::corrupt(error.to_string())
}
