//! Random SQL over one table `t`.

use super::rng::Rng;
use super::table::{Column, Table};
use arrow::array::Array;
use arrow::datatypes::DataType;
use arrow::util::display::{ArrayFormatter, FormatOptions};

/// A query, and restrictions on the comparison of its result.
pub struct Query {
    pub sql: String,
    /// Whether the query may return any rows of the right number (LIMIT without ORDER BY), so that only their number is
    /// compared.
    pub limited: bool,
    /// Whether the query may fail or not depending on the order in which rows and conditions are evaluated.
    pub may_fail: bool,
}

impl Query {
    /// Creates a random query over `table`.
    pub fn random(rng: &mut Rng, table: &Table) -> Query {
        let mut writer = Writer { rng, table, may_fail: false };
        let (sql, limited) = writer.query();
        Query { sql, limited, may_fail: writer.may_fail }
    }
}

struct Writer<'a> {
    rng: &'a mut Rng,
    table: &'a Table,
    may_fail: bool,
}

impl<'a> Writer<'a> {
    fn query(&mut self) -> (String, bool) {
        let filter =
            if self.rng.once_in(4) { String::new() } else { format!(" WHERE {}", self.condition(3)) };
        match self.rng.below(5) {
            0 => (format!("SELECT {} FROM t{filter}", self.aggregates()), false),
            1 => {
                let keys = self.keys();
                let list =
                    if self.rng.once_in(4) { keys.clone() } else { format!("{keys}, {}", self.aggregates()) };
                (format!("SELECT {list} FROM t{filter} GROUP BY {keys}"), false)
            }
            2 => (format!("SELECT DISTINCT {} FROM t{filter}", self.keys()), false),
            3 if self.rng.once_in(2) => {
                let limit = *self.rng.pick(&[0, 1, 10, 5000]);
                (format!("SELECT {} FROM t{filter} LIMIT {limit}", self.outputs()), true)
            }
            _ => (format!("SELECT {} FROM t{filter}", self.outputs()), false),
        }
    }

