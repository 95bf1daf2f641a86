//! Functions of a list and a lambda (`list_filter`, `list_transform`), evaluated for a limited number of elements at a
//! time.
//!
//! DataFusion 55.2 evaluates the lambda for all elements of a batch at once, with a copy of each captured column for
//! each element, and charges nothing to its memory pool: `list_filter(range(0, 10000), x -> i * x > 5)` takes
//! gigabytes. This module is obsolete once upstream evaluates lambdas in pieces.

use super::Charge;
use super::function::{has_fixed_size, refused};
use super::growth::range_bytes;
use crate::error;
use crate::interrupt::current;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, ListArray, UInt64Array};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, FieldRef};
use arrow_select::concat::concat;
use arrow_select::filter::filter;
use arrow_select::take::{take, take_arrays};
use datafusion::common::utils::remove_list_null_values;
use datafusion::common::{Result, exec_err};
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::functions_nested::array_filter::array_filter_higher_order_function;
use datafusion::functions_nested::array_transform::array_transform_higher_order_function;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, HigherOrderFunctionArgs, HigherOrderReturnFieldArgs, HigherOrderSignature,
    HigherOrderUDF, HigherOrderUDFImpl, LambdaArgument, LambdaParametersProgress, ValueOrLambda,
};
use datafusion::prelude::SessionContext;
use farpool_model::{Error, limits};
use std::cell::Cell;
use std::sync::Arc;

/// Maximum number of elements for which a lambda is evaluated at once, and maximum bytes of the copies of captured
/// columns.
const ELEMENTS: usize = 4096;
const BYTES: usize = 4 << 20;

/// Registers the functions in place of DataFusion's.
pub fn register(context: &SessionContext) {
    for (inner, keeps) in
        [(array_transform_higher_order_function(), false), (array_filter_higher_order_function(), true)]
    {
        let function = BoundedLambda { inner, keeps };
        context.register_higher_order_function(Arc::new(HigherOrderUDF::new_from_impl(function)));
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct BoundedLambda {
    inner: Arc<HigherOrderUDF>,
    /// Whether the lambda is a predicate that selects elements (`list_filter`); otherwise it computes new ones.
    keeps: bool,
}

/// The list argument of a call, one list for each row of the batch.
struct Lists<'a> {
    lists: &'a ListArray,
    /// Whether there is a single list for all rows.
    is_one: bool,
    rows: usize,
}

impl Lists<'_> {
    /// Returns the index of the first element of a row, and the number of its elements.
    fn of_row(&self, row: usize) -> (usize, usize) {
        let row = if self.is_one { 0 } else { row };
        if self.lists.is_null(row) {
            return (0, 0);
        }
        let offsets = self.lists.value_offsets();
        let (start, end) = (offsets[row] as usize, offsets[row + 1] as usize);
        (start, end - start)
    }

    fn elements(&self) -> usize {
        (0..self.rows).map(|row| self.of_row(row).1).sum()
    }
}

/// The part of a call's result that has been computed so far, and the memory reserved for it.
struct Made<'a> {
    name: &'a str,
    memory: Option<(&'a Arc<dyn MemoryPool>, &'a Charge)>,
    pieces: Vec<ArrayRef>,
    lengths: Vec<usize>,
    bytes: usize,
}

impl Made<'_> {
    fn push(&mut self, piece: ArrayRef) -> Result<()> {
        let bytes = range_bytes(&piece, 0, piece.len());
        self.bytes = self.bytes.saturating_add(bytes);
        if let Some((memory, charge)) = self.memory
            && (i32::try_from(self.bytes).is_err() || !charge.grow(memory, bytes))
        {
            return Err(refused(self.name, memory, self.bytes));
        }
        self.pieces.push(piece);
        Ok(())
    }
}

impl BoundedLambda {
    /// Calls DataFusion's function, with its arguments as DataFusion passes them.
    fn by_engine(&self, mut args: HigherOrderFunctionArgs) -> Result<ColumnarValue> {
        for arg in &mut args.args {
            if let ValueOrLambda::Value(value) = arg
                && matches!(value.data_type(), DataType::List(_) | DataType::LargeList(_))
            {
                let lists = value.to_array(args.number_rows)?;
                let lists = if lists.null_count() == 0 { lists } else { remove_list_null_values(&lists)? };
                *value = ColumnarValue::Array(lists);
            }
        }
        self.inner.inner().invoke_with_args(args)
    }

    /// Evaluates the lambda for a limited number of elements at a time, and joins the results.
    fn in_pieces(
        &self,
        lists: &Lists<'_>,
        lambda: &LambdaArgument,
        at_once: usize,
        made: &mut Made<'_>,
    ) -> Result<()> {
        let values = lists.lists.values();
        let (mut places, mut rows) = (Vec::with_capacity(at_once), Vec::with_capacity(at_once));
        for row in 0..lists.rows {
            let (start, count) = lists.of_row(row);
            made.lengths.push(if self.keeps { 0 } else { count });
            for place in start..start + count {
                places.push(place as u64);
                rows.push(row as u64);
                if places.len() == at_once {
                    self.piece(values, lambda, (&mut places, &mut rows), made)?;
                }
            }
        }
        self.piece(values, lambda, (&mut places, &mut rows), made)
    }

