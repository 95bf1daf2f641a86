//! Composition of a pushed-down [`Program`] from a stack of relations over one table: joins with the results of other
//! programs, filters, projections, an aggregation, filters of its groups, a sort and a limit.
//!
//! The expressions of a relation refer to the columns of its input, and those of a program to columns of the table and of
//! its lookups. A [`Slot`] is a column of a relation with its expression over these; a plan decoder replaces each
//! reference to the column by a copy of that expression ([`Slot::copied`]).
//!
//! Invariant: the size of a copy is charged to a [`Budget`] before the copy is made. A plan of projections that each
//! double the one before is therefore refused instead of taking all memory.

use crate::{
    Aggregate, Error, Expr, Lookup, NamedExpr, Output, Program, Result, SortKey, TableName, Version, facts,
    limits,
};
use arrow_schema::{Field, Schema};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Limits the bytes of the expressions that are created for one program.
pub trait Budget {
    /// Charges `bytes`; called before expressions of this size are created.
    ///
    /// # Errors
    /// `OverLimit` if fewer bytes are left.
    fn charge(&self, bytes: usize) -> Result<()>;
}

/// A [`Budget`] for the expressions of one program: a number of bytes that decreases with each charge.
#[derive(Debug)]
pub struct Allowance(AtomicUsize);

impl Allowance {
    /// Creates a budget of `bytes`.
    pub fn new(bytes: usize) -> Self {
        Allowance(AtomicUsize::new(bytes))
    }
}

impl Default for Allowance {
    /// Returns the budget for one program: the limit for its expressions, and as much again for columns that
    /// projections pass on and a later one drops.
    fn default() -> Self {
        Allowance::new(limits::PLAN_EXPR_BYTES_MAX)
    }
}

impl Budget for Allowance {
    fn charge(&self, bytes: usize) -> Result<()> {
        let charged = self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes));
        charged.map(|_| ()).map_err(|_| {
            Error::over_limit(format!(
                "the expressions of a plan may take {} bytes, these take more",
                limits::EXPR_BYTES_MAX
            ))
            .advise("split the query, or use fewer and shorter constants")
        })
    }
}

/// A column of a relation: a name, and the expression over the table that computes it.
#[derive(Clone, Debug)]
pub struct Slot {
    name: String,
    expr: Expr,
    depth: usize,
    bytes: usize,
}

impl Slot {
    /// Creates a column from a name and an expression over the table.
    pub fn new(name: impl Into<String>, expr: Expr) -> Self {
        Slot { name: name.into(), depth: depth_of(&expr), bytes: expr.bytes(), expr }
    }

    /// Returns the column's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the column's expression over the table.
    pub fn expr(&self) -> &Expr {
        &self.expr
    }

    /// Returns the bytes of the column's expression, as charged to a [`Budget`].
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns a copy of the expression, which replaces a reference to the column at depth `depth` of another
    /// expression.
    ///
    /// # Errors
    /// `OverLimit` if the result would be nested too deeply, and errors of `budget`.
    pub fn copied(&self, depth: usize, budget: &impl Budget) -> Result<Expr> {
        check_depth(depth + self.depth)?;
        budget.charge(self.bytes)?;
        Ok(self.expr.clone())
    }

    fn named(self, name: Option<String>) -> NamedExpr {
        NamedExpr { name: name.unwrap_or(self.name), expr: self.expr }
    }
}

fn depth_of(expr: &Expr) -> usize {
    expr.children().into_iter().map(|child| 1 + depth_of(child)).max().unwrap_or(0)
}

/// Checks that an expression may have a node at depth `depth`.
///
/// # Errors
/// `OverLimit` if it may not.
pub fn check_depth(depth: usize) -> Result<()> {
    if depth > limits::EXPR_DEPTH_MAX { Err(facts::too_deep()) } else { Ok(()) }
}

/// Checks that a relation may have this number of columns.
///
/// # Errors
/// `OverLimit` if it may not.
pub fn check_width(columns: usize) -> Result<()> {
    let most = limits::PLAN_COLUMNS_MAX;
    if columns <= most {
        return Ok(());
    }
    Err(Error::over_limit(format!("a relation may have {most} columns")))
}

