//! EXPLAIN in PostgreSQL's form: its options, and estimates at the end of the first line, which `postgres_fdw` reads to
//! choose between plans (`use_remote_estimate`).
//!
//! The plan itself is told in the engine's own words.

use super::engine::{Running, placed};
use super::{Outcome, Place, Session, Started};
use farpool_datafusion::{Parameters, Query, Statement};
use farpool_postgres::failure::{Failure, code};

/// The name of the only column of EXPLAIN, which clients look for.
pub(super) const QUERY_PLAN: &str = "QUERY PLAN";

/// Nanoseconds of a unit of cost. Reason: one unit is the time to read a page of 8 KiB in PostgreSQL, which is of this
/// order, and local costs stand beside these.
const UNIT_NS: f64 = 10_000.0;

/// Units of cost of a row on its way to the client: a microsecond, in which `postgres_fdw` reads it.
const ROW_COST: f64 = 0.1;

/// Units of cost before the first row. Reason: planning a statement and its round trips take some 3 ms. `postgres_fdw` would
/// otherwise ask once for each row of another table.
const STATEMENT_COST: f64 = 300.0;

/// Options with a truth value that change nothing in the plan as it is told here.
const IGNORED: &[&str] = &["buffers", "generic_plan", "memory", "settings", "summary", "timing", "wal"];

/// A statement that is explained.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Explained<'a> {
    /// The statement without EXPLAIN and its options.
    pub text: &'a str,
    /// Whether it is carried out, and what it took is told.
    pub is_carried_out: bool,
    has_costs: bool,
}

impl<'a> Explained<'a> {
    /// Reads an EXPLAIN; `None` for another statement.
    ///
    /// # Errors
    /// A failure for an option that is not known.
    pub fn of(text: &'a str) -> std::result::Result<Option<Self>, Failure> {
        let (word, mut rest) = first_word(text);
        if word != "explain" {
            return Ok(None);
        }
        let mut explained = Explained { text: rest, is_carried_out: false, has_costs: true };
        if let Some(list) = rest.trim_start().strip_prefix('(') {
            let (options, behind) = match list.split_once(')') {
                // A statement in brackets has more than names and values of options in front of the first one that ends.
                Some((options, behind)) if !options.contains('(') && first_word(options).0 != "select" => {
                    (options, behind)
                }
                _ => return Ok(Some(explained)),
            };
            for option in options.split(',') {
                explained.option(option)?;
            }
            return Ok(Some(Explained { text: behind, ..explained }));
        }
        loop {
            explained.text = rest;
            let (word, behind) = first_word(rest);
            match word.as_str() {
                "analyze" | "analyse" => explained.is_carried_out = true,
                "verbose" => {}
                _ => return Ok(Some(explained)),
            }
            rest = behind;
        }
    }

    fn option(&mut self, option: &str) -> std::result::Result<(), Failure> {
        let (name, value) = first_word(option);
        let value = value.trim().trim_matches('\'').to_lowercase();
        let is_on = match value.as_str() {
            "" | "on" | "true" | "1" => Some(true),
            "off" | "false" | "0" => Some(false),
            _ => None,
        };
        match (name.as_str(), is_on) {
            ("analyze" | "analyse", Some(is_on)) => self.is_carried_out = is_on,
            ("costs", Some(is_on)) => self.has_costs = is_on,
            ("verbose", Some(_)) => {}
            (name, Some(_)) if IGNORED.contains(&name) => {}
            ("format", None) if value == "text" => {}
            ("format", _) => {
                let failure = Failure::new(code::FEATURE_NOT_SUPPORTED, "plans are told as text only");
                return Err(failure.hint("leave FORMAT away"));
            }
            _ => {
                let message = format!("unrecognized EXPLAIN option \"{}\"", option.trim());
                return Err(Failure::new(code::SYNTAX_ERROR, message));
            }
        }
        Ok(())
    }

    /// Returns the number of characters in front of the statement.
    pub fn offset(&self, whole: &str) -> usize {
        whole.chars().count().saturating_sub(self.text.chars().count())
    }
}

/// Returns the first word of a text, in lower case, and what follows it.
fn first_word(text: &str) -> (String, &str) {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    (word.to_ascii_lowercase(), rest)
}

impl Session {
    /// Plans a statement, and returns its plan as rows.
    pub(super) async fn explain(
        &mut self,
        explained: &Explained<'_>,
        place: Place<'_>,
        values: Parameters,
    ) -> Outcome<Started> {
        let inner = Place { text: explained.text, offset: place.offset + explained.offset(place.text) };
        let statement = self.entry.running.begin();
        let deadline = self.deadline();
        let session = self.engine_session();
        let text = self.transaction.shown_to(Statement::from(explained.text).with_parameters(values));
        let snapshot = self.transaction.snapshot().cloned();
        let planned = async move {
            match snapshot {
                Some(snapshot) => session.sql_at(text, &snapshot).await,
                None => session.sql(text).await,
            }
        };
        let query = self.guarded(&statement, deadline, planned).await.map_err(|stop| placed(stop, inner))?;
        let plan = super::engine::lines(told(&query, explained.has_costs))?;
        let running = Running::of_batch(plan, "EXPLAIN", statement, self.settings.style.clone());
        Ok(Started::Rows(Box::new(running)))
    }
}

/// Returns the lines of a plan.
fn told(query: &Query, has_costs: bool) -> Vec<String> {
    let estimated = query.estimated();
    let cost = match has_costs {
        true => format!(
            "  (cost={:.2}..{:.2} rows={} width={})",
            STATEMENT_COST + estimated.first_ns / UNIT_NS,
            STATEMENT_COST + estimated.ns / UNIT_NS + ROW_COST * estimated.rows as f64,
            estimated.rows,
            estimated.row_bytes
        ),
        false => String::new(),
    };
    let plan = query.explain();
    std::iter::once(format!("Farpool{cost}")).chain(plan.lines().map(|line| format!("  {line}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_in_both_forms() {
        let of = |text| {
            let explained = Explained::of(text).unwrap().unwrap();
            (explained.text.trim().to_string(), explained.is_carried_out, explained.has_costs)
        };
        let plain = |text: &str, is_carried_out, has_costs| (text.to_string(), is_carried_out, has_costs);
        assert_eq!(of("EXPLAIN select 1"), plain("select 1", false, true));
        assert_eq!(of("explain verbose select 1"), plain("select 1", false, true));
        assert_eq!(of("explain analyze verbose select 1"), plain("select 1", true, true));
        assert_eq!(of("explain (costs off, verbose) select (1)"), plain("select (1)", false, false));
        assert_eq!(
            of("explain (ANALYZE, FORMAT 'text', timing off) (select 1)"),
            plain("(select 1)", true, true)
        );
        assert_eq!(of("explain (select 1)"), plain("(select 1)", false, true));
        assert_eq!(of("explain (analyze off) select ')'"), plain("select ')'", false, true));
        assert_eq!(
            of("explain ((select 1) union select 2)"),
            plain("((select 1) union select 2)", false, true)
        );
        assert!(Explained::of("select 1").unwrap().is_none());
        for wrong in
            ["explain (format json) select 1", "explain (nothing) select 1", "explain (costs 7) select 1"]
        {
            assert!(Explained::of(wrong).is_err(), "{wrong}");
        }
        let whole = "explain (costs off) select é";
        assert_eq!(Explained::of(whole).unwrap().unwrap().offset(whole), 19);
    }
}
