//! TPC-H tables.

use crate::tables::parquet::{self, Rows};
use anyhow::Result;
use std::path::PathBuf;
use tpchgen::generators as make;
use tpchgen_arrow as arrows;

/// The names of the TPC-H tables, smallest table first.
pub const TABLES: [&str; 8] =
    ["region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem"];

/// Returns the folder with the tables at `scale` as Parquet files, and creates it if it does not exist.
pub fn folder(scale: f64) -> Result<PathBuf> {
    parquet::folder("tpch", scale, &TABLES, |table, scale| Ok(generator(table, scale)))
}

fn generator(table: &str, scale: f64) -> Rows {
    match table {
        "region" => Box::new(arrows::RegionArrow::new(make::RegionGenerator::new(scale, 1, 1))),
        "nation" => Box::new(arrows::NationArrow::new(make::NationGenerator::new(scale, 1, 1))),
        "supplier" => Box::new(arrows::SupplierArrow::new(make::SupplierGenerator::new(scale, 1, 1))),
        "customer" => Box::new(arrows::CustomerArrow::new(make::CustomerGenerator::new(scale, 1, 1))),
        "part" => Box::new(arrows::PartArrow::new(make::PartGenerator::new(scale, 1, 1))),
        "partsupp" => Box::new(arrows::PartSuppArrow::new(make::PartSuppGenerator::new(scale, 1, 1))),
        "orders" => Box::new(arrows::OrderArrow::new(make::OrderGenerator::new(scale, 1, 1))),
        _ => Box::new(arrows::LineItemArrow::new(make::LineItemGenerator::new(scale, 1, 1))),
    }
}
