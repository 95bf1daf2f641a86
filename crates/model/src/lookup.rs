//! Lookups: joins of the rows of a program's table with the result of another program (Ibex, section 5; Farview,
//! section 7).
//!
//! A program scans one table. Each of its lookups takes the rows so far (at first those of the table), finds for each
//! row the rows of another program's result whose join keys are equal, and gives the rows that the next lookup takes.
//! The results of the other programs are computed first, and held by their join keys in memory.
//!
//! Example: `lineitem` is scanned; a first lookup finds each row's order, and a second one the customer of that order,
//! by a key that the first one has added to the row.

use crate::{Error, Expr, GivenRows, Program, Result, TableName, brief, limits, program};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use std::sync::Arc;

/// A join of the rows so far with the result of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Lookup {
    /// The rows that the lookup gives for a row.
    pub kind: LookupKind,
    /// The program whose result is looked up.
    pub program: Program,
    /// The canonical schema of the table that this program scans, or of the rows that it scans instead.
    pub table_schema: SchemaRef,
    /// The rows that the program scans instead of a table. It then has [`GivenRows::name`] for the name of a table.
    pub given: Option<Arc<GivenRows>>,
    /// The join keys, at least one, which must all be equal. They are equal as group keys are, except that NULL equals
    /// nothing.
    pub keys: Vec<LookupKey>,
    /// A further condition on each pair of rows with equal join keys: over the columns of the row so far, followed by
    /// those of the program's result.
    pub residual: Option<Expr>,
    /// Name of the boolean column that is added to a row, if the kind adds one.
    pub mark: String,
}

/// A join key: a column of the row so far, and one of the looked-up result. Both have the same type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupKey {
    /// Position of the column in the row so far.
    pub row: usize,
    /// Position of the column in the result of the lookup's program.
    pub result: usize,
}

/// The rows that a lookup gives for a row. A *match* is a row of the looked-up result whose join keys equal those of the row,
/// and for which the residual condition, if there is one, is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LookupKind {
    /// One row for each match, with the columns of the match behind its own (INNER JOIN).
    Inner,
    /// As [`LookupKind::Inner`]; without a match, one row with NULLs in these columns (LEFT JOIN).
    Left,
    /// The row, if it has a match (EXISTS).
    Semi,
    /// The row, if it has no match (NOT EXISTS).
    Anti,
    /// The row, if `key NOT IN (result)` is true: it has no match, and neither its key nor any key of the result is
    /// NULL. If the result is empty, every row. Has a single join key, and no residual condition.
    NotIn,
    /// The row, and behind it whether it has a match; never NULL.
    Exists,
    /// The row, and behind it the value of `key IN (result)`, which is NULL if there is no match, but the key or a key
    /// of the result is NULL; false if the result is empty. Has a single join key, and no residual condition.
    In,
    /// As [`LookupKind::Left`], and several matches of one row are an error (scalar subquery).
    Single,
}

impl LookupKind {
    /// All kinds.
    pub const ALL: [LookupKind; 8] = [
        LookupKind::Inner,
        LookupKind::Left,
        LookupKind::Semi,
        LookupKind::Anti,
        LookupKind::NotIn,
        LookupKind::Exists,
        LookupKind::In,
        LookupKind::Single,
    ];

    /// Returns the name of the kind, for people.
    pub fn name(self) -> &'static str {
        match self {
            LookupKind::Inner => "inner",
            LookupKind::Left => "left",
            LookupKind::Semi => "semi",
            LookupKind::Anti => "anti",
            LookupKind::NotIn => "not in",
            LookupKind::Exists => "exists",
            LookupKind::In => "in",
            LookupKind::Single => "single",
        }
    }

    /// Returns whether the columns of the looked-up result are added to a row.
    pub fn adds_columns(self) -> bool {
        matches!(self, LookupKind::Inner | LookupKind::Left | LookupKind::Single)
    }

    /// Returns whether a boolean column is added to a row.
    pub fn adds_mark(self) -> bool {
        matches!(self, LookupKind::Exists | LookupKind::In)
    }

    /// Returns whether the rows with a match are dropped, and the others kept.
    pub fn drops_matched(self) -> bool {
        matches!(self, LookupKind::Anti | LookupKind::NotIn)
    }

    /// Returns whether the result depends on NULLs among the join keys, as that of `IN` does.
    pub fn minds_nulls(self) -> bool {
        matches!(self, LookupKind::NotIn | LookupKind::In)
    }
}

