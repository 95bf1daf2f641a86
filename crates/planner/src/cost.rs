//! The cost model that decides whether a part of a query runs at the pool: three formulas over a table of rates.
//!
//! A program can be carried out in three ways. The first ("push") sends the fewest bytes; the others spare the pool's
//! workers. With `passed` rows after the filter, which always runs at the pool:
//!
//! ```text
//! push   = latency + (filter + finish)/workers                + bytes of the result/link
//! packed = latency +  filter/workers + (decode + finish)/threads + passed · packed width/link
//! plain  = latency + (filter + decode)/workers + finish/threads  + passed · plain width/link
//! ```
//!
//! `workers` and `threads` are the numbers of threads of the pool and of the engine, and `link` is the bandwidth.
//! `finish` is the work after the filter (grouping, top-k), at the rates of the pool or of the engine. In process there
//! is no network link, and `packed` is the same as `plain`.
//!
//! Invariant: a choice affects time only, never the result.

pub(crate) mod joined;

use crate::estimate;
use crate::rows::Rows;
use farpool_model::{Expr, Lookup, Output, Program, TableInfo, schema};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::{self, Write};

/// Maximum ratio of the estimated time of another way to that of pushing, for the other way to be chosen. Reason:
/// estimates are rough, and pushing also saves memory in the engine.
pub const CHEAPER_BY: f64 = 0.8;

/// [`CHEAPER_BY`] for joins whose result is groups or a limited number of rows. Reason: the engine's joins turn out two to
/// four times as slow as estimated, because join keys thin out its scans less than assumed (TPC-H Q5 and Q10).
const JOINS_CHEAPER_BY: f64 = 1.0 / 3.0;

/// Maximum number of groups for which a hash table of groups stays in the CPU caches: 64 Ki entries of some 32 bytes
/// are 2 MiB.
pub(crate) const GROUPS_CACHED: f64 = 65_536.0;

/// Throughput of one thread, in rows or bytes per second. Measured by `farpool calibrate`; rates that are not measured
/// have defaults.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rates {
    /// Rows per second that the pool compares with a constant, without decoding them.
    pub pool_filter_rows: f64,
    /// Rows per second whose string the pool matches against a pattern.
    pub pool_match_rows: f64,
    /// Rows per second that the pool aggregates into few groups.
    pub pool_group_rows: f64,
    /// Rows per second that the pool aggregates into more groups than the CPU caches hold, if it can treat the group
    /// keys as one integer.
    pub pool_spread_rows: f64,
    /// Rows per second that the pool aggregates into more groups than the CPU caches hold, with other group keys:
    /// strings, or several keys of more than 64 bits together.
    pub pool_text_rows: f64,
    /// Bytes per second (after decoding) that are decoded from packed columns.
    pub decode_bytes: f64,
    /// Rows per second that the engine aggregates into few groups.
    pub engine_group_rows: f64,
    /// Rows per second that the engine aggregates into more groups than the CPU caches hold, with integer group keys.
    pub engine_spread_rows: f64,
    /// Rows per second that the engine aggregates into more groups than the CPU caches hold, with string group keys.
    pub engine_text_rows: f64,
    /// Rows per second from which the engine selects the first in a sort order (top-k).
    pub engine_top_rows: f64,
    /// Rows per second that the pool puts into the table of a lookup (the build side of a join).
    pub pool_build_rows: f64,
    /// Rows per second for which the pool looks for matches in that table.
    pub pool_probe_rows: f64,
    /// Rows per second that lookups give, with the columns of the match, to the operators after them.
    pub pool_joined_rows: f64,
    /// Rows per second that the engine puts into the hash table of a join.
    pub engine_build_rows: f64,
    /// Rows per second for which the engine looks for matches in that hash table.
    pub engine_probe_rows: f64,
}

impl Default for Rates {
    /// Medians of four runs of `farpool calibrate` on an idle machine of two cores with AVX-512, 2026-11-22.
    fn default() -> Self {
        Rates {
            pool_filter_rows: 6.7e9,
            pool_match_rows: 9.3e7,
            pool_group_rows: 1.2e9,
            pool_spread_rows: 3.3e7,
            pool_text_rows: 9.0e6,
            decode_bytes: 1.9e10,
            engine_group_rows: 2.9e8,
            engine_spread_rows: 2.1e7,
            engine_text_rows: 8.0e6,
            engine_top_rows: 5.5e8,
            pool_build_rows: 3.0e7,
            pool_probe_rows: 1.0e8,
            pool_joined_rows: 5.0e7,
            engine_build_rows: 1.5e7,
            engine_probe_rows: 2.5e7,
        }
    }
}

