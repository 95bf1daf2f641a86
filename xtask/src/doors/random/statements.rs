//! Statements made of the forms in `testdata/doors/forms.toml`: each form by itself, then at random within each other and
//! in filters, groups, joins, orders and subqueries.

use super::Random;
use super::rows::{COLUMNS, COLUMNS_OF_U, ROWS};
use crate::doors::list;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Expressions by their types.
type ByType = BTreeMap<String, Vec<String>>;

/// The contents of `forms.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forms {
    scalar: ByType,
    aggregate: ByType,
    window: ByType,
}

/// A statement with what is known of its answer.
pub struct Statement {
    pub sql: String,
    /// The types of the result's columns.
    pub types: Vec<String>,
    /// Whether rows come in a certain order.
    pub is_ordered: bool,
    /// The forms in it.
    pub forms: Vec<String>,
}

impl Statement {
    /// Returns a statement of `testdata/doors.toml`, whose types are not known: values are compared as texts.
    pub fn of_list(sql: &str) -> Statement {
        let is_ordered = sql.to_lowercase().contains("order by");
        Statement { sql: sql.to_string(), types: Vec::new(), is_ordered, forms: Vec::new() }
    }
}

impl Forms {
    pub fn read() -> Result<Forms> {
        toml::from_str(&list::read("doors/forms.toml")?).context("testdata/doors/forms.toml")
    }

    /// Returns whether there is such a form, or such a name of what else statements are made of.
    pub fn has(&self, form: &str) -> bool {
        let mut all =
            [&self.scalar, &self.aggregate, &self.window].into_iter().flat_map(BTreeMap::values).flatten();
        OTHER_FORMS.contains(&form) || all.any(|known| known == form)
    }

    /// Returns statements with each form by itself, over all rows and over single ones.
    pub fn sweep(&self, random: &mut Random) -> Vec<Statement> {
        let mut all = Vec::new();
        for (of, form) in pairs(&self.scalar) {
            for table in ["m", "t"] {
                all.push(
                    self.single(random, of, form, |x| format!("SELECT id, {x} FROM {table} ORDER BY id")),
                );
            }
            // On all rows of `t`, many forms end with an error.
            for _ in 0..3 {
                let id = random.between(1, ROWS as i64);
                all.push(self.single(random, of, form, |x| format!("SELECT id, {x} FROM t WHERE id = {id}")));
            }
            // Keys of groups are handed over by `postgres_fdw`, unlike expressions beside SELECT.
            for table in ["m", "t"] {
                let mut grouped = self
                    .single(random, of, form, |x| format!("SELECT {x}, count(*) FROM {table} GROUP BY 1"));
                grouped.types = vec![of.into(), "int8".into()];
                grouped.is_ordered = false;
                if of == "interval" {
                    grouped.forms.push(GROUPED_INTERVALS.into());
                }
                all.push(grouped);
            }
            if of == "bool" {
                for table in ["m", "t"] {
                    let mut filtered = self.single(random, of, form, |x| {
                        format!("SELECT id FROM {table} WHERE {x} ORDER BY id")
                    });
                    filtered.types.truncate(1);
                    all.push(filtered);
                }
            }
        }
        for (of, form) in pairs(&self.aggregate) {
            for table in ["m", "t", "m WHERE false", "t WHERE id > 35"] {
                let mut whole = self.single(random, of, form, |x| format!("SELECT {x} FROM {table}"));
                whole.types.remove(0);
                all.push(whole);
            }
            for table in ["m", "t"] {
                let sql = |x: &str| format!("SELECT c, {x} FROM {table} GROUP BY c ORDER BY c");
                let mut grouped = self.single(random, of, form, sql);
                grouped.types[0] = "text".into();
                all.push(grouped);
            }
        }
        for (of, form) in pairs(&self.window) {
            for table in ["m", "t"] {
                all.push(
                    self.single(random, of, form, |x| format!("SELECT id, {x} FROM {table} ORDER BY id")),
                );
            }
        }
        all
    }

    fn single(
        &self,
        random: &mut Random,
        of: &str,
        form: &str,
        sql: impl FnOnce(&str) -> String,
    ) -> Statement {
        let mut writer = Writer::new(self, random, "");
        let expression = writer.filled(form, 0);
        let forms = writer.used;
        Statement { sql: sql(&expression), types: vec!["int4".into(), of.into()], is_ordered: true, forms }
    }

    /// Returns a statement of forms within each other.
    pub fn composed(&self, random: &mut Random) -> Statement {
        let table = ["m", "t"][usize::from(random.below(4) == 0)];
        let kind = random.below(9);
        let mut writer = Writer::new(self, random, "");
        let (sql, types, is_ordered) = match kind {
            0 | 1 => writer.filter(table),
            2 => writer.ordered(table),
            3 | 4 => writer.grouped(table),
            5 => writer.subquery(table),
            6 => writer.set_operation(table),
            7 => writer.windowed(table),
            _ => writer.joined(table),
        };
        Statement { sql, types, is_ordered, forms: writer.used }
    }
}

