//! The operator pipeline that a client asks a memory node to run, as plain data (Farview, section 5).
//!
//! A program reads one table and does, in this order: filter, then compute rows or aggregates, then limit,
//! with an order the first rows of it. Expressions name columns of the table throughout; only the order
//! names columns of the result. Everything that a program does not say (which bytes
//! are read, in which order, by how many workers) is the node's choice.

use crate::{
    Error, Expr, NullHandling, Result, SketchParameters, SortKey, TableName, Version, brief, cast, facts,
    limits, order, schema,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

/// One scan of one table and what is done on the way out.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// The table.
    pub table: TableName,
    /// The version to read, or the newest one when the program starts.
    pub version: Option<Version>,
    /// Rows for which this boolean is true go on; `None` lets all pass.
    pub filter: Option<Expr>,
    /// What is made of the rows that pass.
    pub output: Output,
    /// Which rows come first; only with a limit. It says which rows leave, not in which order they do.
    pub order: Vec<SortKey>,
    /// At most this many rows leave: the first in the order; without one it is not defined which.
    pub limit: Option<u64>,
}

/// What is made of the rows that pass the filter.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// One row out for each row in. No columns is allowed: then only the number of rows matters.
    Rows(Vec<NamedExpr>),
    /// One row out for each distinct combination of the keys, NULL being a value like any other; without
    /// keys exactly one row, even from no input. Without aggregates this is DISTINCT.
    Aggregate {
        /// The grouping keys; they come first in the result.
        keys: Vec<NamedExpr>,
        /// The aggregates, after the keys.
        aggregates: Vec<Aggregate>,
    },
}

/// An expression and the name of the result column it makes.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedExpr {
    /// The result column's name.
    pub name: String,
    /// Its value.
    pub expr: Expr,
}

/// An aggregate and the name of the result column it makes.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregate {
    /// The result column's name.
    pub name: String,
    /// Which aggregate.
    pub function: AggregateFunction,
    /// What it is computed of; nothing for `COUNT(*)`.
    pub arguments: Vec<Expr>,
    /// Only rows for which this boolean is true count: `FILTER (WHERE …)`.
    pub filter: Option<Expr>,
    /// The type of the result; one that [`AggregateFunction::accepts`].
    pub data_type: DataType,
}

/// An aggregate function. All ignore NULL arguments. Those of values give NULL when nothing is left, but COUNT
/// gives 0; those of states never give NULL. A state is exact: it is what the whole input gives, however that
/// is divided. What is then read from it may be an estimate, with its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AggregateFunction {
    /// The number of rows, or of non-NULL arguments; 64-bit, signed.
    Count,
    /// The sum. Integers are summed exactly and must fit the result type at the end, or the program fails;
    /// likewise decimals, whose scale is kept. Floats are summed in no defined order.
    Sum,
    /// The least value (in the order of [`crate::Literal::compare`], except that NaN is greatest whatever
    /// its sign).
    Min,
    /// The greatest value, in the same order.
    Max,
    /// The mean: the exact sum of integers divided as floats; of decimals divided into the result type,
    /// truncated as Arrow's engines do; of floats the sum divided by the count.
    Avg,
    /// The state of sketches of one argument of any type, encoded (`docs/wire.md`).
    Sketch(SketchParameters),
    /// The state of the moments of one or more numeric arguments together, encoded.
    Moments(NullHandling),
}

