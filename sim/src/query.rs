//! Random programs (pushed-down queries over one table, some with a lookup in the same table), each in a simple form from
//! which both the [`Program`] and, row by row, the model's answer are derived.

use crate::random::Random;
use crate::rows::{COLUMNS, Cell, Row, WORDS, long_words, random_large, schema};
use arrow_schema::DataType;
use farpool_model::{
    Aggregate, AggregateFunction, CompareOp, Expr, Literal, Lookup, LookupKey, LookupKind, NamedExpr, Output,
    Program, SortKey, TableName, Value,
};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

const OPERATORS: [CompareOp; 6] =
    [CompareOp::Eq, CompareOp::NotEq, CompareOp::Lt, CompareOp::LtEq, CompareOp::Gt, CompareOp::GtEq];

/// A random query over one table, from which the program and the model's answer are derived.
#[derive(Clone, Debug)]
pub struct Query {
    /// The name of the table.
    pub table: String,
    filter: Option<Test>,
    lookup: Option<InTable>,
    shape: Shape,
}

/// A condition on a row that is carried out by a lookup: a row of the same table has the same value in a column (not NULL),
/// and passes a filter.
#[derive(Clone, Debug)]
struct InTable {
    column: usize,
    filter: Option<Test>,
    /// Whether there must be no such row.
    is_anti: bool,
}

/// A condition on a row: a comparison, a test for NULL, or NOT, AND or OR of conditions.
#[derive(Clone, Debug)]
enum Test {
    Compare(usize, CompareOp, Cell),
    IsNull(usize),
    Not(Box<Test>),
    All(Vec<Test>),
    Any(Vec<Test>),
}

/// The output of a query: rows, the first rows in a sort order, or groups.
#[derive(Clone, Debug)]
enum Shape {
    /// Values of these columns, for at most this number of rows.
    Rows(Vec<usize>, Option<usize>),
    /// The first rows, ordered by the first of the columns.
    Top { columns: Vec<usize>, descending: bool, limit: usize },
    /// Groups by keys, with aggregates of the column `large`, or only the distinct keys; and if it is given, only groups with
    /// at least this number of rows. There are few enough groups with such a condition that none of them come in parts.
    Groups { keys: Vec<usize>, aggregates: bool, rows_min: Option<i64> },
}

/// The kind of random queries.
#[derive(Clone, Copy, Debug)]
pub enum Queries {
    /// Queries of all kinds.
    Any,
    /// Queries of a dashboard over large tables: with a few filters, which derive from this number, and few rows in
    /// most results.
    Dashboard(u64),
}

/// Number of filters of a dashboard.
const DASHBOARD_FILTERS: usize = 3;

/// Maximal number of rows of most results of a dashboard without groups.
const DASHBOARD_ROWS_MAX: usize = 5_000;

impl Query {
    /// Creates a random query over `table`.
    pub fn random(random: &mut Random, table: String, queries: Queries) -> Self {
        let filter = random.chance(70).then(|| match queries {
            Queries::Any => Test::random(random, 2),
            Queries::Dashboard(seed) => {
                let which = random.below(DASHBOARD_FILTERS) as u64;
                Test::random(&mut Random::new(seed.wrapping_add(which)), 2)
            }
        });
        let mut shape = Shape::random(random);
        if let Queries::Dashboard(_) = queries
            && random.chance(95)
        {
            match &mut shape {
                Shape::Rows(_, limit) => {
                    limit.get_or_insert_with(|| random.magnitude(DASHBOARD_ROWS_MAX));
                }
                // With two keys, almost every row would form a separate group.
                Shape::Groups { keys, .. } => keys.truncate(1),
                Shape::Top { .. } => {}
            }
        }
        // Groups behind lookups come in parts, which an engine merges.
        let is_whole = !matches!(shape, Shape::Groups { .. });
        let lookup = (is_whole && random.chance(30)).then(|| InTable::random(random));
        Query { table, filter, lookup, shape }
    }

