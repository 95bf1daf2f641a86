//! Values of the parameters of a statement.
//!
//! Invariant: a statement runs only if each of its parameters has a value and each value has a parameter. Values never
//! become text of the statement.

use crate::error;
use arrow_array::ArrayRef;
use datafusion::common::{ParamValues, Result, ScalarValue};
use datafusion::logical_expr::LogicalPlan;
use farpool_model::Error;
use std::collections::HashMap;

/// Values of the parameters of a statement; each array has one row.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Parameters {
    /// None are given.
    #[default]
    None,
    /// The values of `$1`, `$2`, …; of `?` in the order of the text.
    Numbered(Vec<ArrayRef>),
    /// The values of parameters such as `$city`, by their names without the dollar sign.
    Named(Vec<(String, ArrayRef)>),
}

impl Parameters {
    /// Returns the plan with values in the place of its parameters.
    ///
    /// # Errors
    /// `Invalid` where a parameter has no value, or a value no parameter.
    pub(crate) fn fill_in(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        // What PREPARE has are parameters of EXECUTE.
        if matches!((&plan, self), (LogicalPlan::Statement(_), Parameters::None)) {
            return Ok(plan);
        }
        let mut wanted: Vec<String> = plan.get_parameter_names()?.into_iter().collect();
        wanted.sort_unstable();
        self.check(&wanted).map_err(error::wrap)?;
        if wanted.is_empty() {
            return Ok(plan);
        }
        plan.with_param_values(self.values()?)
    }

    fn check(&self, wanted: &[String]) -> farpool_model::Result<()> {
        let given = self.names();
        if let Some(missing) = wanted.iter().find(|name| !given.contains(name)) {
            let told = match given.as_slice() {
                [] => "none is given".to_string(),
                given => format!("given: {}", given.join(", ")),
            };
            return Err(Error::invalid(format!("the parameter {missing} has no value ({told})")).advise(
                "give each parameter a value: a list for $1, $2, … and ?, names and values for $name",
            ));
        }
        if let Some(extra) = given.iter().find(|name| !wanted.contains(name)) {
            return Err(Error::invalid(format!("there is a value for {extra}, and no such parameter"))
                .advise(
                    "write parameters without quotes around them, and leave out values that are not needed",
                ));
        }
        Ok(())
    }

    /// The names of the parameters that have a value, as plans have them.
    fn names(&self) -> Vec<String> {
        match self {
            Parameters::None => Vec::new(),
            Parameters::Numbered(values) => (1..=values.len()).map(|number| format!("${number}")).collect(),
            Parameters::Named(values) => values.iter().map(|(name, _)| format!("${name}")).collect(),
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
