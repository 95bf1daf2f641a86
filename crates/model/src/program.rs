//! Pushed-down programs: the operator pipeline over one table that a client asks a memory node to run, as plain data
//! (Korolija et al., *Farview*, CIDR 2022, section 5).
//!
//! A program reads one table and then applies, in this order, a filter, a projection or an aggregation, a condition on
//! groups (HAVING), and a limit. With a sort order, the limit keeps the first rows in that order. Expressions refer to
//! columns of the table throughout; only the condition on groups and the sort order refer to columns of the result.
//! Everything that a program does not specify (which bytes are read, in which order, by how many workers) is decided by
//! the node.

use crate::{
    Aggregate, Error, Expr, Lookup, Result, SortKey, TableName, Version, brief, cast, facts, limits, order,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

/// A scan of one table, with the operators that are applied to its rows before they leave the node.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// The table to read.
    pub table: TableName,
    /// The table version to read; `None` reads the newest one when the program starts.
    pub version: Option<Version>,
    /// Joins of the table's rows with the results of other programs, in this order. All other expressions of the program
    /// are over the rows behind them: the columns of the table come first, so that `Expr::Column` means the same column
    /// of the table as without lookups, and then what each lookup adds.
    pub lookups: Vec<Lookup>,
    /// A boolean expression; only rows for which it is true pass. `None` lets all rows pass.
    pub filter: Option<Expr>,
    /// Output that is computed from the rows that pass.
    pub output: Output,
    /// A boolean expression over the columns of the result of an aggregation; only groups for which it is true are
    /// returned. `None` returns all. Not allowed if [`Program::output`] is a projection.
    pub having: Option<Expr>,
    /// The sort order that decides which rows the limit keeps; allowed only with a limit. The returned rows are not
    /// sorted.
    pub order: Vec<SortKey>,
    /// Maximum number of returned rows: the first ones in `order`, or any rows if `order` is empty.
    pub limit: Option<u64>,
}

/// Output that is computed from the rows that pass the filter.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// A projection: one result row per input row. The list of columns may be empty if only the number of rows matters.
    Rows(Vec<NamedExpr>),
    /// An aggregation (GROUP BY): one result row per distinct combination of the group keys, where NULL is a value like
    /// any other. Without group keys exactly one row, even from no input. Without aggregates this is DISTINCT.
    Aggregate {
        /// The group keys. Their columns come first in the result.
        keys: Vec<NamedExpr>,
        /// The aggregates. Their columns follow those of the group keys.
        aggregates: Vec<Aggregate>,
    },
}

/// An expression and the name of the result column that it computes.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedExpr {
    /// The result column's name.
    pub name: String,
    /// The expression that computes the column's values.
    pub expr: Expr,
}

impl Output {
    /// Returns the number of columns.
    pub fn width(&self) -> usize {
        match self {
            Output::Rows(columns) => columns.len(),
            Output::Aggregate { keys, aggregates } => keys.len() + aggregates.len(),
        }
    }

    /// Returns every expression of the output.
    pub fn expressions(&self) -> Vec<&Expr> {
        match self {
            Output::Rows(columns) => columns.iter().map(|c| &c.expr).collect(),
            Output::Aggregate { keys, aggregates } => {
                let arguments = aggregates.iter().flat_map(|a| a.inputs());
                keys.iter().map(|k| &k.expr).chain(arguments).collect()
            }
        }
    }

    /// Returns the schema of the output over rows with the schema `table_schema`.
    ///
    /// # Errors
    /// `Invalid` or `OverLimit` if an expression is not well typed, there are too many columns, or none of an aggregation.
    pub fn schema(&self, table_schema: &Schema) -> Result<Schema> {
        let named = |e: &NamedExpr| e.field(table_schema);
        let fields = match self {
            Output::Rows(columns) => columns.iter().map(named).collect::<Result<Vec<_>>>()?,
            Output::Aggregate { keys, aggregates } => {
                if keys.is_empty() && aggregates.is_empty() {
                    return Err(Error::invalid("an aggregation needs a key or an aggregate"));
                }
                let aggregates = aggregates.iter().map(|a| a.field(table_schema));
                keys.iter().map(named).chain(aggregates).collect::<Result<Vec<_>>>()?
            }
        };
        if fields.len() > limits::COLUMNS_MAX {
            return Err(Error::over_limit(format!("a result may have {} columns", limits::COLUMNS_MAX)));
        }
        Ok(Schema::new(fields))
    }

