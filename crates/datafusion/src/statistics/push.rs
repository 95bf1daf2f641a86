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
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Returns the schema of the program below the projection to the columns of `whole`: group keys, then states and other
/// aggregates. Columns of `whole` have its names and types, and others those of `of`, the result of the program.
///
/// # Errors
/// Fails only on a bug in this crate.
pub(crate) fn states_schema(
    of: &arrow_schema::Schema,
    outcomes: &[Outcome],
    whole: &DFSchema,
) -> Result<DFSchemaRef> {
    let mut names = HashSet::new();
    let field = |(place, field): (usize, &FieldRef)| {
        let is_same = |outcome: &Outcome| outcome.column == place && outcome.reading.is_none();
        let shown = outcomes.iter().position(is_same).map(|at| whole.field(at));
        let data_type = shown.unwrap_or(field).data_type().clone();
        let mut name = shown.map_or_else(|| format!("state {place}"), |field| field.name().clone());
        while !names.insert(name.clone()) {
            name.push('\'');
        }
        (None::<TableReference>, Arc::new(Field::new(name, data_type, true)))
    };
    let fields = of.fields().iter().enumerate().map(field).collect();
    Ok(Arc::new(DFSchema::new_with_metadata(fields, HashMap::new())?))
}

/// Returns the plan with schema `whole` that reads `outcomes` from `states`, a plan whose schema is that of
/// [`states_schema`].
///
/// # Errors
/// Fails only on a bug in this crate.
pub(crate) fn read_above(
    states: LogicalPlan,
    outcomes: &[Outcome],
    whole: &DFSchemaRef,
) -> Result<LogicalPlan> {
    let column = |at: usize| Expr::Column(Column::new_unqualified(states.schema().field(at).name()));
    let value = |(outcome, field): (&Outcome, &FieldRef)| match &outcome.reading {
        None => column(outcome.column),
        Some((form, reading)) => {
            let arguments = vec![column(outcome.column)];
            let signature = Signature::any(1, Volatility::Immutable);
            let read = Read { form: *form, reading: reading.clone(), result: Arc::clone(field), signature };
            Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(ScalarUDF::from(read)), arguments))
        }
    };
    let named = |(outcome, (qualifier, field)): (&Outcome, (Option<&TableReference>, &FieldRef))| {
        value((outcome, field)).alias_qualified(qualifier.cloned(), field.name().clone())
    };
    let values = outcomes.iter().zip(whole.iter()).map(named).collect();
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