/// The reason why a relation, at its position in the stack, cannot be part of a program, which has a fixed order of
/// operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// A filter above a sort or a limit.
    FilterAfterCut,
    /// A projection that leaves out an aggregate that groups are filtered by.
    DropsFiltered,
    /// A join above an aggregation, a sort or a limit.
    JoinAfterOther,
    /// A projection that computes with aggregates.
    ComputesWithAggregates,
    /// A projection above an aggregation that mixes group keys and aggregates, or leaves out group keys.
    ReordersKeys,
    /// A projection that leaves out a column that rows are sorted by.
    DropsSortKey,
    /// An aggregation above a sort or a limit.
    AggregationAfterCut,
    /// An aggregation above another.
    AggregationOfAggregates,
    /// A sort above another sort or a limit.
    SortAfterCut,
    /// A sort by an expression that is not a column of the sort's input.
    SortByOther,
    /// A sort without limit. A program determines which rows are returned and not their order.
    SortWithoutLimit,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::FilterAfterCut => "a filter after a sort or a limit",
            Refusal::DropsFiltered => "leaving out an aggregate that groups are filtered by (HAVING)",
            Refusal::JoinAfterOther => {
                "a join after an aggregation, a sort or a limit on the side that is scanned"
            }
            Refusal::ComputesWithAggregates => "computing with aggregates",
            Refusal::ReordersKeys => "another order of columns than keys, then aggregates,",
            Refusal::DropsSortKey => "leaving out a column that rows are sorted by",
            Refusal::AggregationAfterCut => "an aggregation after a sort or a limit",
            Refusal::AggregationOfAggregates => "an aggregation of aggregates",
            Refusal::SortAfterCut => "a sort after another or after a limit",
            Refusal::SortByOther => "a sort by something that is no column of the result",
            Refusal::SortWithoutLimit => "a sort without a limit",
        })
    }
}

impl Refusal {
    /// Returns the error to report to the sender of the plan.
    pub fn into_error(self) -> Error {
        not_done(self)
    }
}

/// Conversion of a refusal into the error type of the code that composes a program. (An `impl From<Refusal>
/// for Error` would make the error type that the compiler infers for `?` ambiguous.)
pub trait FromRefusal {
    /// Converts `refusal`.
    fn from_refusal(refusal: Refusal) -> Self;
}

impl FromRefusal for Error {
    fn from_refusal(refusal: Refusal) -> Self {
        refusal.into_error()
    }
}

/// Returns the error for a construct of a plan that no program can express.
pub fn not_done(what: impl fmt::Display) -> Error {
    Error::invalid(format!("{what} is not done at the memory node")).advise(
        "send the part of the plan that scans one table: joins with other tables by equal columns, filter, project, \
         aggregate, sort with a limit",
    )
}

/// A stack of relations. The lowest is the table; the top is the one added last.
#[derive(Clone, Debug)]
pub struct Stack {
    lookups: Vec<Lookup>,
    filters: Vec<Expr>,
    top: Top,
    /// Conditions on the groups of an aggregation, over its columns.
    having: Vec<Expr>,
    order: Vec<SortKey>,
    limit: Option<u64>,
}

/// The output of the top relation.
#[derive(Clone, Debug)]
enum Top {
    Rows(Vec<Slot>),
    Aggregate { keys: Vec<Slot>, aggregates: Vec<Aggregate> },
}

impl Stack {
    /// Creates a stack of a table alone. `columns` are the columns of the table that are used.
    pub fn scan(columns: Vec<Slot>) -> Self {
        Stack {
            lookups: Vec::new(),
            filters: Vec::new(),
            top: Top::Rows(columns),
            having: Vec::new(),
            order: Vec::new(),
            limit: None,
        }
    }

