//! The compiled form of an aggregation: group keys, arguments, FILTER conditions and accumulators (running values
//! of the groups). Equal expressions and accumulators are stored once.
//!
//! A *way* is one of several implementations of aggregation (see [`super`]). The compiled form does not depend on the
//! way that is chosen for a row group; all ways read it.

use super::store::Store;
use crate::evaluate::Compiled;
use crate::group::{Groups, HashKey, Packing};
use crate::lanes::{LaneId, Lanes};
use crate::plan::Paths;
use crate::select::Filter;
use arrow_schema::{DataType, Schema, SchemaRef};
use farpool_columns::RowGroup;
use farpool_model::{Accumulation, Aggregate, Columns, Expr, Fold, NamedExpr, Result, StateFunction};
use farpool_statistics::States;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A compiled aggregation. `present` and `packing` depend on the table and say how groups and accumulators are stored.
/// They are the same for all workers and ways.
pub(crate) struct Aggregation {
    pub(super) keys: Vec<Key>,
    pub(super) key_types: Vec<DataType>,
    pub(super) arguments: Vec<Argument>,
    pub(super) conditions: Vec<Condition>,
    pub(super) accumulators: Vec<Accumulator>,
    pub(super) states: Vec<StateOf>,
    pub(super) results: Vec<AggregateResult>,
    pub(super) lanes: Lanes,
    /// Table columns that are read, sorted.
    pub(super) columns: Vec<usize>,
    pub(super) schema: SchemaRef,
    pub(super) paths: Paths,
    pub(super) hash_key: HashKey,
    /// For each accumulator, whether it is a row count that is only compared with 0, in a table in which every group
    /// is known to have rows. Such a count need not be computed. False for all accumulators if the table is not
    /// known.
    pub(super) present: Vec<bool>,
    /// Bit layout that packs all group keys of a row into one 64-bit word; `None` if they do not fit.
    pub(super) packing: Option<Arc<Packing>>,
}

/// A group key (an expression of GROUP BY).
#[derive(Debug)]
pub(crate) struct Key {
    pub(super) compiled: Compiled,
    pub(super) lane: Option<LaneId>,
}

/// Argument of an aggregate function.
#[derive(Debug)]
pub(crate) struct Argument {
    pub(super) compiled: Compiled,
    pub(super) lane: Option<LaneId>,
}

/// Condition of `FILTER (WHERE …)`.
#[derive(Debug)]
pub(crate) struct Condition {
    pub(super) compiled: Compiled,
    pub(super) filter: Filter,
}

/// A running value of each group, for example a sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Accumulator {
    pub(super) kind: Kind,
    /// Index of the argument; `None` for a count of rows and for a state.
    pub(super) argument: Option<usize>,
    pub(super) condition: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Count,
    Sum,
    Fold(Fold),
    /// State of a sketch or of moments: an index into [`Aggregation::states`].
    State(usize),
}

/// A sketch or moments, with their arguments.
#[derive(Debug)]
pub(crate) struct StateOf {
    pub(super) function: StateFunction,
    pub(super) arguments: Vec<usize>,
    pub(super) types: Vec<DataType>,
    /// States without groups, which are cloned to create an empty store.
    pub(super) empty: States,
}

/// Computation of the result of an aggregate function from accumulators.
#[derive(Debug)]
pub(crate) struct AggregateResult {
    pub(super) accumulation: Accumulation,
    /// Index of the accumulator that has the value.
    pub(super) value: usize,
    /// Index of the accumulator that counts the values that are not NULL: the result is NULL if this count is 0.
    pub(super) count: usize,
    pub(super) argument_type: DataType,
    pub(super) data_type: DataType,
    pub(super) name: String,
}

/// An aggregation under construction, with the expressions compiled so far, so that equal ones are compiled once.
struct Builder<'a> {
    known: Columns<'a>,
    schema: &'a Schema,
    arguments: Vec<(Expr, Argument)>,
    conditions: Vec<(Expr, Condition)>,
    accumulators: Vec<Accumulator>,
    states: Vec<StateOf>,
    lanes: Lanes,
}

