//! Programs with lookups (joins with the results of other programs), bound to their tables.
//!
//! A program with lookups is carried out in two stages. The scan reads the columns of the table that are needed, and
//! applies the conditions that are on these columns alone. Its rows go through the lookups, and what comes out is the
//! input of the upper stage: the other conditions, and the output of the program.
//!
//! Example: `lineitem` is scanned, a lookup finds each row's order, and the result is a sum by date of the order. A
//! condition on the ship date is applied by the scan, one on both dates by the upper stage, which also computes the
//! sum.
//!
//! A lookup that only keeps or drops rows by one join key is a condition on the scanned table, if the keys are a small
//! set. If all lookups of a program are, there is one stage: the program without lookups, with these conditions.

mod regrouped;

use crate::bound::BoundProgram;
use crate::budget::Budget;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use farpool_columns::Table;
use farpool_model::{
    ColumnStatistics, Columns, Error, Expr, Facts, Literal, Lookup, LookupKind, NamedExpr, Output, Program,
    Result, Value, cast, limits, schema,
};
use farpool_operators::{Lookup as Compiled, LookupTable, Needs, Plan};
use regrouped::Regrouped;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Maximum share of the distinct values of a column that are join keys of a lookup, as a fraction, for the scan to test
/// them. Reason: a test costs about as much as a probe, and saves the decoding of rows without a match.
const FEW: u64 = 3;
const FEW_OF: u64 = 4;

/// Maximum bytes of the index of a looked-up result, relative to the bytes of the result.
pub(crate) const INDEX_COPIES: usize = 2;

/// Number of copies of a looked-up result that are in memory at the same time: as collected, and as one array per
/// column.
const ROW_COPIES: usize = 2;

/// Bytes that are assumed for a string in a batch of joined rows.
const TEXT_BYTES: usize = 64;

/// Bytes that the last batch of a row group takes in a collected result beside its values, per column.
const BATCH_BYTES: usize = 16 * limits::BATCH_ROWS;

/// The lookups of a program, and its two stages.
pub(crate) struct Joined {
    /// For each lookup, its program.
    pub sides: Vec<Arc<BoundProgram>>,
    /// The lookups, with join keys and conditions that are over the columns which the scan returns.
    pub lookups: Vec<Lookup>,
    /// For each lookup, the columns of its rows that are read behind it.
    reads: Vec<BTreeSet<usize>>,
    /// Program of the scan: the columns of the table that are needed, for the rows that pass the conditions on them.
    pub scan: Program,
    /// Schema of the rows that the scan returns.
    pub scan_schema: SchemaRef,
    /// Schema of the rows behind the lookups, with the columns of the table that the scan returns.
    row: SchemaRef,
    /// Statistics of the rows behind the lookups, with all columns of the table.
    row_statistics: Vec<ColumnStatistics>,
    /// Plan of the upper stage, over the rows behind the lookups.
    pub upper: Plan,
    /// For each column of these rows, how the upper stage reads it.
    pub forms: Vec<ColumnForm>,
    /// The upper stage with fewer group keys, if some of them follow from others.
    pub regrouped: Option<Regrouped>,
    /// The program without its lookups, if all of them may turn out to be conditions on the scanned table.
    pub direct: Option<Program>,
}

/// The form in which the upper stage reads a column of the rows behind the lookups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnForm {
    Unread,
    Values,
    /// Conditions and groups are faster on the distinct strings than on the string of each row.
    Distinct,
}

/// The rows behind the lookups of a program.
pub(crate) struct Row {
    pub schema: SchemaRef,
    /// For each column the statistics of the table that it comes from; those of other columns say nothing.
    statistics: Vec<ColumnStatistics>,
}