    /// Shows the beginning of the column of the output at `place` as SQL; `table_schema` has the columns that its expressions
    /// are over.
    pub fn column_shown(&self, place: usize, table_schema: &Schema) -> String {
        let of_rows = |columns: &[NamedExpr]| Some(brief(columns.get(place)?.expr.display(table_schema)));
        let shown = match self {
            Output::Rows(columns) => of_rows(columns),
            Output::Aggregate { keys, aggregates } => of_rows(keys).or_else(|| {
                Some(brief(aggregates.get(place.checked_sub(keys.len())?)?.display(table_schema)))
            }),
        };
        shown.unwrap_or_else(|| format!("column {place}"))
    }

    /// Shows an expression over the columns of the output as SQL, with the beginning of each column.
    pub fn shown(&self, expr: &Expr, table_schema: &Schema) -> impl fmt::Display {
        let mut columns = BTreeSet::new();
        expr.collect_columns(&mut columns);
        let field = |place: usize| {
            let name = columns.contains(&place).then(|| self.column_shown(place, table_schema));
            // Only the names of columns are shown.
            Field::new(name.unwrap_or_default(), DataType::Null, true)
        };
        let named = Schema::new((0..self.width()).map(field).collect::<Vec<Field>>());
        fmt::from_fn(move |f| write!(f, "{}", expr.display(&named)))
    }
}

impl NamedExpr {
    /// Returns the expression that selects the column at `index`, under the column's name.
    pub fn column(schema: &Schema, index: usize) -> Self {
        NamedExpr { name: schema.field(index).name().clone(), expr: Expr::Column(index) }
    }

    /// Returns the field of the result column that this expression computes over a table with `table_schema`.
    ///
    /// # Errors
    /// `Invalid` or `OverLimit` if the expression is not well typed.
    pub fn field(&self, table_schema: &Schema) -> Result<Field> {
        let data_type = self.expr.data_type(table_schema).map_err(|error| error.at(brief(&self.name)))?;
        Ok(Field::new(&self.name, data_type, true))
    }
}

impl Program {
    /// Creates a program that returns all rows of the columns at the indexes `columns`, with no other operator.
    pub fn scan(table: TableName, schema: &Schema, columns: &[usize]) -> Self {
        let rows = columns.iter().map(|&index| NamedExpr::column(schema, index)).collect();
        Program {
            table,
            version: None,
            lookups: Vec::new(),
            filter: None,
            output: Output::Rows(rows),
            having: None,
            order: Vec::new(),
            limit: None,
        }
    }

    /// Returns every expression of the program over its rows, which are all but the condition on groups.
    pub fn expressions(&self) -> Vec<&Expr> {
        self.filter.iter().chain(self.output.expressions()).collect()
    }

    /// Returns the program with `new` of the index of each column that its filter and its output read. Its lookups stay
    /// as they are.
    #[must_use]
    pub fn renumbered(mut self, new: &impl Fn(usize) -> usize) -> Program {
        self.filter.iter_mut().for_each(|filter| filter.renumber(new));
        let keys = match &mut self.output {
            Output::Rows(columns) => columns,
            Output::Aggregate { keys, aggregates } => {
                for aggregate in aggregates {
                    aggregate
                        .arguments
                        .iter_mut()
                        .chain(&mut aggregate.filter)
                        .for_each(|expr| expr.renumber(new));
                }
                keys
            }
        };
        keys.iter_mut().for_each(|key| key.expr.renumber(new));
        self
    }

    /// Returns the indexes of the columns that the program reads: its smart addressing (Korolija et al., *Farview*,
    /// CIDR 2022, section 5.2).
    pub fn columns(&self) -> BTreeSet<usize> {
        let mut columns = BTreeSet::new();
        self.expressions().into_iter().for_each(|expr| expr.collect_columns(&mut columns));
        columns
    }

