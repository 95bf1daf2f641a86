//! The naive implementation: value by value, with every table as in the definition of the sketch, and 64-bit counters.

use farpool::model::SketchParameters;
use farpool_statistics::hash::{SEED, murmur3};

/// The state of the naive sketches.
pub struct Naive {
    registers: Vec<u8>,
    /// Counters of Count-Min and Fast-AGMS, row after row.
    frequency: Vec<u64>,
    moment: Vec<i64>,
    rows: usize,
    parameters: SketchParameters,
}

impl Naive {
    pub fn new(parameters: SketchParameters) -> Naive {
        let cells = |c: farpool::model::Counters| usize::from(c.rows) << c.precision;
        Naive {
            registers: vec![0; parameters.distinct.map_or(0, |precision| 1 << precision)],
            frequency: vec![0; parameters.frequency.map_or(0, cells)],
            moment: vec![0; parameters.second_moment.map_or(0, cells)],
            rows: 0,
            parameters,
        }
    }

    /// Returns the number of values added so far.
    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn update(&mut self, values: &[u32]) {
        self.rows += values.len();
        for value in values {
            let hash = murmur3(&u64::from(*value).to_le_bytes(), SEED);
            if let Some(precision) = self.parameters.distinct {
                let register = &mut self.registers[hash.low as usize & ((1 << precision) - 1)];
                *register = (*register).max(hash.high.leading_zeros().min(62) as u8 + 1);
            }
            // Each row of counters uses the bits of the hash from 16 bits further on than the row before; the sign is
            // the bit above those of the index.
            if let Some(c) = self.parameters.frequency {
                for row in 0..usize::from(c.rows) {
                    let place = hash.slice(16 * row as u32, c.precision.into()) as usize;
                    self.frequency[row << c.precision | place] += 1;
                }
            }
            if let Some(c) = self.parameters.second_moment {
                for row in 0..usize::from(c.rows) {
                    let slice = hash.slice(16 * row as u32, u32::from(c.precision) + 1) as usize;
                    let (place, sign) = (slice & ((1 << c.precision) - 1), slice >> c.precision);
                    self.moment[row << c.precision | place] += if sign == 0 { 1 } else { -1 };
                }
            }
        }
    }

    /// Returns Count-Min's upper bound of a value's frequency.
    pub fn frequency(&self, value: u32) -> Option<f64> {
        let c = self.parameters.frequency?;
        let hash = murmur3(&u64::from(value).to_le_bytes(), SEED);
        let at = |row: usize| hash.slice(16 * row as u32, c.precision.into()) as usize | row << c.precision;
        (0..usize::from(c.rows)).map(|row| self.frequency[at(row)]).min().map(|count| count as f64)
    }

    /// Returns the second moment: the median over the rows.
    pub fn second_moment(&self) -> Option<f64> {
        let c = self.parameters.second_moment?;
        let rows = self.moment.chunks_exact(1 << c.precision);
        let sums: Vec<f64> =
            rows.map(|row| row.iter().map(|v| i128::from(v * v)).sum::<i128>() as f64).collect();
        Some(crate::stats::median(&sums))
    }

    /// Returns the estimate of the paper of 2007, which is off by about a percent.
    pub fn distinct(&self) -> Option<f64> {
        self.parameters.distinct?;
        let m = self.registers.len() as f64;
        let sum: f64 = self.registers.iter().map(|rank| 0.5_f64.powi((*rank).into())).sum();
        let raw = 0.7213 / (1.0 + 1.079 / m) * m * m / sum;
        let empty = self.registers.iter().filter(|rank| **rank == 0).count() as f64;
        Some(if raw <= 2.5 * m && empty > 0.0 { m * (m / empty).ln() } else { raw })
    }
}