impl Aggregation {
    /// Compiles an aggregation over `columns`; `schema` is that of the result.
    ///
    /// # Errors
    /// `Invalid` when an expression is not well typed or has an opaque part.
    pub(crate) fn new<'a>(
        keys: &[NamedExpr],
        aggregates: &[Aggregate],
        columns: impl Into<Columns<'a>>,
        schema: SchemaRef,
    ) -> Result<Self> {
        let known = columns.into();
        let mut builder = Builder {
            known,
            schema: known.schema(),
            arguments: Vec::new(),
            conditions: Vec::new(),
            accumulators: Vec::new(),
            states: Vec::new(),
            lanes: Lanes::default(),
        };
        let key = |k: &NamedExpr| {
            let lane = builder.lanes.add(&k.expr, known.schema());
            Ok(Key { compiled: Compiled::new(&k.expr, known)?, lane })
        };
        let keys: Vec<Key> = keys.iter().map(key).collect::<Result<_>>()?;
        let results = aggregates.iter().map(|a| builder.result(a)).collect::<Result<_>>()?;
        let arguments: Vec<Argument> = builder.arguments.into_iter().map(|(_, a)| a).collect();
        let conditions: Vec<Condition> = builder.conditions.into_iter().map(|(_, c)| c).collect();
        let mut columns = BTreeSet::new();
        keys.iter().for_each(|k| columns.extend(k.compiled.columns()));
        arguments.iter().for_each(|a| columns.extend(a.compiled.columns()));
        conditions.iter().for_each(|c| columns.extend(c.compiled.columns()));
        let key_types = keys.iter().map(|k| k.compiled.data_type().clone()).collect();
        Ok(Aggregation {
            keys,
            key_types,
            arguments,
            conditions,
            present: vec![false; builder.accumulators.len()],
            packing: None,
            accumulators: builder.accumulators,
            states: builder.states,
            results,
            lanes: builder.lanes,
            columns: columns.into_iter().collect(),
            schema,
            paths: Paths::ALL,
            hash_key: HashKey::default(),
        })
    }

    /// Allows only the fast paths `paths`, for tests and comparisons.
    pub(crate) fn with_paths(self, paths: Paths) -> Self {
        Aggregation { paths, ..self }
    }

    /// Sets the secret key of the hash function for groups.
    pub(crate) fn set_hash_key(&mut self, hash_key: HashKey) {
        self.hash_key = hash_key;
    }

    /// Creates an empty table of groups. Without group keys it has one group.
    pub(super) fn groups(&self) -> Groups {
        Groups::new(&self.key_types, self.packing.as_ref(), self.hash_key)
    }

    /// Returns whether the accumulator is a row count that is only compared with 0, and is known to be greater than 0
    /// for every group because the rows are those of `groups`.
    /// `intervals` are those of the lanes over these rows.
    pub(super) fn is_present(
        &self,
        accumulator: usize,
        groups: &[&RowGroup],
        intervals: &[Option<(i64, i64)>],
    ) -> bool {
        let counts = |r: &AggregateResult| r.count_shown() == Some(accumulator);
        let Accumulator { kind, argument, condition } = self.accumulators[accumulator];
        let never_null = |argument: usize| {
            let Argument { compiled, lane } = &self.arguments[argument];
            // A lane without an interval may be NULL where its columns are not: a part of a time beyond the calendar.
            (lane.is_some_and(|lane| intervals[lane].is_some()) || compiled.as_column().is_some())
                && compiled.columns().iter().all(|c| groups.iter().all(|g| g.chunks[*c].null_count() == 0))
        };
        kind == Kind::Count
            && condition.is_none()
            && argument.is_none_or(never_null)
            && !self.results.iter().any(counts)
    }

    /// Returns the sketch or moments of an accumulator; `None` for other kinds.
    pub(super) fn state_of(&self, accumulator: &Accumulator) -> Option<&StateOf> {
        match accumulator.kind {
            Kind::State(place) => self.states.get(place),
            Kind::Count | Kind::Sum | Kind::Fold(_) => None,
        }
    }

    pub(super) fn argument_type(&self, accumulator: &Accumulator) -> Option<&DataType> {
        accumulator.argument.map(|a| self.arguments[a].compiled.data_type())
    }

    /// Creates an empty store for each accumulator.
    pub(super) fn stores(&self) -> Vec<Store> {
        let store = |(a, present): (&Accumulator, &bool)| match (a.kind, self.argument_type(a)) {
            (Kind::State(place), _) => Store::States(self.states[place].empty.emptied()),
            (Kind::Count, _) if *present => Store::Present,
            (Kind::Count, _) | (Kind::Sum | Kind::Fold(_), None) => Store::counts(),
            (Kind::Sum, Some(argument)) => Store::sums(argument),
            (Kind::Fold(fold), Some(argument)) => Store::folds(fold, argument),
        };
        self.accumulators.iter().zip(&self.present).map(store).collect()
    }
}