    /// Returns the schema of the result over a table with the canonical schema `table_schema`. Checks the whole
    /// program: after `Ok` every expression is well typed and within the limits.
    ///
    /// # Errors
    /// `Invalid` or `OverLimit`, naming the part that is wrong.
    pub fn result_schema(&self, table_schema: &Schema) -> Result<SchemaRef> {
        self.check_size()?;
        self.check_filter(table_schema)?;
        let schema = self.output.schema(table_schema)?;
        self.check_having(&schema)?;
        self.check_order()?;
        Ok(Arc::new(schema))
    }

    /// Checks the depth and size of all expressions, and returns their bytes; see the function [`check_size`].
    ///
    /// # Errors
    /// `OverLimit`, naming the part that is too large.
    pub fn check_size(&self) -> Result<usize> {
        check_size(self.expressions().into_iter().chain(&self.having))
    }

    /// Checks the filter, and nothing else of the program.
    ///
    /// # Errors
    /// `Invalid` or `OverLimit`, naming the problem.
    pub fn check_filter(&self, table_schema: &Schema) -> Result<()> {
        self.filter.as_ref().map_or(Ok(()), |filter| require_boolean("filter", filter, table_schema))
    }

    /// Checks the condition on groups, and nothing else of the program. `result` is the schema of the result.
    ///
    /// # Errors
    /// `Invalid` or `OverLimit`, naming the problem.
    pub fn check_having(&self, result: &Schema) -> Result<()> {
        match (&self.having, &self.output) {
            (None, _) => Ok(()),
            (Some(having), Output::Aggregate { .. }) => {
                require_boolean("condition on groups", having, result)
            }
            (Some(_), Output::Rows(_)) => Err(Error::invalid("a condition on groups needs an aggregation")),
        }
    }

    /// Checks the sort order, and nothing else of the program.
    ///
    /// # Errors
    /// `Invalid` if there is no limit or a sort key refers to no column of the result; `OverLimit` if there are too
    /// many sort keys.
    pub fn check_order(&self) -> Result<()> {
        order::check(&self.order, self.limit, self.output.width())
    }

    /// Returns whether the program has a sort order and a limit above [`limits::TOP_ROWS_MAX`], so that a node refuses
    /// to sort.
    pub fn top_is_too_large(&self) -> bool {
        !self.order.is_empty() && self.limit.is_some_and(|limit| limit > cast::u64_from(limits::TOP_ROWS_MAX))
    }
}

/// Checks the depth and size of the expressions of a program. Does not recurse, so that deep expressions from a peer
/// cannot overflow the stack here or in later passes, which do. Returns the bytes of the expressions, including those
/// of compiled patterns.
///
/// # Errors
/// `OverLimit`, naming what is too large.
pub fn check_size<'a>(expressions: impl IntoIterator<Item = &'a Expr>) -> Result<usize> {
    let (mut bytes, mut patterns) = (0, HashMap::new());
    let mut open: Vec<(&Expr, usize)> = expressions.into_iter().map(|e| (e, 0)).collect();
    while let Some((expr, depth)) = open.pop() {
        bytes += expr.own_bytes();
        patterns.extend(expr.pattern().map(|p| ((p.as_str(), p.is_case_insensitive()), p.bytes())));
        if depth > limits::EXPR_DEPTH_MAX {
            return Err(facts::too_deep());
        }
        check_bytes("expressions", bytes, limits::EXPR_BYTES_MAX)?;
        open.extend(expr.children().into_iter().map(|child| (child, depth + 1)));
    }
    let compiled = patterns.into_values().sum();
    check_bytes("compiled patterns", compiled, limits::PATTERNS_BYTES_MAX)?;
    Ok(bytes + compiled)
}

/// Checks that `expr` is a boolean expression over a table with `table_schema`; `what` names it in errors.
///
/// # Errors
/// `Invalid` or `OverLimit` if it is not.
pub fn require_boolean(what: &str, expr: &Expr, table_schema: &Schema) -> Result<()> {
    match expr.data_type(table_schema)? {
        DataType::Boolean => Ok(()),
        other => Err(Error::invalid(format!("a {what} must be boolean, {} has type {other}", brief(expr)))),
    }
}

fn check_bytes(what: &str, bytes: usize, most: usize) -> Result<()> {
    if bytes <= most {
        return Ok(());
    }
    Err(Error::over_limit(format!("the {what} of a program may take {most} bytes, these take more"))
        .advise("split the query, or use fewer and shorter constants"))
}
