//! Upper bounds for the size of a function's result, computed for each row from its arguments.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, IntervalMonthDayNanoType};
use arrow_array::{Array, ArrayRef, Int64Array};
use arrow_cast::cast;
use arrow_schema::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};

/// Maximum number of bytes of a character in UTF-8.
const CHAR_BYTES: usize = 4;

/// Bytes of a list element in addition to its value: its view or offset, and its bit for NULL.
const ELEMENT_BYTES: usize = 17;

/// Dependence of the size of a function's result on its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Growth {
    /// The bytes of all arguments, times the first number, plus the second.
    Inputs(usize, usize),
    /// `repeat`: the first argument, as often as the second says.
    Repeat,
    /// `lpad`: a string with as many characters as the second argument says.
    Pad,
    /// `replace`: the first argument, with each occurrence of the second replaced by the third.
    Replace,
    /// `regexp_replace`: the first argument, in which the third, which may refer to groups of the pattern, may be
    /// inserted at each character.
    RegexpReplace,
    /// The strings of a list, with a separator after each.
    Join,
    /// A list whose elements come from a string or from two numbers.
    Split,
    /// A list whose length is the second argument.
    Resize,
    /// A series: the numbers or times from the first argument to the second.
    Range,
    /// A list of as many elements as the first argument has, each of which may become the third argument.
    ReplaceElements,
    /// A string that a format produces.
    Format,
    /// A result of fixed size, but with work in proportion to the product of the first two arguments' sizes.
    Product,
}

/// Returns how the result size of the function `name` depends on its arguments.
pub(super) fn growth(name: &str) -> Growth {
    match name {
        "repeat" | "array_repeat" | "list_repeat" => Growth::Repeat,
        "lpad" | "rpad" => Growth::Pad,
        "replace" => Growth::Replace,
        "regexp_replace" => Growth::RegexpReplace,
        "array_to_string" | "list_to_string" | "array_join" | "list_join" | "concat_ws" => Growth::Join,
        "string_to_array" | "string_to_list" | "regexp_match" => Growth::Split,
        "array_resize" | "list_resize" => Growth::Resize,
        "range" | "generate_series" => Growth::Range,
        "array_replace" | "array_replace_n" | "array_replace_all" | "list_replace" | "list_replace_n"
        | "list_replace_all" => Growth::ReplaceElements,
        "to_char" | "date_format" => Growth::Format,
        "levenshtein" => Growth::Product,
        "||" | "concat" | "make_array" | "make_list" | "array_concat" | "array_cat" | "list_concat"
        | "list_cat" | "array_append" | "array_prepend" | "overlay" | "array_union" | "list_union" => {
            Growth::Inputs(1, ELEMENT_BYTES)
        }
        _ => Growth::Inputs(CHAR_BYTES, 64),
    }
}

/// Returns an upper bound of the bytes of arguments and result in the first row of a call of the function `name`.
///
/// # Errors
/// Fails if an argument cannot be converted to a column.
pub fn call_bytes_max(name: &str, call: &ScalarFunctionArgs) -> Result<usize> {
    Ok(Arguments::new(&call.args)?.row(growth(name), 0).bytes())
}

impl Growth {
    /// Returns whether the memory and the time of a call depend only on arguments of variable size, so that they are
    /// small if there are none.
    pub fn is_of_sizes(self) -> bool {
        match self {
            Growth::Inputs(..)
            | Growth::Product
            | Growth::Replace
            | Growth::RegexpReplace
            | Growth::Split => true,
            Growth::Repeat
            | Growth::Pad
            | Growth::Join
            | Growth::Resize
            | Growth::Range
            | Growth::ReplaceElements
            | Growth::Format => false,
        }
    }
}

/// The bytes that one row of a call needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    /// Bytes of the row's arguments; an argument that is one value for all rows counts in full.
    pub input: usize,
    /// Upper bound of the bytes of the result.
    pub output: usize,
}

impl Row {
    /// Returns the bytes of the arguments and the result together.
    pub fn bytes(self) -> usize {
        self.input.saturating_add(self.output)
    }
}

/// The arguments of a call.
pub(super) struct Arguments {
    columns: Vec<Column>,
}

/// An argument: one value for all rows, or one for each row.
struct Column {
    values: ArrayRef,
    numbers: Option<Int64Array>,
    is_one: bool,
}

