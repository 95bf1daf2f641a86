//! The cost of programs with lookups (joins that the pool carries out), and of their alternative: the engine joins the
//! results of one program for each table.
//!
//! ```text
//! push  = latency + (lookups + filter + probes + finish)/workers + bytes of the result/link
//! apart = latency + (filters)/workers + (decode + build + probes + finish)/threads + bytes of all tables' rows/link
//! ```

use super::{Choice, Cost, Place, Rates, Work, columns_after_filter, filter_s};
use crate::estimate;
use crate::rows::{Rows, Side};
use crate::split::{conjunction, conjuncts};
use farpool_model::{Expr, Lookup, LookupKind, Output, Program};
use std::collections::BTreeSet;

/// Maximum number of rows of a build side whose join keys the engine sends to the scan of the other side.
pub(crate) const KEYS_SENT_MAX: f64 = 1e6;

/// Maximum number of rows that a lookup holds for each row that is looked up, unless it holds few. Reason: the engine puts
/// the smaller side into its hash table, whichever that is.
const HELD_FOR_EACH: f64 = 4.0;
const HELD_FEW: f64 = 1e6;

/// Maximum number of rows that joins return as they are, as a fraction of the rows of the largest table. Reason: joins
/// that drop few rows save nothing, and conditions that other operators find later thin out the scans of single tables,
/// and not what lookups hold (TPC-H Q18).
const RETURNED: f64 = 0.04;

/// Join keys that a scan tests, in a bitmap or a filter of keys, in the time in which one row is looked up. Measured:
/// 2.2 ns a key with decoding, in the star schema benchmark at scale 1.
const TESTS_PER_PROBE: f64 = 4.5;

/// Returns why joins should not run at the pool whatever they are estimated to cost; `None` if they may.
pub(crate) fn unfit(program: &Program, rows: &Rows) -> Option<String> {
    let share = share_scanned(program, rows);
    let held = |side: &Side| {
        let most = HELD_FOR_EACH * side.probed * share;
        (side.built > most.max(HELD_FEW)).then(|| {
            let (held, table) = (side.built, &side.program.table);
            format!("about {held:.0} rows of {table} would be held for about {:.0} rows", side.probed * share)
        })
    };
    if let Some(reason) = rows.sides.iter().find_map(held) {
        return Some(reason);
    }
    let returned = estimate::rows(program, &rows.info);
    let is_long = matches!(program.output, Output::Rows(_)) && program.limit.is_none();
    (is_long && returned > RETURNED * rows.largest())
        .then(|| format!("the joins return about {returned:.0} rows, which are not few"))
}

/// Returns the cost of carrying out `program` at the pool, and that of joining in the engine.
pub(super) fn costs(program: &Program, rows: &Rows, place: Place, rates: &Rates) -> Vec<Cost> {
    let (workers, threads) = place.speeds();
    let (out, bytes) = (estimate::rows(program, &rows.info), estimate::bytes_packed(program, &rows.info));
    let push = place.cost(Choice::Push, out, bytes, at_pool(program, rows, rates) / workers);
    let apart = Apart::of(program, rows, rates);
    let (bytes, choice) = match place.link {
        Some(_) => (apart.bytes_packed, Choice::Packed),
        None => (0.0, Choice::Plain),
    };
    let computed = apart.pool / workers + apart.engine / threads;
    vec![push, place.cost(choice, apart.rows, bytes, computed)]
}

/// Returns the seconds of one thread of the pool for a program and its lookups.
pub(super) fn at_pool(program: &Program, rows: &Rows, rates: &Rates) -> f64 {
    let thinned = Thinned::of(program, rows);
    let of_sides = rows.sides.iter().zip(&program.lookups).zip(thinned.lookups.iter());
    let of_sides = of_sides.map(|((side, lookup), (probed, found))| {
        let built = at_pool(&side.program, &side.rows, rates) + side.built / rates.pool_build_rows;
        match is_condition(lookup, rows) {
            true => built,
            false => built + probed / rates.pool_probe_rows + found / rates.pool_joined_rows,
        }
    });
    let work = Work::of(program, &rows.info, rates);
    of_sides.sum::<f64>() + thinned.tests_s(rates) + scan_filter_s(program, rows, rates) + work.pool_finish
}

/// The rows of the scanned table, which join keys thin out before any row is looked up.
struct Thinned {
    /// Tests of join keys by the scan.
    tests: f64,
    /// Rows that the scan gives.
    scanned: f64,
    /// Rows before each lookup, and behind it.
    lookups: Vec<(f64, f64)>,
}

impl Thinned {
    fn of(program: &Program, rows: &Rows) -> Thinned {
        let share = share_scanned(program, rows);
        let keeps = |(side, lookup): (&Side, &Lookup)| match is_of_scanned(lookup, rows) {
            true if side.drops && side.built <= KEYS_SENT_MAX => (side.found / side.probed.max(1.0)).min(1.0),
            _ => 1.0,
        };
        let keeps: Vec<f64> = rows.sides.iter().zip(&program.lookups).map(keeps).collect();
        let (mut tests, mut scanned) = (0.0, rows.table.info.rows as f64 * share);
        for keep in keeps.iter().filter(|keep| **keep < 1.0) {
            tests += scanned;
            scanned *= keep;
        }
        let mut lookups = Vec::with_capacity(keeps.len());
        let mut later = share;
        for (side, keep) in rows.sides.iter().zip(&keeps).rev() {
            lookups.push((side.probed * later * keep, side.found * later));
            later *= keep;
        }
        lookups.reverse();
        Thinned { tests, scanned, lookups }
    }

