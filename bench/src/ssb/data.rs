//! The tables of the Star Schema Benchmark (P. O'Neil, E. O'Neil, X. Chen: "Star Schema Benchmark", revision 3, 2009).
//!
//! Columns, domains and hierarchies are those of the definition: region, nation, city; manufacturer, category, brand.
//! Where it leaves something open:
//!
//! - Prices are in cents and follow from the part, as in the authors' generator: the supply cost is 0.6 of a part's price.
//! - `date` has the 2,556 days of the authors' generator, from 1992-01-01 to 1998-12-30.
//! - Orders are spread evenly over these days, as the published filter factors assume (a year is a seventh); the authors'
//!   generator stops in August 1998. An order is due 30 to 90 days later, but not after the last day of `date`.
//! - Below scale 1, for which the definition has no number of parts, there are as many parts as at scale 1 times the scale.
//! - Words (colors, types, containers, segments, priorities, ship modes) are those of TPC-H, which has 92 colors in place
//!   of 94.
//!
//! Invariant: a row depends on nothing but its number and the sizes of the tables, so that tables are the same on every
//! machine and however they are cut into batches. Memory is needed for one batch.

use super::{dates, dimensions, lineorder};
use crate::tables::parquet::{self, Rows, in_batches};
use anyhow::{Result, bail, ensure};
use std::path::PathBuf;

/// The names of the tables, smallest table first.
pub const TABLES: [&str; 5] = ["date", "supplier", "customer", "part", "lineorder"];

/// Version of the generator, which is part of the name of the cached files: to be raised when other rows are generated.
const VERSION: u32 = 1;

/// Largest scale factor: keys of orders beyond it need more than 32 bits.
const SCALE_MAX: f64 = 300.0;

/// The sizes of the tables other than `date`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub suppliers: u64,
    pub customers: u64,
    pub parts: u64,
    /// Orders of 1 to 7 rows of `lineorder`, 4 on average.
    pub orders: u64,
}

impl Sizes {
    /// Returns the sizes at a scale factor.
    ///
    /// # Errors
    /// Fails for a scale factor that is not positive or above [`SCALE_MAX`].
    pub fn of(scale: f64) -> Result<Sizes> {
        ensure!(scale > 0.0 && scale <= SCALE_MAX, "the scale must be above 0 and at most {SCALE_MAX}");
        let times = |rows: f64| (rows * scale).round().max(1.0) as u64;
        let parts =
            if scale < 1.0 { times(200_000.0) } else { 200_000 * (1.0 + scale.log2()).floor() as u64 };
        Ok(Sizes { suppliers: times(2_000.0), customers: times(30_000.0), parts, orders: times(1_500_000.0) })
    }
}

/// Returns the folder with the tables at `scale` as Parquet files, and creates it if it does not exist.
pub fn folder(scale: f64) -> Result<PathBuf> {
    let sizes = Sizes::of(scale)?;
    parquet::folder(&format!("ssb-{VERSION}"), scale, &TABLES, |table, _| rows(table, sizes))
}

/// Generates a table.
pub fn rows(table: &str, sizes: Sizes) -> Result<Rows> {
    Ok(match table {
        "date" => in_batches(dates::DAYS, dates::batch)?,
        "supplier" => in_batches(sizes.suppliers, dimensions::suppliers)?,
        "customer" => in_batches(sizes.customers, dimensions::customers)?,
        "part" => in_batches(sizes.parts, dimensions::parts)?,
        "lineorder" => {
            let days = dates::keys();
            in_batches(sizes.orders, move |orders| lineorder::batch(orders, sizes, &days))?
        }
        _ => bail!("the Star Schema Benchmark has no table {table:?}"),
    })
}
