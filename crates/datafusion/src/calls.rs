//! Converts the aggregate functions of a plan fragment to aggregates of a program (the part of the query that is pushed
//! down to the pool, the store of the tables).
//!
//! Invariant: the derivation of each result ([`Outcome`]) gives exactly the result of the aggregate function. Calls
//! that read different values from a state (sketch or moments) of the same arguments share one state, if that changes
//! no result.

use crate::convert::Scope;
use crate::fragment::Outcome;
use crate::statistics::{Statistic, statistic_of};
use arrow_schema::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::AggregateFunction as Call;
use datafusion::logical_expr::{Expr as Logical, ExprSchemable};
use farpool_model::{Accumulation, Aggregate, AggregateFunction, Expr, NullHandling, StateFunction};
use farpool_planner::reading::Reading;
use farpool_statistics::StateForm;

/// The aggregate calls of a plan fragment that have been converted so far.
pub(crate) struct Calls<'a> {
    pub scope: Scope<'a>,
    /// Number of group keys, which are the first columns of the program.
    pub keys: usize,
    /// The aggregates of the program, which the results of the calls are derived from.
    pub aggregates: Vec<Aggregate>,
    /// For each key and each call, how it is derived from the columns of the program.
    pub outcomes: Vec<Outcome>,
}

impl Calls<'_> {
    /// Adds the aggregate call `expr`, whose result has this name and type.
    ///
    /// # Errors
    /// The reason why the call cannot be pushed down.
    pub(crate) fn add(&mut self, expr: &Logical, name: &str, data_type: &DataType) -> Result<(), String> {
        let call = match expr {
            Logical::AggregateFunction(call) => call,
            Logical::Alias(alias) => return self.add(&alias.expr, name, data_type),
            other => return Err(format!("{} is no aggregate", other.variant_name())),
        };
        if call.params.null_treatment.is_some() {
            return Err("IGNORE NULLS has no counterpart in the pool".to_string());
        }
        let filter = match &call.params.filter {
            None => None,
            Some(filter) => Some(decided(self.scope.value_where(filter))?),
        };
        if let Some(statistic) = statistic_of(call, self.scope.input)? {
            return self.add_statistic(call, name, filter, statistic);
        }
        let aggregate = self.plain(call, name, filter, data_type)?;
        self.outcomes.push(Outcome { column: self.keys + self.aggregates.len(), reading: None });
        self.aggregates.push(aggregate);
        Ok(())
    }

    fn plain(
        &self,
        call: &Call,
        name: &str,
        filter: Option<Expr>,
        data_type: &DataType,
    ) -> Result<Aggregate, String> {
        // Aggregates whose results are states (sketches, moments) are farpool's own functions; those calls are
        // recognized by `statistics`.
        let function = AggregateFunction::named(call.func.name())
            .filter(|function| !function.is_state())
            .ok_or_else(|| format!("the aggregate {} has no operator in the pool", call.func.name()))?;
        if call.params.distinct && !function.ignores_duplicates() {
            return Err("an aggregate of distinct values has no operator in the pool".to_string());
        }
        let argument = argument(&self.scope, call, function, filter.is_some())?;
        let arguments: Vec<Expr> = argument.into_iter().collect();
        let types = arguments
            .iter()
            .map(|argument| argument.data_type(&self.scope.table.schema).map_err(|e| e.message));
        if !function.accepts(&types.collect::<Result<Vec<_>, _>>()?, data_type) {
            return Err(format!("{} that gives {data_type}", function.name()));
        }
        Ok(Aggregate { name: name.to_string(), function, arguments, filter, data_type: data_type.clone() })
    }

    fn add_statistic(
        &mut self,
        call: &Call,
        name: &str,
        filter: Option<Expr>,
        statistic: Statistic,
    ) -> Result<(), String> {
        if call.params.distinct {
            return Err("an aggregate of distinct values has no operator in the pool".to_string());
        }
        let value = |argument| match filter {
            Some(_) => self.scope.value_where(argument),
            None => self.scope.value(argument),
        };
        let arguments = call.params.args[..statistic.columns].iter().map(|argument| decided(value(argument)));
        let wanted = Aggregate {
            name: name.to_string(),
            function: statistic.function.into(),
            arguments: arguments.collect::<Result<_, _>>()?,
            filter,
            data_type: DataType::BinaryView,
        };
        let form = StateForm::of(statistic.function);
        let (outcomes, keys) = (&self.outcomes, self.keys);
        let is_shown = |place| outcomes.iter().any(|o| o.column == keys + place && o.reading.is_none());
        let mut known = self.aggregates.iter_mut().enumerate();
        let shared = known.find_map(|(place, known)| {
            Some((place, share(known, is_shown(place), &wanted, &statistic.reading)?))
        });
        let (aggregate, reading) = shared.unwrap_or_else(|| {
            self.aggregates.push(wanted);
            (self.aggregates.len() - 1, statistic.reading)
        });
        // If the call returns the state itself (`sketch(…)`, `moments(…)`), no value is read from the state.
        let reading = (reading != Reading::State).then_some((form, reading));
        self.outcomes.push(Outcome { column: self.keys + aggregate, reading });
        Ok(())
    }
}