impl Lookup {
    /// Returns the schema of the rows that the lookup gives, where `row` is that of the rows so far, and `result` that
    /// of the looked-up result. Checks the lookup itself, without its program.
    ///
    /// # Errors
    /// `Invalid` if a join key does not exist or has different types, or the residual condition is not permitted or not
    /// a condition; `OverLimit` if there are too many columns, or the condition is too large.
    pub fn row_schema(&self, row: &Schema, result: &Schema) -> Result<Schema> {
        if self.keys.is_empty() {
            return Err(Error::invalid("a lookup has no join key"));
        }
        if self.kind.minds_nulls() && (self.keys.len() > 1 || self.residual.is_some()) {
            let (kind, keys) = (self.kind, self.keys.len());
            let more = if self.residual.is_some() { " and another condition" } else { "" };
            return Err(Error::invalid(format!(
                "a lookup of the kind {kind:?} has one join key and no other condition; this one has {keys}{more}"
            )));
        }
        if self.keys.len() > limits::COLUMNS_MAX {
            return Err(Error::over_limit(format!("a lookup may have {} join keys", limits::COLUMNS_MAX)));
        }
        self.keys.iter().try_for_each(|key| key.check(row, result))?;
        if let Some(residual) = &self.residual {
            program::check_size([residual])?;
            program::require_boolean("condition of a lookup", residual, &pair_schema(row, result))?;
        }
        let mut fields: Vec<Arc<Field>> = row.fields().iter().cloned().collect();
        if self.kind.adds_columns() {
            let nullable = |field: &Arc<Field>| Arc::new(field.as_ref().clone().with_nullable(true));
            fields.extend(result.fields().iter().map(nullable));
        }
        if self.kind.adds_mark() {
            fields.push(Arc::new(Field::new(&self.mark, DataType::Boolean, true)));
        }
        if fields.len() > limits::PLAN_COLUMNS_MAX {
            let most = limits::PLAN_COLUMNS_MAX;
            return Err(Error::over_limit(format!(
                "the rows of a program may have {most} columns after lookups"
            )));
        }
        Ok(Schema::new(fields))
    }
}

impl LookupKey {
    fn check(self, row: &Schema, result: &Schema) -> Result<()> {
        let (Some(left), Some(right)) = (row.fields().get(self.row), result.fields().get(self.result)) else {
            return Err(Error::invalid(format!(
                "a join key is column {} of {} and {} of {}",
                self.row,
                row.fields().len(),
                self.result,
                result.fields().len()
            )));
        };
        if left.data_type() == right.data_type() {
            return Ok(());
        }
        Err(Error::invalid(brief(format_args!(
            "the join key {} has type {}, and {} has type {}",
            left.name(),
            left.data_type(),
            right.name(),
            right.data_type()
        ))))
    }
}

/// Returns the schema of pairs of rows, over which residual conditions are.
pub fn pair_schema(row: &Schema, result: &Schema) -> Schema {
    Schema::new(row.fields().iter().chain(result.fields()).cloned().collect::<Vec<_>>())
}

impl Program {
    /// Returns the schema of the program's rows behind its lookups, over a table with the canonical schema
    /// `table_schema`.
    ///
    /// # Errors
    /// `Invalid` or `OverLimit`, naming what is wrong with a lookup or its program.
    pub fn joined_schema(&self, table_schema: &SchemaRef) -> Result<SchemaRef> {
        if self.lookups.is_empty() {
            return Ok(table_schema.clone());
        }
        // This bounds the recursion below.
        self.check_lookups()?;
        let result = |lookup: &Lookup| {
            let row = lookup.program.joined_schema(&lookup.table_schema)?;
            lookup.program.result_schema(&row)
        };
        let results = self.lookups.iter().map(result).collect::<Result<Vec<_>>>()?;
        self.row_schema(table_schema, results.iter().map(|schema| &**schema)).map(Arc::new)
    }

    /// Returns the schema of the program's rows behind its lookups: the columns of the table, and what each lookup
    /// adds. `results` has the schema of each lookup's result, in order.
    ///
    /// # Errors
    /// `Invalid` or `OverLimit`, naming what is wrong with a lookup.
    pub fn row_schema<'a>(
        &self,
        table_schema: &Schema,
        results: impl IntoIterator<Item = &'a Schema>,
    ) -> Result<Schema> {
        self.check_lookups()?;
        let mut row = table_schema.clone();
        for (lookup, result) in self.lookups.iter().zip(results) {
            row = lookup.row_schema(&row, result)?;
        }
        Ok(row)
    }

    /// Returns the tables of the program's lookups, in lookups of lookups too, each once, with its canonical schema.
    ///
    /// # Errors
    /// `OverLimit` if there are too many lookups, or they are nested too deeply; `Invalid` if two lookups over one table
    /// say that it has different columns.
    pub fn lookup_tables(&self) -> Result<Vec<(&TableName, &SchemaRef)>> {
        self.check_lookups()?;
        let mut tables: Vec<(&TableName, &SchemaRef)> = Vec::new();
        let mut open: Vec<&Lookup> = self.lookups.iter().collect();
        while let Some(Lookup { program, table_schema, given, .. }) = open.pop() {
            match tables.iter().find(|(name, _)| **name == program.table) {
                _ if given.is_some() => {}
                None => tables.push((&program.table, table_schema)),
                Some((_, known)) if *known == table_schema => {}
                Some((name, _)) => {
                    let message = format!("two lookups take {:?} for different columns", name.as_str());
                    return Err(Error::invalid(message).advise("read the schema of the table again"));
                }
            }
            open.extend(&program.lookups);
        }
        Ok(tables)
    }

    /// Checks how many lookups there are, in lookups of lookups too. Does not recurse.
    ///
    /// # Errors
    /// `OverLimit` if there are too many, or they are nested too deeply.
    pub fn check_lookups(&self) -> Result<()> {
        let mut open = vec![(self, 0)];
        let mut count = 0;
        while let Some((program, depth)) = open.pop() {
            count += program.lookups.len();
            if count > limits::LOOKUPS_MAX || depth > limits::LOOKUP_DEPTH_MAX {
                return Err(Error::over_limit(format!(
                    "a program may have {} lookups, nested {} deep",
                    limits::LOOKUPS_MAX,
                    limits::LOOKUP_DEPTH_MAX
                )));
            }
            open.extend(program.lookups.iter().map(|lookup| (&lookup.program, depth + 1)));
        }
        Ok(())
    }
}