impl Rates {
    /// Returns whether every rate is positive and finite.
    pub fn is_sound(&self) -> bool {
        let rates = [
            self.pool_filter_rows,
            self.pool_match_rows,
            self.pool_group_rows,
            self.pool_spread_rows,
            self.pool_text_rows,
            self.decode_bytes,
            self.engine_group_rows,
            self.engine_spread_rows,
            self.engine_text_rows,
            self.engine_top_rows,
            self.pool_build_rows,
            self.pool_probe_rows,
            self.pool_joined_rows,
            self.engine_build_rows,
            self.engine_probe_rows,
        ];
        rates.iter().all(|rate| rate.is_finite() && *rate > 0.0)
    }
}

/// The network link between a pool and the engine, as the cost model sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bandwidth in bytes per second.
    pub bytes_per_s: f64,
    /// Time from a request to its first answer, in nanoseconds.
    pub latency_ns: f64,
}

impl Default for Link {
    /// Returns the link to assume before anything has been measured: 10 Gbit/s Ethernet within one building.
    fn default() -> Self {
        Link { bytes_per_s: 1.25e9, latency_ns: 100_000.0 }
    }
}

impl Link {
    /// Creates a link from measurements: a value that is `None` is replaced by its default, and the bandwidth is at
    /// least `bytes_per_s_min`.
    pub fn measured(latency_ns: Option<f64>, bytes_per_s: Option<f64>, bytes_per_s_min: f64) -> Self {
        let unknown = Link::default();
        Link {
            bytes_per_s: bytes_per_s.unwrap_or(unknown.bytes_per_s).max(bytes_per_s_min),
            latency_ns: latency_ns.unwrap_or(unknown.latency_ns),
        }
    }
}

/// The pool and the engine between which the work of a program is divided, as the cost model sees them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// The network link between them; `None` if the pool is in the engine's process.
    pub link: Option<Link>,
    /// Number of worker threads of the pool.
    pub workers: usize,
    /// Number of threads of the engine.
    pub threads: usize,
}

/// A way to carry out the part of a query that a program describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The pool runs the whole program.
    Push,
    /// The pool filters the rows and sends packed (encoded) columns; the engine decodes them and does the rest.
    Packed,
    /// The pool filters the rows and sends decoded columns; the engine does the rest.
    Plain,
}

/// Estimated cost of one [`Choice`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// The way of executing the program whose cost is estimated.
    pub choice: Choice,
    /// Rows that leave the pool.
    pub rows: f64,
    /// Bytes that leave the pool.
    pub bytes: f64,
    /// Time from the request to the last row, in nanoseconds.
    pub ns: f64,
}

/// The estimated cost of every possible [`Choice`], and the choice that is made.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// The costs of the possible ways, that of [`Choice::Push`] first.
    pub costs: Vec<Cost>,
    /// The chosen way.
    pub choice: Choice,
}

/// Estimates the cost of `program` over `rows` for each way, and chooses one. The pool must be able to run all of the
/// program. If it has lookups, the other way is that the engine joins the results of one program for each table.
pub fn estimate(program: &Program, rows: &Rows, place: Place, rates: &Rates) -> Estimate {
    let costs = match rows.are_joined() {
        true => joined::costs(program, rows, place, rates),
        false => of_table(program, &rows.info, place, rates),
    };
    let least = costs.iter().copied().reduce(|a, b| if b.ns < a.ns { b } else { a }).unwrap_or(costs[0]);
    let is_short = matches!(program.output, Output::Aggregate { .. }) || program.limit.is_some();
    let cheaper_by = match rows.are_joined() {
        true if is_short => JOINS_CHEAPER_BY,
        true => 1.0,
        false => CHEAPER_BY,
    };
    let choice = if least.ns < costs[0].ns * cheaper_by { least.choice } else { Choice::Push };
    Estimate { costs, choice }
}