/// Parts of statements beside the forms of the file.
const OTHER_FORMS: [&str; 8] =
    ["ORDER BY", "GROUP BY", "JOIN", "IN (SELECT)", "EXISTS", "UNION", DECIMAL, GROUPED_INTERVALS];
/// Intervals in groups.
const GROUPED_INTERVALS: &str = "GROUP BY interval";
/// A constant with a point.
const DECIMAL: &str = "1.5";

fn pairs(forms: &ByType) -> impl Iterator<Item = (&str, &str)> {
    forms.iter().flat_map(|(of, all)| all.iter().map(move |form| (of.as_str(), form.as_str())))
}

/// Writes expressions over one table.
struct Writer<'a> {
    forms: &'a Forms,
    random: &'a mut Random,
    /// Stands before the names of columns.
    prefix: &'static str,
    used: Vec<String>,
}

/// The types that columns of results are taken from.
const RESULTS: [&str; 10] =
    ["bool", "int4", "int8", "numeric", "float8", "text", "date", "timestamp", "timestamptz", "interval"];

type Written = (String, Vec<String>, bool);

impl<'a> Writer<'a> {
    fn new(forms: &'a Forms, random: &'a mut Random, prefix: &'static str) -> Self {
        Writer { forms, random, prefix, used: Vec::new() }
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.random.below(from.len())].clone()
    }

    fn filter(&mut self, table: &str) -> Written {
        let types = [self.pick(&RESULTS), self.pick(&RESULTS)];
        let (a, b) = (self.expression(types[0], 2), self.expression(types[1], 1));
        let condition = self.expression("bool", 2);
        let sql = format!("SELECT id, {a}, {b} FROM {table} WHERE {condition}");
        (sql, typed(&["int4", types[0], types[1]]), false)
    }

    fn ordered(&mut self, table: &str) -> Written {
        self.used.push("ORDER BY".into());
        let of = self.pick(&RESULTS);
        // PostgreSQL refuses constants as keys, which the condition hides.
        let key = self.expression(of, 1);
        let direction = self.pick(&["", " DESC", " NULLS FIRST", " DESC NULLS LAST"]);
        let (limit, offset) = (self.random.below(20), self.random.below(5));
        let condition = self.expression("bool", 1);
        let sql = format!(
            "SELECT id FROM {table} WHERE {condition} ORDER BY CASE WHEN id > 0 THEN {key} END{direction}, id LIMIT {limit} OFFSET {offset}"
        );
        (sql, typed(&["int4"]), true)
    }

    fn grouped(&mut self, table: &str) -> Written {
        self.used.push("GROUP BY".into());
        let of = self.pick(&["bool", "int4", "text", "date", "numeric"]);
        let key = self.expression(of, 1);
        let (first, a) = self.aggregate();
        let (second, b) = self.aggregate();
        let condition = self.expression("bool", 1);
        let having = match self.random.below(3) {
            0 => " HAVING count(*) > 1".to_string(),
            1 => format!(" HAVING max({}) IS NOT NULL", self.leaf("int4")),
            _ => String::new(),
        };
        let sql = format!("SELECT {key}, {a}, {b} FROM {table} WHERE {condition} GROUP BY 1{having}");
        (sql, typed(&[of, &first, &second]), false)
    }

    fn subquery(&mut self, table: &str) -> Written {
        let (name, condition) = match self.random.below(4) {
            0 => ("IN (SELECT)", format!("{table}.i4 IN (SELECT u.k FROM u WHERE u.n > 0)")),
            1 => ("IN (SELECT)", format!("{table}.i4 NOT IN (SELECT u.k FROM u WHERE u.k IS NOT NULL)")),
            2 => ("EXISTS", format!("EXISTS (SELECT 1 FROM u WHERE u.k = {table}.i4 AND u.d > {table}.d)")),
            _ => ("EXISTS", format!("(SELECT max(u.n) FROM u WHERE u.s = {table}.s) > {table}.n")),
        };
        self.used.push(name.into());
        let filter = self.expression("bool", 1);
        (format!("SELECT id FROM {table} WHERE {condition} OR NOT ({filter})"), typed(&["int4"]), false)
    }

    fn set_operation(&mut self, table: &str) -> Written {
        self.used.push("UNION".into());
        let of = self.pick(&RESULTS);
        if of == "interval" {
            self.used.push(GROUPED_INTERVALS.into());
        }
        let operation = self.pick(&["UNION", "UNION ALL", "INTERSECT", "EXCEPT", "EXCEPT ALL"]);
        let (a, b) = (self.expression(of, 1), self.expression(of, 1));
        (format!("SELECT {a} FROM {table} {operation} SELECT {b} FROM m"), typed(&[of]), false)
    }

    fn windowed(&mut self, table: &str) -> Written {
        let forms = self.forms;
        let all: Vec<_> = pairs(&forms.window).collect();
        let (of, form) = self.pick(&all);
        let window = self.filled(form, 1);
        let condition = self.expression("bool", 1);
        (format!("SELECT id, {window} FROM {table} WHERE {condition}"), typed(&["int4", of]), false)
    }

    fn joined(&mut self, table: &str) -> Written {
        self.used.push("JOIN".into());
        let join = self.pick(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]);
        self.prefix = "a.";
        let of = self.pick(&RESULTS);
        let a = self.expression(of, 1);
        let condition = self.expression("bool", 1);
        let on =
            self.pick(&["a.i4 = u.k", "a.s = u.s", "a.i4 = u.k AND a.s <= u.s", "a.n = u.n", "a.d = u.d"]);
        let column = self.pick(&COLUMNS_OF_U[2..]);
        let sql = match self.random.below(2) {
            0 => {
                format!("SELECT a.id, u.{}, {a} FROM {table} a {join} u ON {on} WHERE {condition}", column.0)
            }
            _ => format!(
                "SELECT u.{}, count(*), min({a}) FROM {table} a {join} u ON {on} WHERE {condition} GROUP BY 1",
                column.0
            ),
        };
        let is_grouped = sql.starts_with("SELECT u.");
        match is_grouped {
            true if of == "bool" => self.joined(table),
            true => (sql, typed(&[base(column.1), "int8", of]), false),
            false => (sql, typed(&["int4", base(column.1), of]), false),
        }
    }

    fn aggregate(&mut self) -> (String, String) {
        let forms = self.forms;
        let all: Vec<_> = pairs(&forms.aggregate).collect();
        let (of, form) = self.pick(&all);
        (of.to_string(), self.filled(form, 1))
    }

    fn expression(&mut self, of: &str, depth: usize) -> String {
        let forms = self.forms;
        match forms.scalar.get(of) {
            Some(all) if depth > 0 && self.random.below(4) > 0 => {
                let form = self.pick(all);
                // Windows and random numbers have no place in filters and groups.
                match form.contains("OVER") || form.contains("random()") {
                    true => self.leaf(of),
                    false => format!("({})", self.filled(&form, depth - 1)),
                }
            }
            _ => self.leaf(of),
        }
    }

    /// Replaces the types in a form by expressions of these types.
    fn filled(&mut self, form: &str, depth: usize) -> String {
        self.used.push(form.to_string());
        let (mut text, mut rest) = (String::new(), form);
        while let Some((before, (of, behind))) =
            rest.split_once('{').and_then(|(before, behind)| Some((before, behind.split_once('}')?)))
        {
            text.push_str(before);
            // Braces of a constant (an array, JSON) are no operand.
            match of {
                "n" => text.push_str(&self.random.below(5).to_string()),
                _ if of.chars().all(|c| c.is_ascii_alphanumeric()) && !of.is_empty() => {
                    text.push_str(&self.expression(of, depth));
                }
                _ => text.push_str(&format!("{{{of}}}")),
            }
            rest = behind;
        }
        text + rest
    }

    /// Returns a column, or sometimes a constant.
    fn leaf(&mut self, of: &str) -> String {
        let columns: Vec<&str> =
            COLUMNS[1..].iter().filter(|(_, known)| base(known) == of).map(|(name, _)| *name).collect();
        if !columns.is_empty() && self.random.below(4) > 0 {
            let column = self.pick(&columns);
            return format!("{}{column}", self.prefix);
        }
        let number = self.random.between(-9, 9);
        match of {
            "bool" => self.pick(&["true", "false", "NULL::bool"]).to_string(),
            "int2" | "int4" | "int8" => format!("({number})::{of}"),
            "numeric" => {
                self.used.push(DECIMAL.into());
                format!("({number}.{:02})::numeric", self.random.below(100))
            }
            "float4" | "float8" => format!("({number}.5)::{of}"),
            "text" => format!("'{}'::text", self.pick(&["a", "ab", "", "10", "B", "ä"])),
            "date" => self.pick(&["date '2024-02-29'", "date '1999-12-31'"]).to_string(),
            "timestamp" => {
                self.pick(&["timestamp '2024-02-29 12:34:56.5'", "timestamp '1969-12-31 23:59:59'"]).into()
            }
            "timestamptz" => self
                .pick(&["timestamptz '2024-02-29 12:34:56+02'", "timestamptz '2001-01-01 00:00:00+00'"])
                .into(),
            "interval" => self
                .pick(&["interval '1 month 2 days 03:04:05'", "interval '-1 day'", "interval '90 minutes'"])
                .into(),
            _ => "'\\x6162'::bytea".to_string(),
        }
    }
}

fn typed(types: &[&str]) -> Vec<String> {
    types.iter().map(|of| (*of).to_string()).collect()
}

/// Returns a type without its precision.
fn base(of: &str) -> &str {
    of.split('(').next().unwrap_or(of)
}
