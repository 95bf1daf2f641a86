//! SQL statements that read a keyspace while clients change its keys, and the command `FP.SCAN`.

use super::World;
use super::model::{Named, Value, passes};
use super::replies::{elements, strings};
use crate::checks::Checked;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use farpool_model::{CompareOp, ErrorKind, Expr, Literal, NamedExpr, Output, Program, TableName};
use farpool_node::Shape;
use farpool_pipeline::{BoundProgram, Run, Step};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::Poll;

/// Maximal number of concurrent statements that read keyspaces.
const SCANS_MAX: usize = 4;

/// A running statement: its expected rows, and the rows received so far.
pub struct Scan {
    run: Arc<Run>,
    /// Holds the point in time that is read, as long as the statement runs.
    _bound: BoundProgram,
    table: String,
    expected: Vec<Vec<String>>,
    rows: Vec<Vec<String>>,
}

impl World {
    /// Begins a statement that reads a whole keyspace, or runs a complete scan by `FP.SCAN`.
    pub fn begin_scan(&mut self) -> Checked {
        if self.random.chance(30) {
            return self.scan_at_once();
        }
        if self.scans.len() == SCANS_MAX {
            return Ok(());
        }
        let name = self.random.pick(&["u", "s", "default", "db1"]);
        let least = self.random.below(1000) as i64 - 500;
        let least = (name == "u" && self.random.chance(50)).then_some(least);
        // SQL reads keys as of the time of day, unless the node has seen a later time.
        let seen = self.latest;
        self.latest = seen.max(self.now);
        let expected = self.rows_of(name, least);
        let table = TableName::new(name).map_err(|error| error.to_string())?;
        let source = match self.life.caller.source(&table) {
            Ok((version, source)) => (version, source),
            Err(error) if error.kind == ErrorKind::NotFound && expected.is_empty() => {
                self.latest = seen;
                return Ok(());
            }
            Err(error) => return Err(format!("a statement over {name}: {error}")),
        };
        let program = program(table, name == "u", least)?;
        let bound =
            self.life.caller.prepare(&program, source.0, source.1).map_err(|error| error.to_string())?;
        let run = self.life.caller.start(&bound, None, Shape::Batches).map_err(|error| error.to_string())?;
        self.tell(format!("a statement over {name} ({least:?}) begins, of {} rows", expected.len()));
        self.scans.push(Scan { run, _bound: bound, table: name.into(), expected, rows: Vec::new() });
        Ok(())
    }

    /// Returns the rows that a statement over a keyspace must return, in order.
    fn rows_of(&self, table: &str, least: Option<i64>) -> Vec<Vec<String>> {
        let Named { rows, plain } = self.named;
        let is_owned = |name: &str| rows && name.starts_with("u:") || plain && name.starts_with("s:");
        let is_of = |space: u32, name: &str| match table {
            "u" => space == 0 && rows && name.starts_with("u:"),
            "s" => space == 0 && plain && name.starts_with("s:"),
            "default" => space == 0 && !is_owned(name),
            _ => space == 1,
        };
        let mut found = Vec::new();
        for key in self.live().into_iter().filter(|(space, name)| is_of(*space, name)) {
            found.push(match &self.map[&key].value {
                Value::Text(text) => vec![key.1, String::from_utf8_lossy(text).into_owned()],
                Value::Hash(_) if table != "u" => vec![key.1, "NULL".into()],
                Value::Hash(fields) => {
                    if least.is_some_and(|least| !passes(fields, &format!("n > {least}"))) {
                        continue;
                    }
                    let text = |field: &str| match fields.get(field) {
                        Some(value) => String::from_utf8_lossy(value).into_owned(),
                        None => "NULL".into(),
                    };
                    vec![key.1[2..].to_string(), text("n"), text("s")]
                }
            });
        }
        found.sort();
        found
    }

    /// Runs some steps of the running statements.
    pub fn step_scans(&mut self) -> Checked {
        for _ in 0..1 + self.random.magnitude(30) {
            if self.scans.is_empty() {
                return Ok(());
            }
            let at = self.random.below(self.scans.len());
            _ = self.step_scan(at)?;
        }
        Ok(())
    }

    /// Runs all remaining steps of all statements, and ends those that wait until what they have read is durable.
    pub fn end_scans(&mut self) -> Checked {
        while !self.scans.is_empty() {
            if self.step_scan(0)?.is_pending() {
                self.scans.swap_remove(0);
            }
        }
        Ok(())
    }