impl Column {
    fn new(value: &ColumnarValue) -> Result<Self> {
        let (values, is_one) = match value {
            ColumnarValue::Scalar(scalar) => (scalar.to_array()?, true),
            ColumnarValue::Array(array) => (ArrayRef::clone(array), false),
        };
        let is_number = values.data_type().is_numeric() || values.data_type().is_temporal();
        let as_numbers = || {
            // Times of all units are counted in microseconds.
            let times = DataType::Timestamp(TimeUnit::Microsecond, None);
            let is_time =
                matches!(values.data_type(), DataType::Date32 | DataType::Date64 | DataType::Timestamp(..));
            let values = if is_time { cast(&values, &times).ok()? } else { ArrayRef::clone(&values) };
            let numbers = cast(&values, &DataType::Int64).ok()?;
            numbers.as_primitive_opt::<Int64Type>().cloned()
        };
        let numbers = if is_number { as_numbers() } else { None };
        Ok(Column { values, numbers, is_one })
    }

    fn place(&self, row: usize) -> usize {
        if self.is_one { 0 } else { row }
    }

    fn bytes(&self, row: usize) -> usize {
        range_bytes(&self.values, self.place(row), 1)
    }

    fn text(&self, row: usize) -> Option<&str> {
        let place = self.place(row);
        match self.values.data_type() {
            DataType::Utf8 => Some(self.values.as_string::<i32>().value(place)),
            DataType::LargeUtf8 => Some(self.values.as_string::<i64>().value(place)),
            DataType::Utf8View => Some(self.values.as_string_view().value(place)),
            _ => None,
        }
    }

    fn total(&self, rows: usize) -> usize {
        match self.is_one {
            true => range_bytes(&self.values, 0, 1).saturating_mul(rows),
            false => range_bytes(&self.values, 0, self.values.len()),
        }
    }

    fn number(&self, row: usize) -> Option<i64> {
        let (numbers, place) = (self.numbers.as_ref()?, self.place(row));
        (!numbers.is_null(place)).then(|| numbers.value(place))
    }

    /// Returns the number of elements of a list; of a string, an upper bound of its number of characters.
    fn length(&self, row: usize) -> usize {
        elements(&self.values, self.place(row))
    }
}

impl Arguments {
    /// Prepares the arguments of a call, of which each has a value per row or one for all rows.
    pub fn new(args: &[ColumnarValue]) -> Result<Self> {
        let columns = args.iter().map(Column::new).collect::<Result<Vec<_>>>()?;
        Ok(Arguments { columns })
    }

    /// Returns the bytes of `rows` rows together; `None` if they depend on how bytes are spread over the rows.
    pub fn total(&self, growth: Growth, rows: usize) -> Option<Row> {
        let Growth::Inputs(factor, more) = growth else { return None };
        let input = self.columns.iter().fold(0, |sum: usize, column| sum.saturating_add(column.total(rows)));
        let output = input.saturating_mul(factor).saturating_add(rows.saturating_mul(more));
        Some(Row { input, output })
    }

    /// Returns the bytes that the call needs for a row.
    pub fn row(&self, growth: Growth, row: usize) -> Row {
        let input = self.columns.iter().fold(0, |sum: usize, column| sum.saturating_add(column.bytes(row)));
        Row { input, output: self.output(growth, row, input) }
    }

    fn bytes(&self, argument: usize, row: usize) -> usize {
        self.columns.get(argument).map_or(0, |column| column.bytes(row))
    }

    fn count(&self, argument: usize, row: usize) -> usize {
        let number = self.columns.get(argument).and_then(|column| column.number(row));
        number.and_then(|number| usize::try_from(number).ok()).unwrap_or(0)
    }

    fn length(&self, argument: usize, row: usize) -> usize {
        self.columns.get(argument).map_or(0, |column| column.length(row))
    }