    /// Evaluates the lambda for a range of elements, which belong to the rows `rows`.
    fn piece(
        &self,
        values: &ArrayRef,
        lambda: &LambdaArgument,
        (places, rows): (&mut Vec<u64>, &mut Vec<u64>),
        made: &mut Made<'_>,
    ) -> Result<()> {
        current::check()?;
        let (Some(first), Some(last)) = (places.first(), places.last()) else { return Ok(()) };
        let is_range = last.checked_sub(*first) == Some(places.len() as u64 - 1);
        let elements = match is_range {
            true => values.slice(*first as usize, places.len()),
            false => take(values, &UInt64Array::from(std::mem::take(places)), None)?,
        };
        let owners = UInt64Array::from(std::mem::take(rows));
        places.clear();
        let given = || Ok(Arc::clone(&elements));
        let held = made.memory.map_or(0, |(_, charge)| charge.held());
        let said = lambda.evaluate(&[&given], |columns| Ok(take_arrays(columns, &owners, None)?))?;
        let said = said.into_array(elements.len())?;
        // The memory of functions within the lambda is free again; only the result of the piece stays charged.
        if let Some((_, charge)) = made.memory {
            charge.shrink(charge.held().saturating_sub(held));
        }
        if !self.keeps {
            return made.push(said);
        }
        let Some(keeps) = said.as_boolean_opt() else {
            return exec_err!("the lambda of {} gives {}, no BOOLEAN", made.name, said.data_type());
        };
        let keeps: BooleanArray = keeps.iter().map(|keeps| Some(keeps == Some(true))).collect();
        for (place, row) in owners.values().iter().enumerate() {
            made.lengths[*row as usize] += usize::from(keeps.value(place));
        }
        made.push(filter(&elements, &keeps)?)
    }
}

/// Returns the bytes of the columns that the lambda captures, in the row where they are largest.
fn captured(lambda: &LambdaArgument, values: &ArrayRef) -> Result<usize> {
    let most = Cell::new(0);
    let none = values.slice(0, 0);
    lambda.evaluate(&[&|| Ok(Arc::clone(&none))], |columns| {
        most.set(columns.iter().map(widest).sum());
        Ok(columns.iter().map(|column| column.slice(0, 0)).collect())
    })?;
    Ok(most.get())
}

fn widest(column: &ArrayRef) -> usize {
    match has_fixed_size(column.data_type()) {
        true => column.data_type().primitive_width().unwrap_or(1),
        false => (0..column.len()).map(|row| range_bytes(column, row, 1)).max().unwrap_or(0),
    }
}

impl HigherOrderUDFImpl for BoundedLambda {
    fn invoke_with_args(&self, args: HigherOrderFunctionArgs) -> Result<ColumnarValue> {
        current::check()?;
        let [ValueOrLambda::Value(value), ValueOrLambda::Lambda(lambda)] = args.args.as_slice() else {
            return self.by_engine(args);
        };
        let is_one = matches!(value, ColumnarValue::Scalar(_));
        let array = value.to_array(if is_one { 1 } else { args.number_rows })?;
        let (Some(list), DataType::List(field)) = (array.as_list_opt::<i32>(), args.return_field.data_type())
        else {
            return self.by_engine(args);
        };
        let lists = Lists { lists: list, is_one, rows: args.number_rows };
        let elements = lists.elements();
        if elements == 0 || is_one && list.is_null(0) {
            return self.by_engine(args);
        }
        if current::is_planning() && elements.saturating_mul(8) > limits::FOLDED_BYTES_MAX {
            // The optimizer then keeps the call instead of folding it, and it is evaluated when the statement runs.
            let message = format!("{} has too many elements while the statement is planned", self.name());
            return Err(error::wrap(Error::over_limit(message)));
        }
        let width = captured(lambda, list.values())?.max(1);
        let at_once = (BYTES / width).clamp(1, ELEMENTS);
        let charged = current::charged();
        let memory = charged.as_ref().and_then(|(scope, charge)| Some((scope.memory()?, &**charge)));
        let (pieces, lengths) = (Vec::new(), Vec::with_capacity(lists.rows));
        let mut made = Made { name: self.name(), memory, pieces, lengths, bytes: 0 };
        self.in_pieces(&lists, lambda, at_once, &mut made)?;
        let pieces: Vec<&dyn Array> = made.pieces.iter().map(|piece| &**piece as _).collect();
        let values = concat(&pieces)?;
        let nulls = list.nulls().filter(|_| !is_one).cloned();
        let offsets = OffsetBuffer::<i32>::from_lengths(made.lengths);
        Ok(ColumnarValue::Array(Arc::new(ListArray::try_new(Arc::clone(field), offsets, values, nulls)?)))
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.inner().aliases()
    }

    fn signature(&self) -> &HigherOrderSignature {
        self.inner.inner().signature()
    }

    fn lambda_parameters(
        &self,
        step: usize,
        fields: &[ValueOrLambda<FieldRef, Option<FieldRef>>],
    ) -> Result<LambdaParametersProgress> {
        self.inner.inner().lambda_parameters(step, fields)
    }

    fn return_field_from_args(&self, args: HigherOrderReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.inner().return_field_from_args(args)
    }

    fn coerce_value_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.inner().coerce_value_types(types)
    }

    /// Returns false: otherwise DataFusion would copy a constant list for each row, in order to clear the elements
    /// below NULLs.
    fn clear_null_values(&self) -> bool {
        false
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.inner().documentation()
    }
}