impl Row {
    /// Describes the rows behind the lookups of `program` over `table`, whose programs are `sides`.
    ///
    /// # Errors
    /// `Invalid` or `OverLimit`, naming what is wrong with a lookup.
    pub fn of(program: &Program, table: &Table, sides: &[Arc<BoundProgram>]) -> Result<Row> {
        if sides.len() != program.lookups.len() {
            let (lookups, sides) = (program.lookups.len(), sides.len());
            return Err(Error::internal(format!("{lookups} lookups, and {sides} programs")));
        }
        if let Some(refusal) = sides.iter().find_map(|side| side.refusal()) {
            return Err(Error::invalid(format!(
                "the program of a lookup must be carried out whole: {refusal}"
            )));
        }
        let results = sides.iter().map(|side| &*side.prepared().schema);
        let schema = Arc::new(program.row_schema(&table.schema, results)?);
        let mut statistics = of_table(table);
        for (lookup, side) in program.lookups.iter().zip(sides) {
            if lookup.kind.adds_columns() {
                statistics.extend(of_result(side));
            }
            if lookup.kind.adds_mark() {
                statistics.push(ColumnStatistics::default());
            }
        }
        Ok(Row { schema, statistics })
    }

    /// Returns an upper bound of the bytes of this description, which is kept with and without the columns that nobody
    /// reads.
    pub fn bytes(&self) -> usize {
        let name = |field: &Arc<Field>| size_of::<Field>() + field.name().len();
        let fields: usize = self.schema.fields().iter().map(name).sum();
        2 * (fields + self.statistics.len() * size_of::<ColumnStatistics>())
    }

    /// Returns the columns, for expressions over them.
    pub fn columns(&self) -> Columns<'_> {
        Columns::new(&self.schema, &self.statistics)
    }

    /// Compiles `program`, without its lookups, for these rows.
    ///
    /// # Errors
    /// Errors of [`Plan::compile_rows`].
    pub fn compile(&self, program: &Program, budget: Budget) -> Result<Plan> {
        Plan::compile_rows(program, &self.schema, &self.statistics, budget.memory())
    }

    /// Returns the rows with only these columns, in this order.
    fn project(&self, columns: impl Iterator<Item = usize> + Clone) -> Row {
        let fields: Vec<_> = columns.clone().map(|column| self.schema.fields()[column].clone()).collect();
        let statistics = columns.map(|column| self.statistics[column].clone()).collect();
        Row { schema: Arc::new(Schema::new(fields)), statistics }
    }
}

/// Returns the statistics of a table, one for each column.
fn of_table(table: &Table) -> Vec<ColumnStatistics> {
    let columns = 0..table.schema.fields().len();
    columns.map(|column| table.statistics.get(column).cloned().unwrap_or_default()).collect()
}

/// Returns for each column of a program's result the statistics of the table's column that it is.
fn of_result(program: &BoundProgram) -> Vec<ColumnStatistics> {
    let rows = match program.joined() {
        Some(joined) => joined.row_statistics.clone(),
        None => of_table(program.table()),
    };
    let exprs: Vec<&Expr> = match &program.prepared().effective.output {
        Output::Rows(columns) => columns.iter().map(|column| &column.expr).collect(),
        Output::Aggregate { keys, .. } => keys.iter().map(|key| &key.expr).collect(),
    };
    let known = exprs.into_iter().map(|expr| expr.as_column().and_then(|column| rows.get(column).cloned()));
    let fields = program.prepared().schema.fields().len();
    known
        .map(Option::unwrap_or_default)
        .chain(std::iter::repeat_with(ColumnStatistics::default))
        .take(fields)
        .collect()
}