    fn output(&self, growth: Growth, row: usize, input: usize) -> usize {
        let times = usize::saturating_mul;
        match growth {
            Growth::Inputs(factor, more) => times(input, factor).saturating_add(more),
            Growth::Repeat => {
                // Even a list of NULLs has a bitmap.
                let each = self.bytes(0, row).saturating_add(1);
                times(each, self.count(1, row))
            }
            Growth::Pad => times(self.count(1, row), if self.is_ascii(row) { 1 } else { CHAR_BYTES }),
            Growth::Replace => {
                let (text, to) = (self.bytes(0, row), self.bytes(2, row));
                // The bytes of the pattern alone, without the overhead of its column: with it, matches would look
                // longer and therefore fewer.
                let from = self.columns.get(1).and_then(|column| column.text(row)).map_or(1, str::len);
                let most = text.checked_div(from).unwrap_or(text.saturating_add(1));
                text.saturating_add(times(most, to))
            }
            Growth::RegexpReplace => self.regexp_replaced(row),
            Growth::Join => {
                let elements = (0..self.columns.len()).map(|argument| self.length(argument, row)).max();
                let separators = self.columns.iter().skip(1).map(|column| column.bytes(row)).max();
                let separators = separators.unwrap_or(0).max(self.bytes(0, row));
                let is_list = self.columns.first().is_some_and(|first| is_list(first.values.data_type()));
                match is_list {
                    // Numbers are converted to strings first.
                    true => times(input, 3).saturating_add(times(
                        elements.unwrap_or(0),
                        self.bytes(1, row).max(self.bytes(2, row)) + 8,
                    )),
                    false => input.saturating_add(times(self.columns.len(), separators)),
                }
            }
            Growth::Split => {
                let text = self.bytes(0, row);
                text.saturating_add(times(text.saturating_add(1), ELEMENT_BYTES))
            }
            Growth::Resize => {
                let each = self.bytes(2, row).saturating_add(ELEMENT_BYTES);
                input.saturating_add(times(self.count(1, row), each))
            }
            Growth::Range => times(self.numbers(row), 8),
            Growth::ReplaceElements => {
                let each = self.bytes(2, row).saturating_add(ELEMENT_BYTES);
                input.saturating_add(times(self.length(0, row), each))
            }
            Growth::Format => times(input, 32),
            Growth::Product => 0,
        }
    }

    /// Returns an upper bound of the bytes that `regexp_replace` returns. A match has at least one character or is
    /// empty between two characters; each reference to a group copies at most the match.
    fn regexp_replaced(&self, row: usize) -> usize {
        let (text, replacement) = (self.bytes(0, row), self.bytes(2, row));
        let is_global = self.columns.get(3).is_some();
        let matches = if is_global { text.saturating_add(1) } else { 1 };
        // A reference to a group, such as `\1`, takes at least two bytes of the replacement, and is replaced by the
        // whole match at most.
        let references = (replacement / 2).saturating_mul(text);
        let each = if self.has_references(2, row) { references } else { 0 };
        text.saturating_add(matches.saturating_mul(replacement)).saturating_add(each)
    }

    fn has_references(&self, argument: usize, row: usize) -> bool {
        let text = self.columns.get(argument).and_then(|column| column.text(row));
        text.is_none_or(|text| text.contains(['\\', '$']))
    }

    /// Returns whether all strings of the row have one byte for each character.
    fn is_ascii(&self, row: usize) -> bool {
        self.columns.iter().all(|column| column.text(row).is_none_or(str::is_ascii))
    }

    /// Returns the number of values in the series from the first argument to the second.
    fn numbers(&self, row: usize) -> usize {
        let number = |argument: usize| self.columns.get(argument).and_then(|column| column.number(row));
        let (start, stop) = match (number(0), number(1), self.columns.len()) {
            (Some(stop), None, 1) => (0, stop),
            (Some(start), Some(stop), _) => (start, stop),
            _ => return 0,
        };
        let span = u128::from(stop.abs_diff(start));
        let count = match self.columns.get(2) {
            None => span,
            Some(step) => match step.number(row) {
                Some(step) => span / u128::from(step.unsigned_abs().max(1)),
                None => span.saturating_mul(1000) / interval_ns(&step.values, step.place(row)).max(1),
            },
        };
        usize::try_from(count).unwrap_or(usize::MAX).saturating_add(1)
    }

    /// Returns the number of steps for a row, if the function compares each part of one argument with each part of
    /// another.
    pub fn product(&self, row: usize) -> usize {
        self.bytes(0, row).saturating_mul(self.bytes(1, row))
    }
}