impl AggregateFunction {
    /// As SQL writes it.
    pub fn name(self) -> &'static str {
        match self {
            AggregateFunction::Count => "count",
            AggregateFunction::Sum => "sum",
            AggregateFunction::Min => "min",
            AggregateFunction::Max => "max",
            AggregateFunction::Avg => "avg",
            AggregateFunction::Sketch(_) => "sketch",
            AggregateFunction::Moments(_) => "moments",
        }
    }

    /// Whether its result is the encoded state of a statistic.
    pub fn is_state(self) -> bool {
        matches!(self, AggregateFunction::Sketch(_) | AggregateFunction::Moments(_))
    }

    /// Whether the function of `arguments` (none: `COUNT(*)`) can give `result`.
    pub fn accepts(self, arguments: &[DataType], result: &DataType) -> bool {
        if let AggregateFunction::Moments(_) = self {
            return !arguments.is_empty()
                && arguments.iter().all(schema::is_numeric)
                && *result == DataType::BinaryView;
        }
        match arguments {
            [] => self == AggregateFunction::Count && *result == DataType::Int64,
            [argument] => self.accepts_one(argument, result),
            _ => false,
        }
    }

    fn accepts_one(self, argument: &DataType, result: &DataType) -> bool {
        use DataType::*;
        match self {
            AggregateFunction::Count => *result == Int64,
            AggregateFunction::Sketch(_) => *result == BinaryView,
            AggregateFunction::Moments(_) => false,
            AggregateFunction::Min | AggregateFunction::Max => argument == result,
            AggregateFunction::Sum => match argument {
                t if t.is_signed_integer() => *result == Int64 || matches!(result, Decimal128(_, 0)),
                t if t.is_unsigned_integer() => *result == UInt64 || matches!(result, Decimal128(_, 0)),
                Float32 | Float64 => *result == Float64,
                Decimal128(_, s) => matches!(result, Decimal128(_, rs) if rs == s),
                _ => false,
            },
            AggregateFunction::Avg => match argument {
                t if t.is_integer() => *result == Float64,
                Float32 | Float64 => *result == Float64,
                Decimal128(_, s) => matches!(result, Decimal128(_, rs) if rs >= s),
                _ => false,
            },
        }
    }
}

impl NamedExpr {
    /// The column at `index` under its own name.
    pub fn column(schema: &Schema, index: usize) -> Self {
        NamedExpr { name: schema.field(index).name().clone(), expr: Expr::Column(index) }
    }

    /// The column that it makes of a table with `table_schema`.
    ///
    /// # Errors
    /// `Invalid` or `OverLimit` when the expression is not well typed.
    pub fn field(&self, table_schema: &Schema) -> Result<Field> {
        let data_type = self.expr.data_type(table_schema).map_err(|error| error.at(brief(&self.name)))?;
        Ok(Field::new(&self.name, data_type, true))
    }
}

impl Program {
    /// All rows of the columns at `columns`, nothing pushed down.
    pub fn scan(table: TableName, schema: &Schema, columns: &[usize]) -> Self {
        let rows = columns.iter().map(|&index| NamedExpr::column(schema, index)).collect();
        Program {
            table,
            version: None,
            filter: None,
            output: Output::Rows(rows),
            order: Vec::new(),
            limit: None,
        }
    }

    /// Every expression of the program.
    pub fn expressions(&self) -> Vec<&Expr> {
        let output: Vec<&Expr> = match &self.output {
            Output::Rows(columns) => columns.iter().map(|c| &c.expr).collect(),
            Output::Aggregate { keys, aggregates } => {
                let arguments = aggregates.iter().flat_map(|a| a.inputs());
                keys.iter().map(|k| &k.expr).chain(arguments).collect()
            }
        };
        self.filter.iter().chain(output).collect()
    }

    /// The positions of the columns that the program reads: its smart addressing (Farview, section 5.2).
    pub fn columns(&self) -> BTreeSet<usize> {
        let mut columns = BTreeSet::new();
        self.expressions().into_iter().for_each(|expr| expr.collect_columns(&mut columns));
        columns
    }