    /// Returns the seconds of one thread for the tests of join keys.
    fn tests_s(&self, rates: &Rates) -> f64 {
        self.tests / (rates.pool_probe_rows * TESTS_PER_PROBE)
    }
}

/// Returns whether all join keys of a lookup are columns of the scanned table.
fn is_of_scanned(lookup: &Lookup, rows: &Rows) -> bool {
    lookup.keys.iter().all(|key| key.row < rows.table_columns())
}

/// Returns whether a lookup may be a condition of the scan alone.
fn is_condition(lookup: &Lookup, rows: &Rows) -> bool {
    let is_kind = matches!(lookup.kind, LookupKind::Semi | LookupKind::Anti | LookupKind::NotIn);
    is_kind && lookup.keys.len() == 1 && lookup.residual.is_none() && is_of_scanned(lookup, rows)
}

/// The work if the engine joins: rows and bytes that leave the pool, and seconds of one thread.
#[derive(Default)]
struct Apart {
    rows: f64,
    bytes_packed: f64,
    pool: f64,
    engine: f64,
}

impl Apart {
    fn of(program: &Program, rows: &Rows, rates: &Rates) -> Apart {
        let mut apart = Apart::default();
        let table = &*rows.table.info;
        let thinned = Thinned::of(program, rows);
        let scanned = thinned.scanned;
        for side in &rows.sides {
            let of_side = match side.rows.are_joined() {
                true => Apart::of(&side.program, &side.rows, rates),
                false => Apart::of_table(&side.program, &side.rows, rates),
            };
            apart.rows += of_side.rows;
            apart.bytes_packed += of_side.bytes_packed;
            apart.pool += of_side.pool;
            apart.engine += of_side.engine;
        }
        for side in &rows.sides {
            // The engine builds on the smaller side.
            let (built, probed) = (side.built.min(scanned), side.built.max(scanned));
            apart.engine += built / rates.engine_build_rows + probed / rates.engine_probe_rows;
        }
        let columns = columns_sent(program, rows);
        let width = |packed: bool| {
            let of = |column: &usize| {
                let column = Expr::Column(*column);
                if packed { estimate::packed_width(&column, table) } else { estimate::width(&column, table) }
            };
            columns.iter().map(of).sum::<f64>()
        };
        let work = Work::of(program, &rows.info, rates);
        apart.rows += scanned;
        apart.bytes_packed += scanned * width(true);
        apart.pool += thinned.tests_s(rates) + scan_filter_s(program, rows, rates);
        apart.engine += scanned * width(false) / rates.decode_bytes + work.engine_finish;
        apart
    }

    /// Returns the work of the program of a lookup that has none of its own.
    fn of_table(program: &Program, rows: &Rows, rates: &Rates) -> Apart {
        let work = Work::of(program, &rows.info, rates);
        Apart {
            rows: estimate::rows(program, &rows.info),
            bytes_packed: estimate::bytes_packed(program, &rows.info),
            pool: work.filter + work.pool_finish,
            engine: estimate::bytes(program, &rows.info) / rates.decode_bytes,
        }
    }
}

/// Returns the conditions of the program that are on the scanned table alone.
fn of_scan(program: &Program, rows: &Rows) -> Vec<Expr> {
    let parts = program.filter.clone().map(conjuncts).unwrap_or_default();
    parts.into_iter().filter(|part| is_of_table(part, rows)).collect()
}

fn is_of_table(condition: &Expr, rows: &Rows) -> bool {
    let mut columns = BTreeSet::new();
    condition.collect_columns(&mut columns);
    columns.last().is_none_or(|last| *last < rows.table_columns())
}

/// Returns the fraction of the scanned rows that the conditions on the table alone keep.
fn share_scanned(program: &Program, rows: &Rows) -> f64 {
    conjunction(of_scan(program, rows)).map_or(1.0, |filter| estimate::selectivity(&filter, &rows.table.info))
}

fn scan_filter_s(program: &Program, rows: &Rows, rates: &Rates) -> f64 {
    conjunction(of_scan(program, rows))
        .map_or(0.0, |filter| filter_s(&filter, rows.table.info.rows as f64, rates))
}

/// Returns the columns of the scanned table that the engine needs to join.
fn columns_sent(program: &Program, rows: &Rows) -> BTreeSet<usize> {
    let mut columns = columns_after_filter(program);
    let parts = program.filter.clone().map(conjuncts).unwrap_or_default();
    for part in parts.iter().filter(|part| !is_of_table(part, rows)) {
        part.collect_columns(&mut columns);
    }
    columns.extend(program.lookups.iter().flat_map(|lookup| lookup.keys.iter().map(|key| key.row)));
    columns.retain(|column| *column < rows.table_columns());
    columns
}