impl Joined {
    /// Divides the effective program `program` over `table` into its stages. `row` is the schema of the rows behind the
    /// lookups.
    ///
    /// # Errors
    /// `Invalid` or `OverLimit` if the program is not well typed.
    pub fn new(
        program: &Program,
        table: &Table,
        row: &Row,
        sides: Vec<Arc<BoundProgram>>,
        budget: Budget,
    ) -> Result<Joined> {
        let width = table.schema.fields().len();
        let conditions = match program.filter.clone() {
            Some(Expr::And(parts)) => parts,
            filter => filter.into_iter().collect(),
        };
        let mut of_scan = Vec::new();
        let mut of_upper = Vec::new();
        for condition in conditions {
            match is_of_scan(&condition, table, width)? {
                true => of_scan.push(condition),
                false => of_upper.push(condition),
            }
        }
        // What may fail is not evaluated on a row that a lookup drops.
        let is_scan_first = of_upper.is_empty();
        let upper = Program { lookups: Vec::new(), filter: Expr::all(of_upper), ..program.clone() };
        let needed = needed(&upper, &program.lookups, width);
        // The columns that the scan returns come first, then what the lookups add.
        let new = |column: usize| match column.checked_sub(width) {
            None => needed.iter().position(|needed| *needed == column).unwrap_or(usize::MAX),
            Some(added) => needed.len() + added,
        };
        let narrow = row.project(needed.iter().copied().chain(width..row.schema.fields().len()));
        let lookups: Vec<Lookup> = program.lookups.iter().map(|lookup| renumbered(lookup, &new)).collect();
        let upper = upper.renumbered(&new);
        let reads = reads(&upper, &lookups);
        let columns = needed.iter().map(|column| NamedExpr::column(&table.schema, *column)).collect();
        let scan = Program {
            table: program.table.clone(),
            version: program.version,
            lookups: Vec::new(),
            filter: Expr::all(of_scan),
            output: Output::Rows(columns),
            having: None,
            order: Vec::new(),
            limit: None,
        };
        let scan_schema = scan.result_schema(&table.schema)?;
        let forms = forms(&upper, &narrow.schema);
        let added = added(&lookups, &sides, needed.len());
        let regrouped = Regrouped::of(&upper, &narrow, &lookups, added, budget)?;
        let upper = narrow.compile(&upper, budget)?;
        let row_statistics = row.statistics.clone();
        let joined = Joined {
            sides,
            lookups,
            reads,
            scan,
            scan_schema,
            row: narrow.schema,
            row_statistics,
            upper,
            forms,
            regrouped,
            direct: None,
        };
        let is_condition = |(place, lookup): (usize, &Lookup)| {
            is_existence(lookup, joined.reads_result(place)) && joined.scanned_keys(place).is_some()
        };
        let are_conditions = is_scan_first && joined.lookups.iter().enumerate().all(is_condition);
        let direct = are_conditions.then(|| Program { lookups: Vec::new(), ..program.clone() });
        Ok(Joined { direct, ..joined })
    }

    /// Returns the lookup at `place` over the rows `row` before it, in `table`; for the upper stage with fewer group keys if
    /// `is_regrouped`.
    ///
    /// # Errors
    /// Errors of [`Compiled::new`].
    pub fn compile_lookup(
        &self,
        place: usize,
        row: &Schema,
        table: Arc<LookupTable>,
        is_regrouped: bool,
    ) -> Result<Compiled> {
        let regrouped = self.regrouped.as_ref().filter(|_| is_regrouped);
        let reads = regrouped.map_or(&self.reads, |regrouped| &regrouped.reads);
        Compiled::new(&self.lookups[place], row, table, |column| reads[place].contains(&column))
    }

    /// Returns what the lookup at `place` needs to know of the looked-up result, which has `rows` rows. A condition is
    /// worth while where rows without a match are not wanted, and nothing tells that nearly every row of `table`, which is
    /// scanned, has one.
    pub fn needs(&self, place: usize, rows: usize, table: &Table) -> Needs {
        if is_existence(&self.lookups[place], self.reads_result(place)) && self.scanned_keys(place).is_some()
        {
            return Needs::Existence { once: self.lookups[place].kind.adds_columns() };
        }
        let Some(keys) = self.matched_keys(place) else { return Needs::Matches };
        // Of a single key, the number of distinct values tells how many of them have a match at most.
        if let [Expr::Column(column)] = &keys[..]
            && let Some(known) = table.statistics.get(*column)
            && let Some(distinct) = known.distinct_count.or(known.distinct_estimate)
            && cast::u64_from(rows).saturating_mul(FEW_OF) > distinct.saturating_mul(FEW)
        {
            return Needs::Matches;
        }
        Needs::MatchesAndCondition
    }