    /// The schema of the result over a table with `table_schema`, which is canonical. Checks the whole
    /// program: after `Ok` every expression is well typed and within the limits.
    ///
    /// # Errors
    /// `Invalid` or `OverLimit`, naming the part that is wrong.
    pub fn result_schema(&self, table_schema: &Schema) -> Result<SchemaRef> {
        self.check_size()?;
        self.check_filter(table_schema)?;
        let named = |e: &NamedExpr| e.field(table_schema);
        let fields = match &self.output {
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
        self.check_order()?;
        Ok(Arc::new(Schema::new(fields)))
    }

    /// Checks how deep and how large the expressions are ([`check_size`]).
    ///
    /// # Errors
    /// `OverLimit`, naming what is too large.
    pub fn check_size(&self) -> Result<usize> {
        check_size(self.expressions())
    }

    /// Checks the filter by itself.
    ///
    /// # Errors
    /// `Invalid` or `OverLimit`, naming what is wrong.
    pub fn check_filter(&self, table_schema: &Schema) -> Result<()> {
        self.filter.as_ref().map_or(Ok(()), |filter| require_boolean("filter", filter, table_schema))
    }

    /// Checks the order by itself.
    ///
    /// # Errors
    /// `Invalid` when there is no limit or no column of a name, `OverLimit` when there are too many keys.
    pub fn check_order(&self) -> Result<()> {
        let width = match &self.output {
            Output::Rows(columns) => columns.len(),
            Output::Aggregate { keys, aggregates } => keys.len() + aggregates.len(),
        };
        order::check(&self.order, self.limit, width)
    }

    /// Whether the rows with an order are more than a node keeps.
    pub fn top_is_too_large(&self) -> bool {
        !self.order.is_empty() && self.limit.is_some_and(|limit| limit > cast::u64_from(limits::TOP_ROWS_MAX))
    }
}

impl Aggregate {
    /// What it reads: its arguments and its filter.
    pub fn inputs(&self) -> impl Iterator<Item = &Expr> {
        self.arguments.iter().chain(&self.filter)
    }

    /// As SQL would write it, over a table with `table_schema`.
    pub fn display<'a>(&'a self, table_schema: &'a Schema) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| {
            write!(f, "{}(", self.function.name())?;
            for (place, argument) in self.arguments.iter().enumerate() {
                write!(f, "{}{}", if place > 0 { ", " } else { "" }, argument.display(table_schema))?;
            }
            match self.function {
                AggregateFunction::Sketch(parameters) => write!(f, ", '{parameters}')")?,
                AggregateFunction::Moments(NullHandling::Listwise) => f.write_str(", 'listwise')")?,
                _ if self.arguments.is_empty() => f.write_str("*)")?,
                _ => f.write_str(")")?,
            }
            match &self.filter {
                Some(filter) => write!(f, " FILTER (WHERE {})", filter.display(table_schema)),
                None => Ok(()),
            }
        })
    }

    /// The column that it makes of a table with `table_schema`.
    ///
    /// # Errors
    /// `Invalid` or `OverLimit` when a part is not well typed or the type of the result is not one it can have.
    pub fn field(&self, table_schema: &Schema) -> Result<Field> {
        let arguments = self.arguments.iter().map(|e| e.data_type(table_schema));
        let arguments = arguments.collect::<Result<Vec<_>>>()?;
        if let Some(filter) = &self.filter {
            require_boolean("aggregate's filter", filter, table_schema)?;
        }
        let canonical = schema::canonical_type(&self.data_type).as_ref() == Some(&self.data_type);
        if !canonical || !self.function.accepts(&arguments, &self.data_type) {
            let shown: Vec<String> = arguments.iter().map(DataType::to_string).collect();
            let shown = if shown.is_empty() { "*".to_string() } else { shown.join(", ") };
            return Err(Error::invalid(format!(
                "{}({shown}) cannot give {}",
                self.function.name(),
                self.data_type
            )));
        }
        self.check_state()?;
        Ok(Field::new(&self.name, self.data_type.clone(), self.function != AggregateFunction::Count))
    }

    /// That the state it asks for is one that is kept.
    fn check_state(&self) -> Result<()> {
        match self.function {
            AggregateFunction::Sketch(parameters) => parameters.check(),
            AggregateFunction::Moments(_) if self.arguments.len() > limits::MOMENT_COLUMNS_MAX => {
                Err(Error::over_limit(format!(
                    "moments may be of {} columns together, these are of {}",
                    limits::MOMENT_COLUMNS_MAX,
                    self.arguments.len()
                ))
                .advise("ask for them in several blocks of columns"))
            }
            _ => Ok(()),
        }
    }
}

/// Checks how deep and how large the expressions of a program are, without recursion: whatever comes after may
/// recurse. Gives their bytes, those of compiled patterns included.
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

/// Checks that `expr`, which is to be a `what`, is a condition on rows of a table with `table_schema`.
///
/// # Errors
/// `Invalid` or `OverLimit` when it is not.
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