    fn column(&mut self) -> &'a Column {
        let columns: &'a [Column] = &self.table.columns;
        self.rng.pick(columns)
    }

    fn column_that(&mut self, fits: impl Fn(&Column) -> bool) -> Option<&'a Column> {
        let fitting: Vec<&'a Column> = self.table.columns.iter().filter(|c| fits(c)).collect();
        if fitting.is_empty() { None } else { Some(*self.rng.pick(&fitting)) }
    }

    fn keys(&mut self) -> String {
        let mut keys: Vec<&str> = (0..1 + self.rng.below(3))
            .filter_map(|_| self.column_that(|c| !has_negative_zero(c)))
            .map(|c| c.name.as_str())
            .collect();
        keys.sort_unstable();
        keys.dedup();
        if keys.is_empty() { "1 + 1".to_string() } else { keys.join(", ") }
    }

    fn outputs(&mut self) -> String {
        if self.rng.once_in(6) {
            return "*".to_string();
        }
        let count = 1 + self.rng.below(4);
        let outputs: Vec<String> = (0..count).map(|index| format!("{} AS o{index}", self.value())).collect();
        outputs.join(", ")
    }

    /// Writes an expression of any type: a column, or an operation on columns.
    fn value(&mut self) -> String {
        let column = self.column();
        let name = &column.name;
        match self.rng.below(10) {
            0 if sums(column) => format!("{name} + {name}"),
            1 if sums(column) => format!("{name} * 3"),
            2 if sums(column) => format!("-CAST({name} AS DOUBLE)"),
            3 => {
                let condition = self.condition(1);
                format!("CASE WHEN {condition} THEN {name} ELSE {} END", self.literal(column))
            }
            4 => format!("CASE WHEN {} THEN {name} END", self.condition(1)),
            5 => format!("{name} IS NULL"),
            6 => format!("({})", self.condition(1)),
            7 if is_text(column) => format!("upper({name})"),
            8 if column.data_type.is_integer() => {
                self.may_fail = true;
                format!("100 / {name}")
            }
            _ => name.clone(),
        }
    }

    fn aggregates(&mut self) -> String {
        let count = 1 + self.rng.below(4);
        let aggregates: Vec<String> =
            (0..count).map(|index| format!("{} AS a{index}", self.aggregate())).collect();
        aggregates.join(", ")
    }

    fn aggregate(&mut self) -> String {
        let filter = if self.rng.once_in(5) {
            format!(" FILTER (WHERE {})", self.condition(1))
        } else {
            String::new()
        };
        let column = self.column();
        let name = &column.name;
        let aggregate = match self.rng.below(11) {
            0 => "count(*)".to_string(),
            1 => format!("count({name})"),
            2 if !has_negative_zero(column) => format!("count(DISTINCT {name})"),
            3 if !has_negative_zero(column) && orders(column) => format!("min({name})"),
            4 if !has_negative_zero(column) && orders(column) => format!("max({name})"),
            5 if sums(column) => format!("sum({name})"),
            6 if sums(column) => format!("avg({name})"),
            7 if sums(column) && !column.data_type.is_floating() => format!("sum({name} * 2 + 1)"),
            8 if column.data_type.is_integer() => {
                format!("{}({name})", self.rng.pick(&["bit_and", "bit_or", "bit_xor"]))
            }
            9 if column.data_type == DataType::Boolean => {
                format!("{}({name})", self.rng.pick(&["bool_and", "bool_or"]))
            }
            _ => "count(*)".to_string(),
        };
        aggregate + &filter
    }

    fn condition(&mut self, depth: usize) -> String {
        if depth > 0 && self.rng.once_in(2) {
            let word = *self.rng.pick(&["AND", "OR"]);
            let parts: Vec<String> = (0..2 + self.rng.below(2)).map(|_| self.condition(depth - 1)).collect();
            let all = parts.join(&format!(" {word} "));
            return if self.rng.once_in(5) { format!("NOT ({all})") } else { format!("({all})") };
        }
        let column = self.column();
        let name = &column.name;
        let op = *self.rng.pick(&["=", "<>", "<", "<=", ">", ">="]);
        match self.rng.below(12) {
            0 => format!("{name} IS NULL"),
            1 => format!("{name} IS NOT NULL"),
            2 => {
                let list: Vec<String> = (0..1 + self.rng.below(5)).map(|_| self.literal(column)).collect();
                let not = *self.rng.pick(&["", "NOT "]);
                format!("{name} {not}IN ({})", list.join(", "))
            }
            3 => format!("{name} BETWEEN {} AND {}", self.literal(column), self.literal(column)),
            4 if is_text(column) => {
                let pattern =
                    *self.rng.pick(&["%a%", "a%", "%e", "_pple", "%p%e%", "", "%", "100\\%", "Ä%", "%語%"]);
                let like = *self.rng.pick(&["LIKE", "NOT LIKE", "ILIKE"]);
                format!("{name} {like} '{pattern}'")
            }
            5 if is_text(column) => format!("length({name}) {op} 5"),
            6 => match self.column_that(|other| other.data_type == column.data_type) {
                Some(other) => format!("{name} {op} {}", other.name),
                None => format!("{name} = {name}"),
            },
            7 if column.data_type == DataType::Boolean => name.clone(),
            8 if sums(column) => format!("{name} + {name} {op} {}", self.rng.below(100)),
            9 if sums(column) => format!("abs({name}) {op} {}", self.rng.below(100)),
            10 if column.data_type.is_integer() => format!("{name} % 7 = {}", self.rng.below(7)),
            _ => format!("{name} {op} {}", self.literal(column)),
        }
    }

    /// Writes a constant of the column's type, mostly a value of the column.
    fn literal(&mut self, column: &Column) -> String {
        let values = &column.values;
        if values.len() == values.null_count() || self.rng.once_in(20) {
            return format!("arrow_cast(NULL, '{}')", column.data_type);
        }
        let mut row = self.rng.below(values.len());
        while values.is_null(row) {
            row = (row + 1) % values.len();
        }
        let options = FormatOptions::default();
        let text =
            ArrayFormatter::try_new(values, &options).expect("every type prints").value(row).to_string();
        self.literal_text(column, &text)
    }

    fn literal_text(&mut self, column: &Column, text: &str) -> String {
        use DataType::*;
        let quoted = text.replace('\'', "''");
        match &column.data_type {
            Boolean => text.to_string(),
            BinaryView => format!("X'{text}'"),
            Utf8View => format!("'{quoted}'"),
            // For an untyped number, DataFusion chooses the type of the comparison.
            t if t.is_integer() && self.rng.once_in(2) => text.to_string(),
            t => format!("arrow_cast('{quoted}', '{t}')"),
        }
    }
}

fn is_text(column: &Column) -> bool {
    column.data_type == DataType::Utf8View
}

/// Returns whether sums of the column are the same in every order of the rows.
fn sums(column: &Column) -> bool {
    use DataType::*;
    column.tame && (column.data_type.is_numeric()) && !matches!(column.data_type, Decimal128(38, _) | UInt64)
}

/// Returns whether the column may have -0.0 or NaN, whose grouping and sort order depend on the code path in
/// DataFusion.
fn has_negative_zero(column: &Column) -> bool {
    column.data_type.is_floating() && !column.tame
}

fn orders(column: &Column) -> bool {
    column.data_type != DataType::Boolean
}