    /// Runs a step of a statement; it is pending while what it has read is not durable.
    fn step_scan(&mut self, at: usize) -> Checked<Poll<()>> {
        let (is_lossy, is_failing) = (self.setting.maxmemory > 0, !self.life.log.is_writing());
        let scan = &mut self.scans[at];
        match scan.run.step(&*self.clock) {
            Ok(Step::Batches(batches)) => {
                for batch in batches {
                    scan.rows.extend(rows_of(&batch)?);
                }
                Ok(Poll::Ready(()))
            }
            Ok(Step::Done) => {
                let mut scan = self.scans.swap_remove(at);
                scan.rows.sort();
                self.tell(format!("a statement over {} ends, with {} rows", scan.table, scan.rows.len()));
                if scan.rows == scan.expected {
                    return Ok(Poll::Ready(()));
                }
                let differ = scan.rows.iter().zip(&scan.expected).find(|(one, other)| one != other);
                let (found, wanted) = (scan.rows.len(), scan.expected.len());
                let differ = format!("{differ:?}");
                Err(format!(
                    "a statement over {} has {found} rows in place of {wanted}: {differ:.300}",
                    scan.table
                ))
            }
            Ok(Step::Busy) => Ok(Poll::Pending),
            Ok(_) => Ok(Poll::Ready(())),
            Err(error)
                if error.kind == ErrorKind::Stale && is_lossy
                    || error.kind == ErrorKind::Unavailable && is_failing =>
            {
                self.scans.swap_remove(at);
                self.tell(format!("a statement ends: {error}"));
                Ok(Poll::Ready(()))
            }
            Err(error) => Err(format!("a statement failed: {error}")),
        }
    }

    /// Runs a complete scan by `FP.SCAN`, without changes in between.
    fn scan_at_once(&mut self) -> Checked {
        let (name, condition) =
            self.random.pick(&[("u", "n > 7"), ("s", "value like 'a%'"), ("default", "value like 'a%'")]);
        self.observed(&["SELECT", "0"]);
        let is_there = match name {
            "u" => self.named.rows,
            "s" => self.named.plain,
            _ => true,
        };
        let mut found = BTreeSet::new();
        let mut cursor = "0".to_string();
        loop {
            let reply = self.observed(&["FP.SCAN", name, condition, "LIMIT", "20", "CURSOR", &cursor]);
            if !is_there && reply.starts_with(b"-ERR no space") {
                return Ok(());
            }
            let wrong = || format!("FP.SCAN {name}: {}", reply[..reply.len().min(300)].escape_ascii());
            let parts = elements(&reply).filter(|parts| parts.len() == 2).ok_or_else(wrong)?;
            let entries = elements(parts[1]).ok_or_else(wrong)?;
            for entry in entries {
                let entry = elements(entry).filter(|entry| entry.len() == 2).ok_or_else(wrong)?;
                let key = strings(&[b"*1\r\n", entry[0]].concat()).ok_or_else(wrong)?;
                found.extend(key.into_iter().map(|key| String::from_utf8_lossy(&key).into_owned()));
            }
            let next = strings(&[b"*1\r\n", parts[0]].concat()).ok_or_else(wrong)?;
            cursor = String::from_utf8_lossy(&next[0]).into_owned();
            if cursor == "0" {
                break;
            }
        }
        let least = (name == "u").then_some(7);
        let rows = self.rows_of(name, least).into_iter();
        let expected: BTreeSet<String> = match name {
            "u" => rows.map(|row| format!("u:{}", row[0])).collect(),
            _ => rows.filter(|row| row[1].starts_with('a')).map(|mut row| row.swap_remove(0)).collect(),
        };
        self.tell(format!("FP.SCAN {name} finds {} keys", found.len()));
        if found == expected {
            Ok(())
        } else {
            Err(format!("FP.SCAN {name}: {found:?} in place of {expected:?}"))
        }
    }
}

/// Returns the program that reads all columns of a keyspace: the key and two fields, or the key and the value.
fn program(table: TableName, is_rows: bool, least: Option<i64>) -> Checked<Program> {
    let names: &[&str] = if is_rows { &["id", "n", "s"] } else { &["key", "value"] };
    let columns = names.iter().enumerate();
    let columns =
        columns.map(|(at, name)| NamedExpr { name: (*name).into(), expr: Expr::Column(at) }).collect();
    let literal = |least: i64| Literal::new(farpool_model::Value::Int(least.into()), DataType::Int32);
    let literal = least.map(literal).transpose().map_err(|error| error.to_string())?;
    let filter = literal.map(|literal| {
        Expr::Compare(CompareOp::Gt, Box::new(Expr::Column(1)), Box::new(Expr::Literal(literal)))
    });
    Ok(Program {
        table,
        version: None,
        lookups: Vec::new(),
        filter,
        output: Output::Rows(columns),
        having: None,
        order: Vec::new(),
        limit: None,
    })
}

fn rows_of(batch: &RecordBatch) -> Checked<Vec<Vec<String>>> {
    let columns = batch.columns().iter().map(texts).collect::<Checked<Vec<_>>>()?;
    Ok((0..batch.num_rows()).map(|row| columns.iter().map(|texts| texts[row].clone()).collect()).collect())
}

fn texts(column: &ArrayRef) -> Checked<Vec<String>> {
    let null = || "NULL".to_string();
    Ok(match column.data_type() {
        DataType::UInt64 => column
            .as_primitive::<UInt64Type>()
            .iter()
            .map(|id| id.map_or_else(null, |id| id.to_string()))
            .collect(),
        DataType::Int32 => column
            .as_primitive::<Int32Type>()
            .iter()
            .map(|n| n.map_or_else(null, |n| n.to_string()))
            .collect(),
        DataType::Utf8View => {
            column.as_string_view().iter().map(|text| text.map_or_else(null, str::to_string)).collect()
        }
        DataType::Utf8 => {
            column.as_string::<i32>().iter().map(|text| text.map_or_else(null, str::to_string)).collect()
        }
        other => return Err(format!("a column of type {other}")),
    })
}