    /// Adds a join with the result of a program. `lookup` gets the columns of the input, and returns the lookup with the
    /// columns that replace them: those of the input, and what the lookup adds.
    ///
    /// A filter that was added before may be evaluated behind the lookup, on the rows that it gives. It must therefore
    /// be on columns that are there before the lookup, which keep their values.
    ///
    /// # Errors
    /// A [`Refusal`], or errors of `lookup`.
    pub fn join<E: FromRefusal>(
        &mut self,
        lookup: impl FnOnce(&[Slot]) -> Result<(Lookup, Vec<Slot>), E>,
    ) -> Result<(), E> {
        let columns = self.columns().filter(|_| !self.is_cut());
        let (lookup, columns) = lookup(columns.ok_or_else(|| E::from_refusal(Refusal::JoinAfterOther))?)?;
        self.lookups.push(lookup);
        self.top = Top::Rows(columns);
        Ok(())
    }

    /// Returns the number of columns of the top relation.
    pub fn width(&self) -> usize {
        match &self.top {
            Top::Rows(columns) => columns.len(),
            Top::Aggregate { keys, aggregates } => keys.len() + aggregates.len(),
        }
    }

    /// Returns the filters that were added so far.
    pub fn filters(&self) -> &[Expr] {
        &self.filters
    }

    /// Gives the columns of the top relation these names, of which there must be as many as columns.
    pub fn rename(&mut self, names: Vec<String>) {
        match &mut self.top {
            Top::Rows(columns) => columns.iter_mut().zip(names).for_each(|(slot, name)| slot.name = name),
            Top::Aggregate { keys, aggregates } => {
                let of_keys = keys.iter_mut().map(|slot| &mut slot.name);
                let of_aggregates = aggregates.iter_mut().map(|aggregate| &mut aggregate.name);
                of_keys.chain(of_aggregates).zip(names).for_each(|(old, name)| *old = name);
            }
        }
    }

    /// Returns the columns of the top relation; `None` above an aggregation.
    pub fn columns(&self) -> Option<&[Slot]> {
        match &self.top {
            Top::Rows(columns) => Some(columns),
            Top::Aggregate { .. } => None,
        }
    }

    /// Returns whether the stack has a limit, or a sort with a limit. A filter, an aggregation or a sort above it is
    /// then refused, because a program applies its limit last.
    pub fn is_cut(&self) -> bool {
        self.limit.is_some() || !self.order.is_empty()
    }

    /// Returns the index of the column that has this expression over the table; `None` if there is none.
    pub fn place_of(&self, expr: &Expr) -> Option<usize> {
        self.columns()?.iter().position(|slot| slot.expr == *expr)
    }

    /// Adds a filter. `condition` gets the columns of the input and returns the filter expression over the table; or, above
    /// an aggregation, over its columns.
    ///
    /// # Errors
    /// A [`Refusal`], or errors of `condition`.
    pub fn filter<E: FromRefusal>(
        &mut self,
        condition: impl FnOnce(&[Slot]) -> Result<Expr, E>,
    ) -> Result<(), E> {
        if self.is_cut() {
            return Err(E::from_refusal(Refusal::FilterAfterCut));
        }
        match &self.top {
            Top::Rows(columns) => self.filters.push(condition(columns)?),
            Top::Aggregate { keys, aggregates } => {
                let names = keys.iter().map(Slot::name).chain(aggregates.iter().map(|a| a.name.as_str()));
                let column = |(place, name): (usize, &str)| Slot::new(name, Expr::Column(place));
                let columns: Vec<Slot> = names.enumerate().map(column).collect();
                self.having.push(condition(&columns)?);
            }
        }
        Ok(())
    }

    /// Returns whether the top relation is an aggregation of which a part is opaque, so that the types of its columns are not
    /// known.
    pub fn has_opaque_groups(&self) -> bool {
        let Top::Aggregate { keys, aggregates } = &self.top else { return false };
        let of_keys = keys.iter().map(Slot::expr);
        of_keys
            .chain(aggregates.iter().flat_map(Aggregate::inputs))
            .any(|expr| expr.opaque_reason().is_some())
    }