/// Extends the aggregate `known` so that its state also has the value for `wanted`, if possible, and returns the
/// reading of that value; otherwise returns `None`. If the state itself is a result of the query (`is_shown`), it is
/// not extended, because the result would change.
fn share(known: &mut Aggregate, is_shown: bool, wanted: &Aggregate, reading: &Reading) -> Option<Reading> {
    use AggregateFunction::State;
    use StateFunction::{Moments, Sketch};
    if known.filter != wanted.filter {
        return None;
    }
    if known.function == wanted.function && known.arguments == wanted.arguments {
        return Some(reading.clone());
    }
    match (known.function, wanted.function) {
        _ if *reading == Reading::State => None,
        (State(Sketch(ours)), State(Sketch(theirs))) if known.arguments == wanted.arguments => {
            let both = ours.and(&theirs).filter(|both| *both == ours || !is_shown)?;
            known.function = State(Sketch(both));
            Some(reading.clone())
        }
        (State(Moments(NullHandling::Listwise)), State(Moments(NullHandling::Listwise)))
            if known.arguments.iter().all(|known| wanted.arguments.contains(known)) =>
        {
            let place = |wanted: &Expr| known.arguments.iter().position(|known| known == wanted);
            let places = wanted.arguments.iter().map(place).collect::<Option<Vec<usize>>>()?;
            Some(reading.clone().moved(&places))
        }
        _ => None,
    }
}

fn argument(
    scope: &Scope<'_>,
    call: &Call,
    function: AggregateFunction,
    filtered: bool,
) -> Result<Option<Expr>, String> {
    let [argument] = call.params.args.as_slice() else {
        return if call.params.args.is_empty() && function.takes(0) {
            Ok(None)
        } else {
            Err("an aggregate of several arguments has no operator in the pool".to_string())
        };
    };
    let argument = match function.accumulation() {
        Accumulation::Count if never_null(argument) => return Ok(None),
        Accumulation::Sum | Accumulation::Mean => narrow(argument, scope),
        Accumulation::Count | Accumulation::Fold(_) | Accumulation::State(_) => argument,
    };
    decided(if filtered { scope.value_where(argument) } else { scope.value(argument) }).map(Some)
}

/// Removes the cast by which DataFusion widens the argument of a sum, because the pool's sums are exact without it.
fn narrow<'e>(argument: &'e Logical, scope: &Scope<'_>) -> &'e Logical {
    match argument {
        Logical::Cast(cast) if widens(&cast.expr, cast.field.data_type(), scope) => &cast.expr,
        argument => argument,
    }
}

/// Returns whether an argument is a constant other than NULL, so that COUNT of it counts all rows.
pub(crate) fn never_null(expr: &Logical) -> bool {
    matches!(expr, Logical::Literal(scalar, _) if !scalar.is_null() && *scalar != ScalarValue::Null)
}

/// Returns whether the cast is from an integer to a wider one of the same sign or to a 64-bit float, or between floats.
fn widens(inner: &Logical, to: &DataType, scope: &Scope<'_>) -> bool {
    let Ok(from) = inner.get_type(scope.input) else { return false };
    match to {
        DataType::Float64 => from.is_integer() || from == DataType::Float32,
        DataType::Int64 => from.is_signed_integer(),
        DataType::UInt64 => from.is_unsigned_integer(),
        _ => false,
    }
}

fn decided(expr: Expr) -> Result<Expr, String> {
    match expr.opaque_reason() {
        Some(reason) => Err(reason.to_string()),
        None => Ok(expr),
    }
}