    /// Returns the query with another condition; `None` if it has a limit, for which the condition would select other
    /// rows.
    pub fn narrowed(&self, random: &mut Random) -> Option<Self> {
        let keeps_meaning = matches!(self.shape, Shape::Rows(_, None) | Shape::Groups { .. });
        let test = Test::random(random, 1);
        let all = self.filter.iter().cloned().chain([test]).collect();
        keeps_meaning.then(|| Query { filter: Some(Test::All(all)), ..self.clone() })
    }

    /// Returns the query's condition as an expression of the node.
    pub fn filter(&self) -> Option<Expr> {
        self.filter.as_ref().map(Test::expr)
    }

    /// Returns the query as a program of the node.
    pub fn program(&self) -> Program {
        let table = TableName::new(&self.table).expect("tables of the simulation have valid names");
        let filter = self.filter();
        let (output, order, limit) = self.shape.parts();
        let having = self.shape.having();
        Program {
            lookups: self.lookup.iter().map(|lookup| lookup.lookup(&table)).collect(),
            table,
            version: None,
            filter,
            output,
            having,
            order,
            limit: limit.map(|limit| limit as u64),
        }
    }

    /// Checks that `answer` is the result of the query over `rows`.
    ///
    /// # Errors
    /// A description of the difference.
    pub fn check(&self, rows: &[Row], mut answer: Vec<Vec<Cell>>) -> Result<(), String> {
        let found = self.lookup.as_ref().map(|lookup| (lookup, lookup.values(rows)));
        let is_found = |row: &Row| found.as_ref().is_none_or(|(lookup, values)| lookup.holds(row, values));
        let mut passing: Vec<&Row> = rows.iter().filter(|row| self.passes(row) && is_found(row)).collect();
        answer.sort_unstable();
        match &self.shape {
            Shape::Rows(columns, limit) => {
                let count = limit.unwrap_or(usize::MAX).min(passing.len());
                same_number(count, answer.len())?;
                are_of(&answer, &passing, columns)
            }
            Shape::Top { columns, descending, limit } => {
                let key = |row: &&Row| row[columns[0]];
                passing.sort_unstable_by(|a, b| first_comes_first(key(a), key(b), *descending));
                // The rows that may be in the answer: the first ones, and those that tie with the last of them.
                let last = passing.get(limit.saturating_sub(1)).map(key);
                let first = passing.iter().position(|row| last == Some(key(row)));
                let ties = passing[first.unwrap_or(0)..].iter().take_while(|row| last == Some(key(row)));
                let end = first.map_or(passing.len(), |first| first + ties.count());
                check_top(&project(&passing[..end], columns), *limit, &answer)
            }
            Shape::Groups { keys, aggregates, rows_min } => {
                let mut expected = groups(&passing, keys, *aggregates);
                expected.retain(|group| rows_min.is_none_or(|min| group[keys.len()] >= Cell::Int(min)));
                same_number(expected.len(), answer.len())?;
                is_part(&answer, &expected)
            }
        }
    }

    fn passes(&self, row: &Row) -> bool {
        self.filter.as_ref().is_none_or(|test| test.holds(row) == Some(true))
    }
}

/// A change of the rows of one table: an UPDATE or a DELETE.
#[derive(Clone, Debug)]
pub struct Change {
    /// The name of the table.
    pub table: String,
    filter: Option<Test>,
    new: Option<New>,
}

/// The new value of a column.
#[derive(Clone, Debug)]
enum New {
    /// A constant for the column with this index.
    Value(usize, Cell),
    /// For the column with this index, the value of the column with the other index.
    Of(usize, usize),
}

impl Change {
    /// Creates a random change of `table`.
    pub fn random(random: &mut Random, table: String) -> Self {
        let new = match random.below(4) {
            0 => Some(New::Value(3, Cell::Text(random.pick(&WORDS)))),
            1 => Some(New::Value(1, Cell::Int(random.magnitude(400) as i64))),
            2 => Some(New::Of(1, 2)),
            _ => None,
        };
        // Sometimes changes all rows.
        Change { table, filter: random.chance(95).then(|| Test::random(random, 2)), new }
    }