    /// Returns the schema of the groups of an aggregation over rows with the schema `rows`; `None` if there is none. Charges
    /// the bytes of the expressions to `budget`, because each filter of groups looks at them.
    ///
    /// # Errors
    /// `Invalid` or `OverLimit` if a group key or an aggregate is not well typed; errors of `budget`.
    pub fn groups_schema(&self, rows: &Schema, budget: &impl Budget) -> Result<Option<Schema>> {
        let Top::Aggregate { keys, aggregates } = &self.top else { return Ok(None) };
        let bytes = keys.iter().map(Slot::bytes).chain(aggregates.iter().map(aggregate_bytes));
        budget.charge(bytes.sum())?;
        let key = |key: &Slot| Ok(Field::new(&key.name, key.expr.data_type(rows)?, true));
        let fields = keys.iter().map(key).chain(aggregates.iter().map(|aggregate| aggregate.field(rows)));
        Ok(Some(Schema::new(fields.collect::<Result<Vec<Field>>>()?)))
    }

    /// Adds a join that drops rows without a match ([`crate::LookupKind::Semi`]), below an aggregation if there is one: it must
    /// then drop only whole groups.
    ///
    /// # Errors
    /// A [`Refusal`].
    pub fn drop_unmatched(&mut self, lookup: Lookup) -> Result<(), Refusal> {
        if self.is_cut() {
            return Err(Refusal::JoinAfterOther);
        }
        self.lookups.push(lookup);
        Ok(())
    }

    /// Returns the column of the rows behind the lookups that the top relation's column at `place` is; `None` if that is
    /// computed or an aggregate.
    pub fn row_column(&self, place: usize) -> Option<usize> {
        let columns = match &self.top {
            Top::Rows(columns) => columns,
            Top::Aggregate { keys, .. } => keys,
        };
        columns.get(place)?.expr.as_column()
    }

    /// Adds a projection that returns the columns of its input, followed by the columns that `made` returns.
    ///
    /// # Errors
    /// A [`Refusal`], or errors of `made`.
    pub fn append<E: FromRefusal>(
        &mut self,
        made: impl FnOnce(&[Slot]) -> Result<Vec<Slot>, E>,
    ) -> Result<(), E> {
        let Top::Rows(columns) = &mut self.top else {
            return Err(E::from_refusal(Refusal::ComputesWithAggregates));
        };
        let made = made(columns)?;
        columns.extend(made);
        Ok(())
    }

    /// Adds a projection that returns the columns of its input at the indexes `places`, in this order. All of them must
    /// be below [`Stack::width`].
    ///
    /// # Errors
    /// A [`Refusal`]; `OverLimit` for too many columns; errors of `budget`.
    pub fn select(&mut self, places: &[usize], budget: &impl Budget) -> Result<()> {
        check_width(places.len())?;
        let order = self.order.iter().map(|key| self.moved(key, places)).collect::<Result<_, Refusal>>();
        self.order = order.map_err(Refusal::into_error)?;
        match &mut self.top {
            Top::Rows(columns) => {
                budget.charge(places.iter().map(|place| columns[*place].bytes).sum())?;
                *columns = places.iter().map(|place| columns[*place].clone()).collect();
            }
            Top::Aggregate { keys, aggregates } => {
                let (first, rest) = places.split_at(places.len().min(keys.len()));
                let mut sorted = first.to_vec();
                sorted.sort_unstable();
                if !sorted.iter().copied().eq(0..keys.len()) || rest.iter().any(|place| *place < keys.len()) {
                    return Err(Refusal::ReordersKeys.into_error());
                }
                let having = self.having.iter().map(Expr::bytes).sum::<usize>();
                let of_keys = keys.iter().map(Slot::bytes).sum::<usize>();
                let of = |place: &usize| &aggregates[place - keys.len()];
                let of_aggregates = rest.iter().map(|place| aggregate_bytes(of(place))).sum::<usize>();
                budget.charge(having + of_keys + of_aggregates)?;
                let mut new: HashMap<usize, usize> = HashMap::new();
                for (place, column) in places.iter().enumerate() {
                    new.entry(*column).or_insert(place);
                }
                let mut filtered = BTreeSet::new();
                self.having.iter().for_each(|condition| condition.collect_columns(&mut filtered));
                if !filtered.iter().all(|column| new.contains_key(column)) {
                    return Err(Refusal::DropsFiltered.into_error());
                }
                self.having.iter_mut().for_each(|condition| condition.renumber(&|column| new[&column]));
                let chosen = rest.iter().map(|place| of(place).clone()).collect();
                *keys = first.iter().map(|place| keys[*place].clone()).collect();
                *aggregates = chosen;
            }
        }
        Ok(())
    }

