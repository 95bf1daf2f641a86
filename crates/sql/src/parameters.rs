//! Values for the parameters of an SQL statement, which DataFusion (the engine) plans (`?`, `$1`, `$name`).
//!
//! Invariant: a statement runs only if each of its parameters has a value and each value has a parameter. Values are
//! never inserted into the text of the statement, so that they cannot change its meaning.

use crate::error;
use arrow_array::{Array, ArrayRef, ListArray};
use arrow_schema::DataType;
use datafusion::common::{DFSchema, ParamValues, Result, ScalarValue};
use datafusion::logical_expr::expr_rewriter::coerce_plan_expr_for_schema;
use datafusion::logical_expr::{Analyze, DmlStatement, Explain, LogicalPlan, WriteOp};
use datafusion::sql::sqlparser::ast::Value;
use farpool_model::{Error, limits};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The values for the parameters of a statement. Each array has one row.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Parameters {
    /// No values.
    #[default]
    None,
    /// The values of `$1`, `$2`, …; of `?` in the order of the text.
    Numbered(Vec<ArrayRef>),
    /// The values of parameters such as `$city`, by their names without the dollar sign.
    Named(Vec<(String, ArrayRef)>),
}

impl Parameters {
    /// Returns the plan with its parameters replaced by their values. The parameters in `used` were replaced in the
    /// statement before planning.
    ///
    /// # Errors
    /// `Invalid` if a parameter has no value, or a value has no parameter.
    pub fn fill_in(&self, plan: LogicalPlan, used: &BTreeSet<String>) -> Result<LogicalPlan> {
        // The parameters of a PREPARE statement get their values later, from EXECUTE.
        if matches!((&plan, self), (LogicalPlan::Statement(_), Parameters::None)) {
            return Ok(plan);
        }
        let in_plan = plan.get_parameter_names()?;
        let wanted: BTreeSet<String> = in_plan.iter().chain(used).cloned().collect();
        self.check(&wanted).map_err(error::wrap)?;
        if in_plan.is_empty() {
            return Ok(plan);
        }
        with_types_of_columns(plan.with_param_values(self.values()?)?)
    }

    /// Returns the types of the values by the names of the parameters; values that are NULL are left out.
    pub fn types(&self) -> HashMap<String, DataType> {
        let types = self.arrays().into_iter().map(|array| array.data_type().clone());
        self.names().into_iter().zip(types).filter(|(_, data_type)| *data_type != DataType::Null).collect()
    }

    /// Returns the value of a parameter as an SQL constant; `None` if it has no value, or one that is not a number, a
    /// string or a boolean.
    pub fn constant(&self, name: &str) -> Option<Value> {
        constant(self.value(name)?, 0)
    }

    /// Returns the elements of a parameter's value as SQL constants; `None` if the value is not a list of numbers,
    /// strings or booleans, or has more elements than a statement may have parts.
    pub fn constants(&self, name: &str) -> Option<Vec<Value>> {
        let list = self.value(name)?.as_any().downcast_ref::<ListArray>().filter(|list| list.is_valid(0))?;
        let elements = list.value(0);
        if elements.len() > limits::SQL_NODES_MAX {
            return None;
        }
        (0..elements.len()).map(|place| constant(&elements, place)).collect()
    }

    fn value(&self, name: &str) -> Option<&ArrayRef> {
        let values = self.names().into_iter().zip(self.arrays());
        values.into_iter().find(|(known, _)| known == name).map(|(_, array)| array)
    }

    fn check(&self, wanted: &BTreeSet<String>) -> farpool_model::Result<()> {
        let given = self.names();
        if let Some(missing) = wanted.iter().find(|name| !given.contains(*name)) {
            let told = match given.as_slice() {
                [] => "none is given".to_string(),
                given => format!("given: {}", given.join(", ")),
            };
            return Err(Error::invalid(format!("the parameter {missing} has no value ({told})")).advise(
                "give each parameter a value: a list for $1, $2, … and ?, names and values for $name",
            ));
        }
        if let Some(extra) = given.iter().find(|name| !wanted.contains(*name)) {
            return Err(Error::invalid(format!("there is a value for {extra}, and no such parameter"))
                .advise(
                    "write parameters without quotes around them, and leave out values that are not needed",
                ));
        }
        Ok(())
    }

    /// Returns the names of the parameters that have a value, in the form in which plans contain them (`$1`, `$city`).
    fn names(&self) -> Vec<String> {
        match self {
            Parameters::None => Vec::new(),
            Parameters::Numbered(values) => (1..=values.len()).map(|number| format!("${number}")).collect(),
            Parameters::Named(values) => values.iter().map(|(name, _)| format!("${name}")).collect(),
        }
    }

    fn arrays(&self) -> Vec<&ArrayRef> {
        match self {
            Parameters::None => Vec::new(),
            Parameters::Numbered(values) => values.iter().collect(),
            Parameters::Named(values) => values.iter().map(|(_, value)| value).collect(),
        }
    }

    fn values(&self) -> Result<ParamValues> {
        let value = |array: &ArrayRef| ScalarValue::try_from_array(array, 0);
        Ok(match self {
            Parameters::None => ParamValues::List(Vec::new()),
            Parameters::Numbered(values) => values.iter().map(value).collect::<Result<Vec<_>>>()?.into(),
            Parameters::Named(values) => {
                let named = values.iter().map(|(name, array)| Ok((name.clone(), value(array)?)));
                named.collect::<Result<HashMap<_, _>>>()?.into()
            }
        })
    }
}

/// Returns a value as an SQL constant; `None` if it is not a number, a string or a boolean.
fn constant(array: &ArrayRef, place: usize) -> Option<Value> {
    Some(match ScalarValue::try_from_array(array, place).ok()? {
        value if value.is_null() => Value::Null,
        ScalarValue::Boolean(Some(value)) => Value::Boolean(value),
        ScalarValue::Utf8(Some(text)) => Value::SingleQuotedString(text),
        number if number.data_type().is_integer() || matches!(number, ScalarValue::Float64(Some(_))) => {
            Value::Number(number.to_string(), false)
        }
        _ => return None,
    })
}

/// Casts the rows that INSERT and UPDATE write to the types of the table's columns. For constants the engine does so
/// itself, because it knows their types while it plans; it does not know those of parameters.
fn with_types_of_columns(plan: LogicalPlan) -> Result<LogicalPlan> {
    let dml = match plan {
        LogicalPlan::Dml(dml) if matches!(dml.op, WriteOp::Insert(_) | WriteOp::Update) => dml,
        LogicalPlan::Explain(explain) => {
            let plan = Arc::new(with_types_of_columns(Arc::unwrap_or_clone(explain.plan))?);
            return Ok(LogicalPlan::Explain(Explain { plan, ..explain }));
        }
        LogicalPlan::Analyze(analyze) => {
            let input = Arc::new(with_types_of_columns(Arc::unwrap_or_clone(analyze.input))?);
            return Ok(LogicalPlan::Analyze(Analyze { input, ..analyze }));
        }
        other => return Ok(other),
    };
    let wanted = DFSchema::try_from(dml.target.schema())?;
    let input = coerce_plan_expr_for_schema(Arc::unwrap_or_clone(dml.input), &wanted)?;
    Ok(LogicalPlan::Dml(DmlStatement { input: Arc::new(input), ..dml }))
}