    /// Returns the change as a program of the node.
    pub fn program(&self) -> Program {
        let new = |column: usize, expr: Expr| NamedExpr { name: COLUMNS[column].to_string(), expr };
        let columns = self.new.iter().map(|of| match of {
            New::Value(column, value) => new(*column, Expr::Literal(literal(*value))),
            New::Of(column, other) => new(*column, Expr::Column(*other)),
        });
        let rows = Query {
            table: self.table.clone(),
            filter: self.filter.clone(),
            lookup: None,
            shape: Shape::Rows(Vec::new(), None),
        };
        Program { output: Output::Rows(columns.collect()), ..rows.program() }
    }

    /// Returns the number of `rows` that are changed.
    pub fn count(&self, rows: &[Row]) -> u64 {
        rows.iter().filter(|row| self.passes(row)).count() as u64
    }

    /// Returns `rows` after the change.
    pub fn apply(&self, rows: &[Row]) -> Vec<Row> {
        let changed = |row: &Row| match &self.new {
            _ if !self.passes(row) => Some(*row),
            None => None,
            Some(new) => {
                let mut row = *row;
                match new {
                    New::Value(column, value) => row[*column] = *value,
                    New::Of(column, other) => row[*column] = row[*other],
                }
                Some(row)
            }
        };
        rows.iter().filter_map(changed).collect()
    }

    fn passes(&self, row: &Row) -> bool {
        self.filter.as_ref().is_none_or(|test| test.holds(row) == Some(true))
    }
}

impl InTable {
    fn random(random: &mut Random) -> InTable {
        InTable {
            column: random.pick(&[0, 1, 3]),
            filter: random.chance(70).then(|| Test::random(random, 1)),
            is_anti: random.chance(50),
        }
    }

    fn lookup(&self, table: &TableName) -> Lookup {
        let side = Program::scan(table.clone(), &schema(), &[self.column]);
        Lookup {
            kind: if self.is_anti { LookupKind::Anti } else { LookupKind::Semi },
            program: Program { filter: self.filter.as_ref().map(Test::expr), ..side },
            table_schema: schema(),
            given: None,
            keys: vec![LookupKey { row: self.column, result: 0 }],
            residual: None,
            mark: String::new(),
        }
    }

    /// Returns the values of the column in those of `rows` that pass the filter.
    fn values(&self, rows: &[Row]) -> BTreeSet<Cell> {
        let passing =
            rows.iter().filter(|row| self.filter.as_ref().is_none_or(|test| test.holds(row) == Some(true)));
        passing.map(|row| row[self.column]).filter(|cell| *cell != Cell::Null).collect()
    }

    fn holds(&self, row: &Row, values: &BTreeSet<Cell>) -> bool {
        values.contains(&row[self.column]) != self.is_anti
    }
}

impl Test {
    fn random(random: &mut Random, depth: usize) -> Test {
        let kind = random.below(if depth > 0 { 7 } else { 4 });
        let some = |random: &mut Random| {
            let count = 1 + random.below(3);
            (0..count).map(|_| Test::random(random, depth - 1)).collect()
        };
        match kind {
            0 => Test::IsNull(1 + random.below(3)),
            1..4 => Test::comparison(random),
            4 => Test::Not(Box::new(Test::random(random, depth - 1))),
            5 => Test::All(some(random)),
            _ => Test::Any(some(random)),
        }
    }

    fn comparison(random: &mut Random) -> Test {
        let column = random.below(COLUMNS.len());
        let value = match column {
            0 => Cell::Int(random.below(3000) as i64),
            1 => Cell::Int(random.magnitude(400) as i64),
            2 => Cell::Int(random_large(random)),
            _ if random.chance(30) => Cell::Text(random.pick(long_words())),
            _ => Cell::Text(random.pick(&WORDS)),
        };
        Test::Compare(column, random.pick(&OPERATORS), value)
    }

    fn expr(&self) -> Expr {
        match self {
            Test::Compare(column, op, value) => {
                Expr::compare(*op, Expr::Column(*column), Expr::Literal(literal(*value)))
            }
            Test::IsNull(column) => Expr::IsNull(Box::new(Expr::Column(*column))),
            Test::Not(test) => Expr::not(test.expr()),
            Test::All(tests) => Expr::And(tests.iter().map(Test::expr).collect()),
            Test::Any(tests) => Expr::Or(tests.iter().map(Test::expr).collect()),
        }
    }