/// Returns the minimum length of an interval in nanoseconds; 1 if it is not known.
fn interval_ns(values: &ArrayRef, place: usize) -> u128 {
    let interval = DataType::Interval(IntervalUnit::MonthDayNano);
    let Ok(values) = cast(values, &interval) else { return 1 };
    let Some(intervals) = values.as_primitive_opt::<IntervalMonthDayNanoType>() else { return 1 };
    if intervals.is_null(place) {
        return u128::MAX;
    }
    let interval = intervals.value(place);
    let days = i128::from(interval.months) * 28 + i128::from(interval.days);
    (days * 86_400_000_000_000 + i128::from(interval.nanoseconds)).unsigned_abs()
}

fn is_list(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..))
}

/// Returns the number of elements of the list at `place`; of a string, its bytes.
fn elements(values: &ArrayRef, place: usize) -> usize {
    match values.data_type() {
        DataType::List(_) => usize::try_from(values.as_list::<i32>().value_length(place)).unwrap_or(0),
        DataType::LargeList(_) => usize::try_from(values.as_list::<i64>().value_length(place)).unwrap_or(0),
        DataType::FixedSizeList(_, size) => usize::try_from(*size).unwrap_or(0),
        _ => range_bytes(values, place, 1),
    }
}

/// Returns the bytes that copies of `count` values of an array would need, from index `start` on. Memory that the
/// copies would share with the array does not count.
pub fn range_bytes(values: &dyn Array, start: usize, count: usize) -> usize {
    let between = |offsets: &[i32]| (offsets[start + count] - offsets[start]).unsigned_abs() as usize;
    let between_large =
        |offsets: &[i64]| usize::try_from(offsets[start + count] - offsets[start]).unwrap_or(usize::MAX);
    let child = |child: &ArrayRef, from: usize, to: usize| range_bytes(child, from, to.saturating_sub(from));
    let index = |offset: i64| usize::try_from(offset).unwrap_or(0);
    match values.data_type() {
        DataType::Utf8 => between(values.as_string::<i32>().value_offsets()) + 4 * count,
        DataType::Binary => between(values.as_binary::<i32>().value_offsets()) + 4 * count,
        DataType::LargeUtf8 => between_large(values.as_string::<i64>().value_offsets()) + 8 * count,
        DataType::LargeBinary => between_large(values.as_binary::<i64>().value_offsets()) + 8 * count,
        DataType::Utf8View => views_bytes(values.as_string_view().views(), start, count),
        DataType::BinaryView => views_bytes(values.as_binary_view().views(), start, count),
        DataType::List(_) => {
            let list = values.as_list::<i32>();
            let offsets = list.value_offsets();
            let (from, to) = (index(offsets[start].into()), index(offsets[start + count].into()));
            child(list.values(), from, to) + 4 * count
        }
        DataType::LargeList(_) => {
            let list = values.as_list::<i64>();
            let (from, to) = (index(list.value_offsets()[start]), index(list.value_offsets()[start + count]));
            child(list.values(), from, to) + 8 * count
        }
        DataType::FixedSizeList(_, size) => {
            let (list, size) = (values.as_fixed_size_list(), usize::try_from(*size).unwrap_or(0));
            child(list.values(), start * size, (start + count) * size)
        }
        DataType::Map(..) => {
            let map = values.as_map();
            let offsets = map.value_offsets();
            let (from, to) = (index(offsets[start].into()), index(offsets[start + count].into()));
            range_bytes(map.entries(), from, to - from) + 4 * count
        }
        DataType::Struct(_) => {
            values.as_struct().columns().iter().map(|column| range_bytes(column, start, count)).sum()
        }
        other => match other.primitive_width() {
            Some(width) => width * count,
            None if *other == DataType::Boolean => count.div_ceil(8),
            None if *other == DataType::Null => 0,
            // Part of the array is shared, such as a dictionary; a copy may keep all of it.
            None => values.get_buffer_memory_size(),
        },
    }
}

fn views_bytes(views: &[u128], start: usize, count: usize) -> usize {
    // A view begins with its length, in 32 bits.
    let length = |view: &u128| u32::try_from(view & u128::from(u32::MAX)).unwrap_or(0) as usize;
    views[start..start + count].iter().map(length).sum::<usize>() + 16 * count
}
