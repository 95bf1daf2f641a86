//! Results of a run of the suite, as written to JSON and kept in `bench/record/`.

use super::definition::{Goal, Point, Shape};
use crate::limits::Limits;
use crate::stats;
use crate::suite::queries::{Side, SideResult};
use crate::suite::{Bound, Goals, Head};
use farpool::Receipt;
use serde::Serialize;
use std::collections::BTreeMap;

/// Results of a run of the suite.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    #[serde(flatten)]
    pub head: Head,
    /// The rivals that took part, with their versions.
    pub rivals: Vec<String>,
    /// Rows of the probe table.
    pub rows: u64,
    pub runs: usize,
    pub threads: usize,
    /// The sides of the definition, in order.
    pub sides: Vec<String>,
    pub limits: Limits,
    pub points: Vec<PointResult>,
    pub goals: Vec<Goal>,
    pub checked: Goals,
    pub notes: Vec<String>,
}

/// Results of a point on all sides.
#[derive(Clone, Debug, Serialize)]
pub struct PointResult {
    pub name: String,
    #[serde(flatten)]
    pub shape: Shape,
    #[serde(flatten)]
    pub point: Point,
    /// Rows of the join, before they are counted and summed.
    pub joined: u64,
    /// Bytes of the columns that are read, as plain values, and the milliseconds of reading them once at the machine's
    /// bandwidth with two threads.
    pub bytes_plain: u64,
    pub memory_ms: f64,
    pub sides: BTreeMap<String, SideResult>,
    /// EXPLAIN of the embedded side.
    pub explained: String,
}

impl Results {
    /// Adds the rivals and notes of a build table; what others had already is left out.
    pub fn add(&mut self, rivals: Vec<String>, notes: Vec<String>) {
        for (known, new) in [(&mut self.rivals, rivals), (&mut self.notes, notes)] {
            let new: Vec<String> = new.into_iter().filter(|one| !known.contains(one)).collect();
            known.extend(new);
        }
    }
}

impl PointResult {
    /// Returns the median time of a side.
    pub fn median(&self, side: &str) -> Option<f64> {
        self.sides.get(side).map(|side| side.median_ms)
    }

    /// Returns the execution statistics of a side.
    pub fn receipt(&self, side: &str) -> Option<&Receipt> {
        self.sides.get(side).map(|side| &side.receipt)
    }

    /// Returns the time of the fastest rival.
    fn fastest_rival(&self) -> Option<f64> {
        let rivals = self.sides.iter().filter(|(name, _)| Side::names_rival(name));
        rivals.map(|(_, side)| side.median_ms).min_by(f64::total_cmp)
    }

    /// Returns why EXPLAIN has no lookup of this join at the pool, as it says; `None` if it has one.
    pub fn reason(&self) -> Option<&str> {
        let lookups = || self.explained.lines().map(str::trim).filter(|line| line.starts_with("lookup"));
        if lookups().any(|line| line.contains(" exact ")) {
            return None;
        }
        Some(lookups().next().unwrap_or("EXPLAIN names no lookup"))
    }

    /// Returns the ratio of a side's time to that of the fastest rival.
    pub fn ratio(&self, side: &str) -> Option<f64> {
        Some(self.median(side)? / self.fastest_rival()?)
    }
}

impl Goal {
    /// Returns whether a point meets the goal; `None` if a side did not take part.
    pub fn is_met(&self, point: &PointResult) -> Option<bool> {
        Bound::AtMost(self.at_most).is_met(point.ratio(&self.of))
    }
}

/// Compares the results with the goals, which are about every point.
pub fn check(goals: &[Goal], points: &[PointResult]) -> Goals {
    let mut checked = Goals::default();
    for Goal { of, at_most } in goals {
        let ratios: Vec<f64> = points.iter().filter_map(|point| point.ratio(of)).collect();
        let largest = ratios.iter().copied().max_by(f64::total_cmp);
        let kept = ratios.iter().filter(|ratio| *ratio <= at_most).count();
        let mean = stats::geometric_mean(&ratios)
            .map_or(String::new(), |mean| format!(", geometric mean {mean:.2}"));
        let what =
            format!("{of}, of the fastest rival's time: at {kept} of {} points{mean}; at most", ratios.len());
        checked.at_most(what, *at_most, largest);
    }
    checked
}