    /// Evaluates the condition in three-valued logic.
    fn holds(&self, row: &Row) -> Option<bool> {
        match self {
            Test::Compare(column, op, value) => match row[*column] {
                Cell::Null => None,
                cell => Some(compares(*op, cell.cmp(value))),
            },
            Test::IsNull(column) => Some(row[*column] == Cell::Null),
            Test::Not(test) => test.holds(row).map(|holds| !holds),
            Test::All(tests) => decided(tests, row, false),
            Test::Any(tests) => decided(tests, row, true),
        }
    }
}

/// Evaluates AND if `decides` is false, OR if it is true, in three-valued logic.
fn decided(tests: &[Test], row: &Row, decides: bool) -> Option<bool> {
    let mut is_known = true;
    for test in tests {
        match test.holds(row) {
            Some(holds) if holds == decides => return Some(decides),
            holds => is_known &= holds.is_some(),
        }
    }
    is_known.then_some(!decides)
}

fn compares(op: CompareOp, order: Ordering) -> bool {
    match op {
        CompareOp::Eq => order.is_eq(),
        CompareOp::NotEq => order.is_ne(),
        CompareOp::Lt => order.is_lt(),
        CompareOp::LtEq => order.is_le(),
        CompareOp::Gt => order.is_gt(),
        CompareOp::GtEq => order.is_ge(),
    }
}

fn literal(cell: Cell) -> Literal {
    let literal = match cell {
        Cell::Null => Literal::null(DataType::Int64),
        Cell::Int(value) => Literal::new(Value::Int(value.into()), DataType::Int64),
        Cell::Text(text) => Literal::new(Value::Text(text.to_string()), DataType::Utf8View),
    };
    literal.expect("a value of its type")
}

impl Shape {
    fn random(random: &mut Random) -> Shape {
        let chosen = random.below(15) + 1;
        let columns: Vec<usize> = (0..COLUMNS.len()).filter(|column| chosen >> column & 1 == 1).collect();
        match random.below(10) {
            0..4 => Shape::Rows(columns, random.chance(40).then(|| random.magnitude(2000))),
            4..6 => {
                let limit = 1 + random.magnitude(300);
                Shape::Top { columns, descending: random.chance(50), limit }
            }
            _ => {
                let keys = random.below(4);
                // Without keys there are no distinct keys to return.
                let aggregates = keys == 0 || random.chance(70);
                let keys = [1, 3].into_iter().filter(|key| (keys >> (key / 2)) & 1 == 1).collect();
                let rows_min = (aggregates && random.chance(30)).then(|| random.magnitude(100) as i64);
                Shape::Groups { keys, aggregates, rows_min }
            }
        }
    }

    fn having(&self) -> Option<Expr> {
        let Shape::Groups { keys, rows_min: Some(rows_min), .. } = self else { return None };
        let rows = Expr::Column(keys.len());
        Some(Expr::compare(CompareOp::GtEq, rows, Expr::Literal(literal(Cell::Int(*rows_min)))))
    }

    fn parts(&self) -> (Output, Vec<SortKey>, Option<usize>) {
        let columns =
            |columns: &[usize]| columns.iter().map(|&index| NamedExpr::column(&schema(), index)).collect();
        match self {
            Shape::Rows(of, limit) => (Output::Rows(columns(of)), Vec::new(), *limit),
            Shape::Top { columns: of, descending, limit } => {
                let key = SortKey { column: 0, descending: *descending, nulls_first: !descending };
                (Output::Rows(columns(of)), vec![key], Some(*limit))
            }
            Shape::Groups { keys, aggregates, .. } => {
                let aggregates = if *aggregates { all_aggregates() } else { Vec::new() };
                (Output::Aggregate { keys: columns(keys), aggregates }, Vec::new(), None)
            }
        }
    }
}