impl AggregateResult {
    /// Returns the index of the accumulator whose count is a result or a divisor of one; `None` if the count is only
    /// compared with 0.
    pub(super) fn count_shown(&self) -> Option<usize> {
        match self.accumulation {
            Accumulation::Count => Some(self.value),
            Accumulation::Mean => Some(self.count),
            Accumulation::Sum | Accumulation::Fold(_) | Accumulation::State(_) => None,
        }
    }
}

impl Builder<'_> {
    fn result(&mut self, aggregate: &Aggregate) -> Result<AggregateResult> {
        let condition = aggregate.filter.as_ref().map(|f| self.condition(f)).transpose()?;
        let accumulation = aggregate.function.accumulation();
        let kind = match accumulation {
            Accumulation::Count => Kind::Count,
            Accumulation::Sum | Accumulation::Mean => Kind::Sum,
            Accumulation::Fold(fold) => Kind::Fold(fold),
            Accumulation::State(function) => return self.state(aggregate, function, condition),
        };
        let argument = match aggregate.arguments.first() {
            // `count(1)` equals `count(*)`.
            Some(Expr::Literal(l)) if !l.is_null() && kind == Kind::Count => None,
            Some(expr) => Some(self.argument(expr)?),
            None => None,
        };
        let count = self.accumulator(Kind::Count, argument, condition);
        let value = self.accumulator(kind, argument, condition);
        let argument_type = argument.map(|a| self.arguments[a].1.compiled.data_type().clone());
        Ok(AggregateResult {
            accumulation,
            value,
            count,
            argument_type: argument_type.unwrap_or(DataType::Int64),
            data_type: aggregate.data_type.clone(),
            name: aggregate.name.clone(),
        })
    }

    fn state(
        &mut self,
        aggregate: &Aggregate,
        function: StateFunction,
        condition: Option<usize>,
    ) -> Result<AggregateResult> {
        let arguments = aggregate.arguments.iter().map(|expr| self.argument(expr));
        let arguments = arguments.collect::<Result<Vec<usize>>>()?;
        let types = arguments.iter().map(|a| self.arguments[*a].1.compiled.data_type().clone());
        let types: Vec<DataType> = types.collect();
        let same = |known: &StateOf| known.function == function && known.arguments == arguments;
        let place = match self.states.iter().position(same) {
            Some(place) => place,
            None => {
                let empty = States::new(function, &types)?;
                self.states.push(StateOf { function, arguments, types, empty });
                self.states.len() - 1
            }
        };
        let value = self.accumulator(Kind::State(place), None, condition);
        Ok(AggregateResult {
            accumulation: Accumulation::State(function),
            value,
            count: value,
            argument_type: DataType::BinaryView,
            data_type: aggregate.data_type.clone(),
            name: aggregate.name.clone(),
        })
    }

    fn argument(&mut self, expr: &Expr) -> Result<usize> {
        if let Some(known) = self.arguments.iter().position(|(e, _)| e == expr) {
            return Ok(known);
        }
        let compiled = Compiled::new(expr, self.known)?;
        let lane = self.lanes.add(expr, self.schema);
        self.arguments.push((expr.clone(), Argument { compiled, lane }));
        Ok(self.arguments.len() - 1)
    }

    fn condition(&mut self, expr: &Expr) -> Result<usize> {
        if let Some(known) = self.conditions.iter().position(|(e, _)| e == expr) {
            return Ok(known);
        }
        let condition =
            Condition { compiled: Compiled::new(expr, self.known)?, filter: Filter::new(expr, self.known)? };
        self.conditions.push((expr.clone(), condition));
        Ok(self.conditions.len() - 1)
    }

    fn accumulator(&mut self, kind: Kind, argument: Option<usize>, condition: Option<usize>) -> usize {
        let wanted = Accumulator { kind, argument, condition };
        let known = self.accumulators.iter().position(|a| *a == wanted);
        known.unwrap_or_else(|| {
            self.accumulators.push(wanted);
            self.accumulators.len() - 1
        })
    }
}