/// Returns whether it pays to look up `lookup`, whose program has the rows `keys`, for the rows of `program` first, only
/// because that drops rows without a match.
pub fn dropping_pays(program: &Program, rows: &Rows, lookup: &Lookup, keys: &Rows) -> bool {
    let Ok(behind) = rows.joined(lookup, keys) else { return false };
    let rates = Rates::default();
    let (passed, left) =
        (estimate::rows_passed(program, &rows.info), estimate::rows_passed(program, &behind.info));
    // A row that stays is at least put into the table of a lookup.
    let saved = (passed - left).max(0.0) / rates.pool_build_rows;
    let built = estimate::rows(&lookup.program, &keys.info) / rates.pool_build_rows;
    saved > joined::at_pool(&lookup.program, keys, &rates) + built
}

/// Returns the cost of each way to carry out `program` over the table `info`, that of [`Choice::Push`] first.
fn of_table(program: &Program, info: &TableInfo, place: Place, rates: &Rates) -> Vec<Cost> {
    let work = Work::of(program, info, rates);
    let cost = |choice, rows, bytes: f64, computed: f64| place.cost(choice, rows, bytes, computed);
    let (workers, threads) = place.speeds();
    let (rows, bytes) = (estimate::rows(program, info), estimate::bytes_packed(program, info));
    let mut costs = vec![cost(Choice::Push, rows, bytes, (work.filter + work.pool_finish) / workers)];
    if place.link.is_some() {
        let computed = work.filter / workers + (work.decode + work.engine_finish) / threads;
        costs.push(cost(Choice::Packed, work.passed, work.bytes_packed, computed));
    }
    let computed = (work.filter + work.decode) / workers + work.engine_finish / threads;
    costs.push(cost(Choice::Plain, work.passed, work.bytes_plain, computed));
    costs
}

impl Place {
    /// Returns the numbers of threads of the pool and of the engine.
    pub(crate) fn speeds(&self) -> (f64, f64) {
        (self.workers.max(1) as f64, self.threads.max(1) as f64)
    }

    /// Returns the cost of a way that sends these rows and bytes after `computed` seconds of computing.
    fn cost(&self, choice: Choice, rows: f64, bytes: f64, computed: f64) -> Cost {
        let (latency_ns, ns_per_byte) =
            self.link.map_or((0.0, 0.0), |link| (link.latency_ns, 1e9 / link.bytes_per_s.max(1.0)));
        Cost { choice, rows, bytes, ns: latency_ns + bytes * ns_per_byte + computed * 1e9 }
    }
}

/// The parts of a program's work: numbers of rows and bytes, and seconds of one thread.
struct Work {
    passed: f64,
    bytes_plain: f64,
    bytes_packed: f64,
    filter: f64,
    decode: f64,
    pool_finish: f64,
    engine_finish: f64,
}

impl Work {
    fn of(program: &Program, info: &TableInfo, rates: &Rates) -> Self {
        let passed = estimate::rows_passed(program, info);
        let share = if info.rows > 0 { passed / info.rows as f64 } else { 0.0 };
        let needed = columns_after_filter(program);
        let width: f64 = needed.iter().map(|&c| estimate::width(&Expr::Column(c), info)).sum();
        let encoded = |&c: &usize| info.columns.get(c).map_or(0.0, |column| column.bytes_encoded as f64);
        let bytes_plain = passed * width;
        let decode = bytes_plain / rates.decode_bytes;
        let (pool_finish, engine_finish) = finish(program, info, (passed, decode), rates);
        Work {
            passed,
            bytes_plain,
            bytes_packed: needed.iter().map(encoded).sum::<f64>() * share,
            filter: program.filter.as_ref().map_or(0.0, |filter| filter_s(filter, info.rows as f64, rates)),
            decode,
            pool_finish,
            engine_finish,
        }
    }
}

/// Returns the columns that are read by the operators after the filter.
fn columns_after_filter(program: &Program) -> BTreeSet<usize> {
    Program { filter: None, ..program.clone() }.columns()
}