    /// Returns a condition on the scanned table that follows from `of_lookup`, the table of the lookup at `place`: true for
    /// every row that passes the lookup, and if the table is exact, for no other. `None` if there is none.
    pub fn condition(&self, place: usize, of_lookup: &LookupTable) -> Option<Expr> {
        if !of_lookup.is_exact() {
            return of_lookup.condition(self.matched_keys(place)?);
        }
        let keys = self.scanned_keys(place)?;
        let is_null = Expr::IsNull(Box::new(keys.first()?.clone()));
        let matched = of_lookup.condition(keys)?;
        match self.lookups[place].kind {
            LookupKind::Anti | LookupKind::NotIn if of_lookup.is_empty() => None,
            LookupKind::Anti => Some(Expr::Or(vec![is_null, Expr::Not(Box::new(matched))])),
            LookupKind::NotIn if of_lookup.has_null_keys() => nothing(),
            // Of a row whose key is NULL, the condition is NULL.
            LookupKind::NotIn => Some(Expr::Not(Box::new(matched))),
            _ => Some(matched),
        }
    }

    /// Returns the join keys of the lookup at `place` as columns of the scanned table; `None` if rows without a match are
    /// wanted, or as for [`Joined::scanned_keys`].
    fn matched_keys(&self, place: usize) -> Option<Vec<Expr>> {
        let drops = matches!(self.lookups[place].kind, LookupKind::Inner | LookupKind::Semi);
        self.scanned_keys(place).filter(|_| drops)
    }

    /// Returns whether some column of the looked-up result is read behind the lookup at `place`.
    fn reads_result(&self, place: usize) -> bool {
        let (first, count) = added(&self.lookups, &self.sides, self.scan_schema.fields().len())[place];
        let columns = first..first + count;
        self.reads[place].range(columns).next().is_some()
    }

    /// Returns the join keys of the lookup at `place` as columns of the scanned table; `None` if one is no column of it.
    fn scanned_keys(&self, place: usize) -> Option<Vec<Expr>> {
        let Output::Rows(scanned) = &self.scan.output else { return None };
        let keys = &self.lookups[place].keys;
        keys.iter().map(|key| scanned.get(key.row).map(|column| column.expr.clone())).collect()
    }

    /// Returns the bytes of a row behind the lookups, strings with the length of a few words.
    pub fn row_bytes(&self) -> usize {
        let width = |data_type: &DataType| data_type.primitive_width().unwrap_or(TEXT_BYTES);
        self.row.fields().iter().map(|field| width(field.data_type())).sum()
    }

    /// Returns for each lookup the maximum number of bytes of its program's result.
    pub fn collected_bytes(&self, budget: Budget) -> impl Iterator<Item = usize> + '_ {
        let share = budget.state_bytes_max.min(limits::LOOKUP_BYTES_MAX) / self.sides.len().max(1);
        self.sides.iter().map(move |side| share.min(result_bytes(side)))
    }

    /// Returns the bytes that the tables of the lookups take, with what they are made of.
    pub fn table_bytes(&self, budget: Budget) -> usize {
        let collected = self.collected_bytes(budget).fold(0, usize::saturating_add);
        collected.saturating_mul(ROW_COPIES + INDEX_COPIES)
    }
}

/// Returns an upper bound of the bytes of a program's result, as far as its table tells.
fn result_bytes(side: &BoundProgram) -> usize {
    let lookups = &side.prepared().effective.lookups;
    if lookups.iter().any(|lookup| lookup.kind.adds_columns()) || side.table().live_rows().is_some() {
        return usize::MAX;
    }
    let columns = side.columns().iter().map(|column| side.table().bytes_plain_most[*column]);
    let fields = side.prepared().schema.fields().len().max(1);
    let (table, groups) = (side.table(), side.table().row_groups.len().max(side.budget().workers));
    // Each column of the result has at most the bytes of all columns that are read, and a view for each string. Batches
    // are allocated whole.
    let views = cast::usize_saturating(table.rows).saturating_mul(size_of::<u128>());
    let values = (columns.sum::<usize>() + BATCH_BYTES).saturating_mul(groups);
    values.saturating_add(views).saturating_mul(fields)
}

