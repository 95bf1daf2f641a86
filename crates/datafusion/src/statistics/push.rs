//! Builds the projection that reads values from states (sketches, moments), above a program (the part of the query that
//! a pool runs) that computes the states.
//!
//! Invariant: the finished plan has the schema of the fragment that the program replaces.

use super::values;
use crate::fragment::Outcome;
use arrow_array::{ArrayRef, cast::AsArray, new_empty_array};
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::{Column, DFSchema, DFSchemaRef, ScalarValue, TableReference};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, Projection, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use farpool_planner::reading::Reading;
use farpool_statistics::StateForm;
use std::sync::Arc;

/// Returns the schema of the program below the projection: group keys, then states and other aggregates, with the types
/// of `of`.
///
/// # Errors
/// Fails only on a bug in this crate.
pub(crate) fn states_schema(of: &arrow_schema::Schema) -> Result<DFSchemaRef> {
    let field = |(i, field): (usize, &FieldRef)| {
        let named = Field::new(format!("state{i}"), field.data_type().clone(), true);
        (None::<TableReference>, Arc::new(named))
    };
    let fields = of.fields().iter().enumerate().map(field).collect();
    Ok(Arc::new(DFSchema::new_with_metadata(fields, std::collections::HashMap::new())?))
}

/// Returns the plan with schema `whole` that reads `outcomes` from `states`, a plan whose schema is that of
/// [`states_schema`], with `keys` group keys.
///
/// # Errors
/// Fails only on a bug in this crate.
pub(crate) fn read_above(
    states: LogicalPlan,
    keys: usize,
    outcomes: &[Outcome],
    whole: &DFSchemaRef,
) -> Result<LogicalPlan> {
    let column = |i: usize| Expr::Column(Column::new_unqualified(format!("state{i}")));
    let value = |(i, field): (usize, &FieldRef)| match i.checked_sub(keys).map(|i| &outcomes[i]) {
        None => column(i),
        Some(Outcome { aggregate, reading: None }) => column(keys + aggregate),
        Some(Outcome { aggregate, reading: Some((form, reading)) }) => {
            let arguments = vec![column(keys + aggregate)];
            let signature = Signature::any(1, Volatility::Immutable);
            let read = Read { form: *form, reading: reading.clone(), result: Arc::clone(field), signature };
            Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(ScalarUDF::from(read)), arguments))
        }
    };
    let named = |(i, (qualifier, field)): (usize, (Option<&TableReference>, &FieldRef))| {
        value((i, field)).alias_qualified(qualifier.cloned(), field.name().clone())
    };
    let values = whole.iter().enumerate().map(named).collect();
    Ok(LogicalPlan::Projection(Projection::try_new_with_schema(values, Arc::new(states), Arc::clone(whole))?))
}

/// A scalar function that reads a value from a state. It appears only in plans that are built here.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Read {
    form: StateForm,
    reading: Reading,
    result: FieldRef,
    signature: Signature,
}

impl Read {
    fn value(&self, states: &ArrayRef) -> farpool_model::Result<Vec<ScalarValue>> {
        let states = states.as_binary_view();
        states
            .iter()
            .map(|bytes| values::read(&self.reading, &self.form.read(bytes.unwrap_or_default())?))
            .collect()
    }
}

impl ScalarUDFImpl for Read {
    fn name(&self) -> &str {
        "read_state"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.result.data_type().clone())
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::clone(&self.result))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let values = self.value(&arrays[0]).map_err(farpool_sql::error::wrap)?;
        Ok(ColumnarValue::Array(match values.is_empty() {
            true => new_empty_array(self.result.data_type()),
            false => ScalarValue::iter_to_array(values)?,
        }))
    }
}