/// Returns the seconds of one thread for evaluating the conditions of a filter on `rows` rows.
pub(crate) fn filter_s(filter: &Expr, rows: f64, rates: &Rates) -> f64 {
    match filter {
        Expr::Like { .. } | Expr::Regex { .. } => rows / rates.pool_match_rows,
        Expr::Compare(..) | Expr::InList(..) | Expr::InSet(..) | Expr::InFilter(..) | Expr::IsNull(_) => {
            rows / rates.pool_filter_rows
        }
        other => other.children().into_iter().map(|part| filter_s(part, rows, rates)).sum(),
    }
}

/// Returns the seconds of one thread for the operators after the filter, at the pool and at the engine. The first pair
/// in parentheses is the number of rows that pass the filter, and the seconds for decoding their columns.
fn finish(program: &Program, info: &TableInfo, (passed, decode): (f64, f64), rates: &Rates) -> (f64, f64) {
    let top = |rows: f64| if program.order.is_empty() { 0.0 } else { rows / rates.engine_top_rows };
    match &program.output {
        // The pool skips rows beyond the worst one that the top-k still keeps, like a further condition, so that few
        // rows are decoded.
        Output::Rows(_) if !program.order.is_empty() => (passed / rates.pool_filter_rows, top(passed)),
        Output::Rows(_) => (decode * fraction_kept(program, info, passed), 0.0),
        Output::Aggregate { keys, .. } => {
            let keys = || keys.iter().map(|k| &k.expr);
            let groups = estimate::groups(keys(), program.filter.as_ref(), passed.max(1.0), info);
            if groups <= GROUPS_CACHED {
                return (passed / rates.pool_group_rows, passed / rates.engine_group_rows + top(groups));
            }
            let is_narrow = estimate::keys_are_narrow(keys(), info);
            let pool = if is_narrow { rates.pool_spread_rows } else { rates.pool_text_rows };
            // The pool groups strings of a column with few distinct ones by their dictionary codes; the engine groups
            // by the strings themselves.
            let is_text = |key: &Expr| key.data_type(&info.schema).is_ok_and(|t| schema::is_bytes(&t));
            let engine = if is_narrow && !keys().any(is_text) {
                rates.engine_spread_rows
            } else {
                rates.engine_text_rows
            };
            (passed / pool, passed / engine + top(groups))
        }
    }
}

/// Returns the number of groups of `passed` rows, and the seconds in which one thread of the pool groups one row; zeros
/// for a program that returns rows.
pub(crate) fn grouping(program: &Program, info: &TableInfo, passed: f64, rates: &Rates) -> (f64, f64) {
    let Output::Aggregate { keys, .. } = &program.output else { return (0.0, 0.0) };
    let groups = estimate::groups(keys.iter().map(|k| &k.expr), program.filter.as_ref(), passed, info);
    let rows = passed.max(1.0);
    (groups, finish(program, info, (rows, 0.0), rates).0 / rows)
}

/// Returns the fraction of the rows after the filter that a limit keeps; 1 without a limit.
fn fraction_kept(program: &Program, info: &TableInfo, passed: f64) -> f64 {
    if passed > 0.0 { (estimate::rows(program, info) / passed).min(1.0) } else { 0.0 }
}

impl Choice {
    /// Returns the choice's name, for EXPLAIN.
    pub fn name(self) -> &'static str {
        match self {
            Choice::Push => "push",
            Choice::Packed => "packed",
            Choice::Plain => "plain",
        }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rows, ms) = (self.rows, self.ns / 1e6);
        write!(f, "{} {ms:.1} ms, {rows:.0} rows, {}", self.choice.name(), bytes_shown(self.bytes))
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ways = String::new();
        for cost in &self.costs {
            let _ = write!(ways, "{}{cost}", if ways.is_empty() { "" } else { "; " });
        }
        write!(f, "{ways}: {}", self.choice.name())
    }
}

/// Formats a number of bytes, in the largest unit of which there is at least one.
pub fn bytes_shown(bytes: f64) -> String {
    let units = [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    // The sum of an empty list of floats is -0.0; adding 0.0 turns it into 0.0.
    let bytes = bytes + 0.0;
    match units.iter().find(|(_, size)| bytes >= *size as f64) {
        Some((unit, size)) => format!("{:.1} {unit}", bytes / *size as f64),
        None => format!("{bytes:.0} B"),
    }
}

#[cfg(test)]
mod tests;