/// Returns whether a lookup keeps or drops a row by a single join key, and whether the key has a match is all that it needs
/// to know; of an inner join, that no key has several.
fn is_existence(lookup: &Lookup, reads_result: bool) -> bool {
    let is_kind = match lookup.kind {
        LookupKind::Semi | LookupKind::Anti | LookupKind::NotIn => true,
        LookupKind::Inner => !reads_result,
        _ => false,
    };
    is_kind && lookup.keys.len() == 1 && lookup.residual.is_none()
}

/// Returns a condition that is true for no row.
fn nothing() -> Option<Expr> {
    Literal::new(Value::Bool(false), DataType::Boolean).ok().map(Expr::Literal)
}

/// Returns whether a condition is applied by the scan: it is on columns of the table alone, and cannot fail on a row
/// that has no match in a lookup.
fn is_of_scan(condition: &Expr, table: &Table, width: usize) -> Result<bool> {
    let mut columns = BTreeSet::new();
    condition.collect_columns(&mut columns);
    if columns.last().is_some_and(|last| *last >= width) {
        return Ok(false);
    }
    Ok(!Facts::of(condition, Columns::new(&table.schema, &table.statistics))?.may_fail)
}

/// Returns the columns of the table that the upper stage and the lookups read, in order.
fn needed(upper: &Program, lookups: &[Lookup], width: usize) -> Vec<usize> {
    let mut columns = upper.columns();
    for lookup in lookups {
        columns.extend(lookup.keys.iter().map(|key| key.row));
        if let Some(residual) = &lookup.residual {
            residual.collect_columns(&mut columns);
        }
    }
    columns.into_iter().filter(|column| *column < width).collect()
}

/// Returns how the upper stage reads each column of its rows.
fn forms(upper: &Program, row: &Schema) -> Vec<ColumnForm> {
    let (read, mut judged) = (upper.columns(), BTreeSet::new());
    upper.filter.iter().for_each(|filter| filter.collect_columns(&mut judged));
    if let Output::Aggregate { keys, .. } = &upper.output {
        keys.iter().for_each(|key| key.expr.collect_columns(&mut judged));
    }
    let form = |(column, field): (usize, &Arc<Field>)| match read.contains(&column) {
        true if judged.contains(&column) && schema::is_bytes(field.data_type()) => ColumnForm::Distinct,
        true => ColumnForm::Values,
        false => ColumnForm::Unread,
    };
    row.fields().iter().enumerate().map(form).collect()
}

/// Returns for each lookup the columns that it adds behind the first `width` ones: the first one, and how many.
fn added(lookups: &[Lookup], sides: &[Arc<BoundProgram>], width: usize) -> Vec<(usize, usize)> {
    let mut first = width;
    let of_lookup = |(lookup, side): (&Lookup, &Arc<BoundProgram>)| {
        let columns = if lookup.kind.adds_columns() { side.prepared().schema.fields().len() } else { 0 };
        let count = columns + usize::from(lookup.kind.adds_mark());
        first += count;
        (first - count, count)
    };
    lookups.iter().zip(sides).map(of_lookup).collect()
}

/// Returns for each lookup the columns of its rows that later lookups or the upper stage read.
fn reads(upper: &Program, lookups: &[Lookup]) -> Vec<BTreeSet<usize>> {
    let mut read = upper.columns();
    let mut reads = Vec::with_capacity(lookups.len());
    for lookup in lookups.iter().rev() {
        reads.push(read.clone());
        read.extend(lookup.keys.iter().map(|key| key.row));
        if let Some(residual) = &lookup.residual {
            residual.collect_columns(&mut read);
        }
    }
    reads.reverse();
    reads
}

fn renumbered(lookup: &Lookup, new: &impl Fn(usize) -> usize) -> Lookup {
    let mut lookup = lookup.clone();
    lookup.keys.iter_mut().for_each(|key| key.row = new(key.row));
    lookup.residual.iter_mut().for_each(|residual| residual.renumber(new));
    lookup
}