fn all_aggregates() -> Vec<Aggregate> {
    use AggregateFunction::{Count, Max, Min, Sum};
    let aggregate = |(index, function): (usize, AggregateFunction)| Aggregate {
        name: format!("a{index}"),
        function,
        arguments: if index == 0 { Vec::new() } else { vec![Expr::Column(2)] },
        filter: None,
        data_type: DataType::Int64,
    };
    [Count, Count, Sum, Min, Max].into_iter().enumerate().map(aggregate).collect()
}

fn project(rows: &[&Row], columns: &[usize]) -> Vec<Vec<Cell>> {
    rows.iter().map(|row| columns.iter().map(|&column| row[column]).collect()).collect()
}

/// Returns one row for each group, sorted by the group keys.
fn groups(rows: &[&Row], keys: &[usize], aggregates: bool) -> Vec<Vec<Cell>> {
    let mut groups: BTreeMap<Vec<Cell>, (i64, Vec<i64>)> = BTreeMap::new();
    if keys.is_empty() {
        groups.insert(Vec::new(), Default::default());
    }
    for row in rows {
        let (count, values) = groups.entry(keys.iter().map(|&key| row[key]).collect()).or_default();
        *count += 1;
        if let Cell::Int(value) = row[2] {
            values.push(value);
        }
    }
    let row = |(key, (count, values)): (Vec<Cell>, (i64, Vec<i64>))| {
        let cell = |value: Option<i64>| value.map_or(Cell::Null, Cell::Int);
        let sum = (!values.is_empty()).then(|| values.iter().sum());
        let (least, greatest) = (values.iter().min().copied(), values.iter().max().copied());
        let of_values = [Some(count), Some(values.len() as i64), sum, least, greatest];
        key.into_iter().chain(of_values.into_iter().map(cell).take(if aggregates { 5 } else { 0 })).collect()
    };
    let mut all: Vec<Vec<Cell>> = groups.into_iter().map(row).collect();
    all.sort_unstable();
    all
}

/// Compares sort keys; NULL comes first in ascending order, and last in descending order.
fn first_comes_first(a: Cell, b: Cell, descending: bool) -> Ordering {
    if descending { b.cmp(&a) } else { a.cmp(&b) }
}

/// Checks the first rows: any of those that tie with the last may be in the answer; all before them must be.
fn check_top(expected: &[Vec<Cell>], limit: usize, answer: &[Vec<Cell>]) -> Result<(), String> {
    let count = limit.min(expected.len());
    same_number(count, answer.len())?;
    let Some(last) = count.checked_sub(1).map(|index| expected[index][0]) else { return Ok(()) };
    let of_last_key = |row: &&Vec<Cell>| row[0] == last;
    let sorted = |rows: Vec<&Vec<Cell>>| {
        let mut rows: Vec<Vec<Cell>> = rows.into_iter().cloned().collect();
        rows.sort_unstable();
        rows
    };
    let (ties, before): (Vec<_>, Vec<_>) = answer.iter().partition(of_last_key);
    let (all_ties, _): (Vec<_>, Vec<_>) = expected.iter().partition(of_last_key);
    let all_before = expected[..count].iter().filter(|row| row[0] != last).collect();
    if sorted(before) != sorted(all_before) {
        return Err("other rows are before those of the last key".to_string());
    }
    is_part(&sorted(ties), &sorted(all_ties))
}

fn same_number(expected: usize, found: usize) -> Result<(), String> {
    if expected == found { Ok(()) } else { Err(format!("{found} rows came, and {expected} were to come")) }
}

/// Checks that the sorted `answer` consists of these columns of some of `rows`, each taken once.
fn are_of(answer: &[Vec<Cell>], rows: &[&Row], columns: &[usize]) -> Result<(), String> {
    let same = answer.chunk_by(|one, other| one == other);
    let mut lacking: Vec<(&[Cell], usize)> = same.map(|same| (&same[0][..], same.len())).collect();
    for row in rows {
        let projected = || columns.iter().map(|column| row[*column]);
        let found = lacking.binary_search_by(|(cells, _)| cells.iter().copied().cmp(projected()));
        if let Ok(place) = found {
            lacking[place].1 = lacking[place].1.saturating_sub(1);
        }
    }
    match lacking.iter().find(|(_, count)| *count > 0) {
        Some((row, _)) => Err(format!("the row {row:?} came, which is not in the result, or not so often")),
        None => Ok(()),
    }
}