    /// Returns the sort key after a projection to the columns at the indexes `places`. A column with the same
    /// expression may replace the column of the key, because some projections return the columns of their input twice
    /// and the originals are dropped later.
    fn moved(&self, key: &SortKey, places: &[usize]) -> Result<SortKey, Refusal> {
        let same = |place: usize| match &self.top {
            Top::Rows(columns) => columns[place].expr == columns[key.column].expr,
            Top::Aggregate { .. } => false,
        };
        let column = places.iter().position(|place| *place == key.column || same(*place));
        Ok(SortKey { column: column.ok_or(Refusal::DropsSortKey)?, ..*key })
    }

    /// Adds an aggregation. `made` gets the columns of the input and returns the group keys and the aggregates over the
    /// table.
    ///
    /// # Errors
    /// A [`Refusal`], or errors of `made`.
    pub fn aggregate<E: FromRefusal>(
        &mut self,
        made: impl FnOnce(&[Slot]) -> Result<(Vec<Slot>, Vec<Aggregate>), E>,
    ) -> Result<(), E> {
        if self.is_cut() {
            return Err(E::from_refusal(Refusal::AggregationAfterCut));
        }
        let columns = self.columns().ok_or_else(|| E::from_refusal(Refusal::AggregationOfAggregates))?;
        let (keys, aggregates) = made(columns)?;
        self.top = Top::Aggregate { keys, aggregates };
        Ok(())
    }

    /// Adds a sort. `keys` returns the sort keys, which refer to columns of the input.
    ///
    /// # Errors
    /// A [`Refusal`], or errors of `keys`.
    pub fn sort<E: FromRefusal>(
        &mut self,
        keys: impl FnOnce(&Self) -> Result<Vec<SortKey>, E>,
    ) -> Result<(), E> {
        if self.is_cut() {
            return Err(E::from_refusal(Refusal::SortAfterCut));
        }
        self.order = keys(self)?;
        Ok(())
    }

    /// Adds a limit of `rows` rows.
    pub fn fetch(&mut self, rows: u64) {
        self.limit = Some(self.limit.map_or(rows, |limit| limit.min(rows)));
    }

    /// Returns the program. Its columns get the names `names`; without `names` they keep those of the relations.
    ///
    /// # Errors
    /// A [`Refusal`]; `Invalid` if there are not as many names as columns.
    pub fn program(
        self,
        table: TableName,
        version: Option<Version>,
        names: Option<Vec<String>>,
    ) -> Result<Program> {
        if let Some(names) = names.as_ref().filter(|names| names.len() != self.width()) {
            let (width, named) = (self.width(), names.len());
            return Err(Error::invalid(format!("the plan has {width} columns, but {named} names for them")));
        }
        if !self.order.is_empty() && self.limit.is_none() {
            return Err(Refusal::SortWithoutLimit.into_error());
        }
        let mut names = names.into_iter().flatten();
        let output = match self.top {
            Top::Rows(columns) => {
                Output::Rows(columns.into_iter().map(|slot| slot.named(names.next())).collect())
            }
            Top::Aggregate { keys, aggregates } => {
                let keys = keys.into_iter().map(|slot| slot.named(names.next())).collect();
                let named = |aggregate: Aggregate| {
                    let name = names.next().unwrap_or(aggregate.name);
                    Aggregate { name, ..aggregate }
                };
                Output::Aggregate { keys, aggregates: aggregates.into_iter().map(named).collect() }
            }
        };
        let filter = Expr::all(self.filters);
        Ok(Program {
            table,
            version,
            lookups: self.lookups,
            filter,
            output,
            having: Expr::all(self.having),
            order: self.order,
            limit: self.limit,
        })
    }
}

fn aggregate_bytes(aggregate: &Aggregate) -> usize {
    limits::EXPR_NODE_BYTES + aggregate.inputs().map(Expr::bytes).sum::<usize>()
}

#[cfg(test)]
mod tests;