/// Checks that the sorted `part` is contained in the sorted `whole`, duplicates included.
fn is_part(part: &[Vec<Cell>], whole: &[Vec<Cell>]) -> Result<(), String> {
    let mut rest = whole.iter().peekable();
    for row in part {
        while rest.next_if(|other| *other < row).is_some() {}
        if rest.next_if(|other| *other == row).is_none() {
            return Err(format!("the row {row:?} came, which is not in the result, or not so often"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        let row = |id, small: Option<i64>| {
            [Cell::Int(id), small.map_or(Cell::Null, Cell::Int), Cell::Int(10 * id), Cell::Text("ab")]
        };
        vec![row(1, Some(5)), row(2, None), row(3, Some(5)), row(4, Some(7))]
    }

    fn query(filter: Option<Test>, shape: Shape) -> Query {
        Query { table: "t".into(), filter, lookup: None, shape }
    }

    fn ids(ids: &[i64]) -> Vec<Vec<Cell>> {
        ids.iter().map(|&id| vec![Cell::Int(id)]).collect()
    }

    #[test]
    fn lost_doubled_and_wrong_rows_are_found() {
        let is_not_five = Test::Not(Box::new(Test::Compare(1, CompareOp::Eq, Cell::Int(5))));
        let query = query(Some(is_not_five), Shape::Rows(vec![0], None));
        assert_eq!(query.check(&rows(), ids(&[4])), Ok(()));
        assert!(query.check(&rows(), ids(&[])).is_err());
        assert!(query.check(&rows(), ids(&[2])).is_err());
        assert!(query.check(&rows(), ids(&[4, 4])).is_err());
    }

    #[test]
    fn lookups_keep_or_drop_rows_by_the_values_of_others() {
        let of_two = |is_anti| {
            let filter = Some(Test::Compare(0, CompareOp::LtEq, Cell::Int(2)));
            let lookup = Some(InTable { column: 1, filter, is_anti });
            Query { lookup, ..query(None, Shape::Rows(vec![0], None)) }
        };
        assert_eq!(of_two(false).check(&rows(), ids(&[1, 3])), Ok(()));
        // NULL is equal to nothing.
        assert_eq!(of_two(true).check(&rows(), ids(&[2, 4])), Ok(()));
        assert!(of_two(false).check(&rows(), ids(&[1, 2, 3])).is_err());
    }

    #[test]
    fn limits_leave_a_choice_and_no_more() {
        let any_two = query(None, Shape::Rows(vec![0], Some(2)));
        assert_eq!(any_two.check(&rows(), ids(&[1, 4])), Ok(()));
        assert!(any_two.check(&rows(), ids(&[4, 4])).is_err());
        let top = query(None, Shape::Top { columns: vec![1, 3], descending: true, limit: 2 });
        let answer = |small: [i64; 2]| small.map(|s| vec![Cell::Int(s), Cell::Text("ab")]).to_vec();
        assert_eq!(top.check(&rows(), answer([5, 7])), Ok(()));
        assert!(top.check(&rows(), answer([5, 5])).is_err());
    }

    #[test]
    fn groups_are_compared_whole() {
        let by_small = query(None, Shape::Groups { keys: vec![1], aggregates: true, rows_min: None });
        let group = |key: Cell, rest: [i64; 5]| [vec![key], rest.map(Cell::Int).to_vec()].concat();
        let fives = |sum| group(Cell::Int(5), [2, 2, sum, 10, 30]);
        let others = [group(Cell::Null, [1, 1, 20, 20, 20]), group(Cell::Int(7), [1, 1, 40, 40, 40])];
        let answer = |sum| [vec![fives(sum)], others.to_vec()].concat();
        assert_eq!(by_small.check(&rows(), answer(40)), Ok(()));
        assert!(by_small.check(&rows(), answer(41)).is_err());
        assert!(by_small.check(&rows(), others.to_vec()).is_err());
    }
}
