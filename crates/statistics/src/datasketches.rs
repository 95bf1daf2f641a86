//! HyperLogLog states in the format of Apache DataSketches (`hll` of its C++, Java and Python libraries, serial version
//! 1), which can be read and written.
//!
//! DataSketches and this crate hash the same bytes with the same seed (`hash.rs`), and assign the same register and
//! rank to a value, so that states of the two can be merged. Limits: DataSketches ignores empty strings, this crate
//! counts them. It has no hash of its own for decimals, dates and timestamps. Its Java library hashes strings as UTF-8
//! only if they are passed as strings, not as arrays of characters. Both treat unsigned integers beyond 63 bits as the
//! signed integers with the same bytes.
//!
//! Reads lists and sets of coupons, and registers of 4, 6 and 8 bits, compact or not. Writes compact lists and sets,
//! and registers of 8 bits, marked as merged. Reason for that mark: without it, the library's estimate depends on the
//! order of updates, which is not kept here.
//!
//! Invariant: decoding any bytes gives a state or an error.

use crate::bytes::damaged;
use crate::estimate::Estimate;
use crate::sketch::Sketch;
use crate::sketch::distinct::{COUPON_BITS, Coupons, Distinct, RANK_MAX, State, coupons_max};
use farpool_model::{Error, Result, limits};

/// A HyperLogLog: a sketch of the number of distinct values.
#[derive(Clone, Debug)]
pub struct HyperLogLog(Distinct);

const SERIAL_VERSION: u8 = 1;
const FAMILY: u8 = 7;

/// Modes of a state (list, set or registers): the low two bits of the last byte of the preamble.
const LIST: u8 = 0;
const SET: u8 = 1;
const REGISTERS: u8 = 2;

/// Number of bits per register, indexed by the next two bits of the last byte of the preamble.
const REGISTER_BITS: [usize; 3] = [4, 6, 8];
const EIGHT_BITS: u8 = 2 << 2;

/// Flags of the preamble.
const EMPTY: u8 = 4;
const COMPACT: u8 = 8;
const MERGED: u8 = 16;

/// Size of the preamble before registers, in bytes.
const PREAMBLE_BYTES: usize = 40;

/// Maximum number of coupons of a list.
const LIST_MAX: usize = 7;

/// Value of a 4-bit register whose rank does not fit and is stored separately, among the exceptions.
const EXCEPTION: u8 = 15;

impl Sketch {
    /// Returns the HyperLogLog of the sketch, if it has one.
    pub fn hyper_log_log(&self) -> Option<HyperLogLog> {
        self.distinct_state().cloned().map(HyperLogLog)
    }
}

impl HyperLogLog {
    /// Returns the binary logarithm of the number of registers.
    pub fn precision(&self) -> u8 {
        self.0.precision()
    }

    /// Estimates the number of distinct values.
    pub fn estimate(&self) -> Estimate {
        let (value, low, high) = self.0.estimate();
        Estimate { value: value.round(), low, high, confidence: crate::bounds::CONFIDENCE }
    }

    /// Merges the values of another HyperLogLog into this one.
    ///
    /// # Errors
    /// `Invalid` when the precisions differ.
    pub fn merge(&mut self, other: &HyperLogLog) -> Result<()> {
        if self.precision() != other.precision() {
            let (one, two) = (self.precision(), other.precision());
            return Err(Error::invalid(format!(
                "HyperLogLogs of precision {one} and {two} cannot be merged"
            ))
            .advise("make both with the same precision (lgK)"));
        }
        self.0.merge(&other.0);
        Ok(())
    }

    /// Encodes the state as DataSketches does, in compact form.
    pub fn to_datasketches(&self) -> Vec<u8> {
        let precision = self.precision();
        match self.0.state() {
            State::Few(coupons) if coupons.len() <= LIST_MAX => list(precision, &coupons.sorted()),
            // The library converts a set of coupons to registers when three quarters of its 2^(lgK - 3) slots are
            // taken.
            State::Few(coupons) if precision >= 8 && coupons.len() <= 3 * (coupons_max(precision) / 4) => {
                set(precision, &coupons.sorted())
            }
            _ => registers(precision, self.0.clone().registers()),
        }
    }

    /// Decodes a state that DataSketches encoded.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not such a state; `Invalid` when its precision is larger than supported.
    pub fn from_datasketches(bytes: &[u8]) -> Result<HyperLogLog> {
        let Some((&[ints, version, family, precision, places, flags, count, mode], rest)) =
            bytes.split_first_chunk::<8>()
        else {
            return Err(not_one("it is too short"));
        };
        if (version, family) != (SERIAL_VERSION, FAMILY) {
            return Err(not_one(format!("it has version {version} and family {family}")));
        }
        if !limits::DISTINCT_PRECISION.contains(&precision) {
            let (least, most) = (limits::DISTINCT_PRECISION.start(), limits::DISTINCT_PRECISION.end());
            return Err(Error::invalid(format!(
                "HyperLogLog has lgK {precision}, not one of {least} to {most}"
            )));
        }
        let compact = flags & COMPACT != 0;
        let distinct = match (mode & 3, ints) {
            (LIST, 2) if flags & EMPTY != 0 => Distinct::new(precision),
            (LIST, 2) => from_coupons(
                precision,
                rest,
                count.into(),
                if compact { count.into() } else { 1 << places.min(3) },
            )?,
            (SET, 3) => {
                let (count, rest) = rest.split_first_chunk().ok_or_else(|| not_one("it ends too early"))?;
                let count = u32::from_le_bytes(*count) as usize;
                from_coupons(
                    precision,
                    rest,
                    count,
                    if compact { count } else { 1 << places.min(precision) },
                )?
            }
            (REGISTERS, 10) => {
                let bits =
                    REGISTER_BITS.get(usize::from(mode >> 2)).ok_or_else(|| not_one("unknown registers"))?;
                let ranks = ranks(precision, *bits, bytes, count)?;
                // The library converts coupons to registers earlier than this crate does, so that registers may
                // belong to few values.
                Distinct::from_state(precision, State::Many(ranks))
            }
            _ => return Err(not_one(format!("it has mode {mode} in a preamble of {ints} words"))),
        };
        Ok(HyperLogLog(distinct))
    }
}

fn not_one(why: impl std::fmt::Display) -> Error {
    damaged(format!("no HyperLogLog of DataSketches: {why}"))
}

fn list(precision: u8, coupons: &[u32]) -> Vec<u8> {
    let flags = if coupons.is_empty() { EMPTY | COMPACT } else { COMPACT };
    let count = coupons.len() as u8;
    let mut out = vec![2, SERIAL_VERSION, FAMILY, precision, 3, flags, count, LIST | EIGHT_BITS];
    out.extend(coupons.iter().flat_map(|coupon| coupon.to_le_bytes()));
    out
}

fn set(precision: u8, coupons: &[u32]) -> Vec<u8> {
    // Binary logarithm of the slots in the library's hash table, which has at least 32 and is at most three quarters
    // full.
    let places = (4 * coupons.len()).div_ceil(3).next_power_of_two().trailing_zeros().max(5) as u8;
    let mut out = vec![3, SERIAL_VERSION, FAMILY, precision, places, COMPACT, 0, SET | EIGHT_BITS];
    out.extend((coupons.len() as u32).to_le_bytes());
    out.extend(coupons.iter().flat_map(|coupon| coupon.to_le_bytes()));
    out
}

fn registers(precision: u8, ranks: &[u8]) -> Vec<u8> {
    let part = |keep: fn(&u8) -> bool| -> f64 {
        ranks.iter().filter(|rank| keep(rank)).map(|rank| 0.5_f64.powi((*rank).into())).sum()
    };
    let empty = ranks.iter().filter(|rank| **rank == 0).count() as u32;
    let mut out = vec![10, SERIAL_VERSION, FAMILY, precision, 0, COMPACT | MERGED, 0, REGISTERS | EIGHT_BITS];
    out.extend(crate::sketch::distinct::estimate(ranks).to_le_bytes());
    out.extend(part(|rank| *rank < 32).to_le_bytes());
    out.extend(part(|rank| *rank >= 32).to_le_bytes());
    out.extend(empty.to_le_bytes());
    out.extend(0_u32.to_le_bytes());
    out.extend(ranks);
    out
}

/// Reads `count` coupons from `places` slots; a slot of 0 is empty.
fn from_coupons(precision: u8, bytes: &[u8], count: usize, places: usize) -> Result<Distinct> {
    let (coupons, _) = bytes.as_chunks::<4>();
    let coupons = coupons.get(..places).ok_or_else(|| not_one("it has fewer coupons than it says"))?;
    let mut distinct = Distinct::new(precision);
    let mut seen = Coupons::default();
    for coupon in coupons.iter().map(|coupon| u32::from_le_bytes(*coupon)).filter(|coupon| *coupon != 0) {
        if coupon >> COUPON_BITS == 0 {
            return Err(not_one("a coupon has no rank"));
        }
        seen.insert(coupon);
        distinct.insert(coupon);
    }
    if seen.len() != count {
        return Err(not_one(format!("it has {} coupons and says {count}", seen.len())));
    }
    Ok(distinct)
}

fn ranks(precision: u8, bits: usize, bytes: &[u8], least: u8) -> Result<Vec<u8>> {
    let (preamble, data) =
        bytes.split_at_checked(PREAMBLE_BYTES).ok_or_else(|| not_one("it ends too early"))?;
    let places = 1_usize << precision;
    let packed = data.get(..places * bits / 8).ok_or_else(|| not_one("it has too few registers"))?;
    let mut ranks: Vec<u8> = match bits {
        8 => packed.to_vec(),
        6 => packed
            .chunks_exact(3)
            .flat_map(|b| {
                [0, 6, 12, 18].map(|from| (u32::from_le_bytes([b[0], b[1], b[2], 0]) >> from) as u8 & 63)
            })
            .collect(),
        _ => packed.iter().flat_map(|byte| [byte & 15, byte >> 4]).collect(),
    };
    if bits == 4 {
        let exceptions = u32::from_le_bytes(preamble[36..40].try_into().expect("four bytes")) as usize;
        let (coupons, _) = data[packed.len()..].as_chunks::<4>();
        raise_nibbles(&mut ranks, least, coupons, exceptions)?;
    }
    if ranks.iter().any(|rank| *rank > RANK_MAX) {
        return Err(not_one("a register has a rank that none can have"));
    }
    Ok(ranks)
}

/// Converts registers of 4 bits to ranks. A register has the distance of its rank from `least`. Ranks with a distance
/// of 15 or more follow after the registers, as pairs of register and rank.
fn raise_nibbles(ranks: &mut [u8], least: u8, pairs: &[[u8; 4]], exceptions: usize) -> Result<()> {
    let expected = ranks.iter().filter(|nibble| **nibble == EXCEPTION).count();
    ranks.iter_mut().for_each(|nibble| *nibble = nibble.saturating_add(least));
    let mut found = 0;
    for pair in pairs.iter().map(|pair| u32::from_le_bytes(*pair)).filter(|pair| *pair != 0) {
        let place = pair as usize & ((1 << COUPON_BITS) - 1) & (ranks.len() - 1);
        ranks[place] = (pair >> COUPON_BITS) as u8;
        found += 1;
    }
    if found != exceptions || expected != exceptions {
        return Err(not_one(format!("{expected} registers stand elsewhere, and {found} are there")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, Float64Array, Int64Array, StringArray};
    use farpool_model::SketchParameters;
    use std::sync::Arc;

    /// Generated by `testdata/make_datasketches.py` with the DataSketches library for Python, which also reads the
    /// states of this crate.
    const FIXTURES: &str = include_str!("../testdata/datasketches.txt");

    struct Fixture {
        name: String,
        precision: u8,
        values: i64,
        kind: String,
        estimate: f64,
        bytes: Vec<u8>,
    }

    fn fixtures() -> impl Iterator<Item = Fixture> {
        FIXTURES.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            let [name, precision, values, kind, estimate, hex] = fields[..] else { panic!("{line}") };
            let byte = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
            Fixture {
                name: name.to_string(),
                precision: precision.parse().unwrap(),
                values: values.parse().unwrap(),
                kind: kind.to_string(),
                estimate: estimate.parse().unwrap(),
                bytes: (0..hex.len()).step_by(2).map(byte).collect(),
            }
        })
    }

    /// Returns this crate's sketch of the values from which `fixture` was made.
    fn ours(fixture: &Fixture) -> HyperLogLog {
        let numbers = 0..fixture.values;
        let array: ArrayRef = match fixture.kind.as_str() {
            "integers" => Arc::new(Int64Array::from_iter_values(numbers)),
            "floats" => Arc::new(Float64Array::from_iter_values(numbers.map(|i| i as f64 / 3.0))),
            _ => Arc::new(StringArray::from_iter_values(numbers.map(|i| format!("value {i}")))),
        };
        let parameters = SketchParameters { distinct: Some(fixture.precision), ..Default::default() };
        let mut sketch = Sketch::new(parameters, array.data_type()).unwrap();
        sketch.update(&array).unwrap();
        sketch.hyper_log_log().unwrap()
    }

    /// Returns three standard errors of a HyperLogLog, the tolerance of the tests.
    fn tolerance(precision: u8) -> f64 {
        3.0 * 1.04 / f64::from(1_u32 << precision).sqrt()
    }

    #[test]
    fn what_datasketches_wrote_is_what_we_count() {
        let mut modes = std::collections::BTreeSet::new();
        for fixture in fixtures().filter(|fixture| fixture.name != "farpool") {
            modes.insert((fixture.bytes[7], fixture.bytes[5] & COMPACT));
            let mut theirs = HyperLogLog::from_datasketches(&fixture.bytes).unwrap();
            let ours = ours(&fixture);
            assert_eq!(
                theirs.0.registers(),
                ours.0.clone().registers(),
                "{} {}",
                fixture.name,
                fixture.values
            );
            theirs.merge(&ours).unwrap();
            let error = theirs.estimate().value / fixture.estimate.max(1.0);
            assert!((error - 1.0).abs() < tolerance(fixture.precision) || fixture.values == 0, "{error}");
        }
        assert!(modes.len() >= 14, "lists, sets and registers of every kind: {modes:?}");
    }

    /// The DataSketches library has read the bytes in the fixture that this crate wrote; the library's estimate is
    /// part of the fixture.
    #[test]
    fn what_datasketches_read_is_what_we_write() {
        for fixture in fixtures().filter(|fixture| fixture.name == "farpool") {
            let ours = ours(&fixture);
            assert!(ours.to_datasketches() == fixture.bytes, "{} {}", fixture.kind, fixture.values);
            let error = fixture.estimate - fixture.values as f64;
            let most = tolerance(fixture.precision) * fixture.values as f64;
            assert!(error.abs() <= most, "{error} of {}", fixture.values);
        }
    }

    #[test]
    fn hostile_bytes_are_refused() {
        for fixture in fixtures() {
            for end in 0..fixture.bytes.len().min(200) {
                let _ = HyperLogLog::from_datasketches(&fixture.bytes[..end]);
                let mut bytes = fixture.bytes.clone();
                for value in [0, 1, 0x7f, 0xff] {
                    bytes[end] = value;
                    if let Ok(state) = HyperLogLog::from_datasketches(&bytes) {
                        assert!(state.estimate().value >= 0.0);
                        HyperLogLog::from_datasketches(&state.to_datasketches()).unwrap();
                    }
                }
            }
        }
        assert!(HyperLogLog::from_datasketches(&[]).is_err());
    }

    /// Prints the states that `testdata/make_datasketches.py` reads with the DataSketches library.
    #[test]
    #[ignore = "for the script that makes the fixtures"]
    fn print_our_states() {
        for (precision, values, kind) in [
            (10, 0, "integers"),
            (10, 7, "floats"),
            (10, 60, "strings"),
            (10, 120, "integers"),
            (10, 5_000, "strings"),
            (4, 6, "integers"),
            (12, 100_000, "floats"),
        ] {
            let fixture = Fixture {
                name: String::new(),
                precision,
                values,
                kind: kind.into(),
                estimate: 0.0,
                bytes: Vec::new(),
            };
            let hex: String = ours(&fixture).to_datasketches().iter().map(|b| format!("{b:02x}")).collect();
            println!("farpool {precision} {values} {kind} {hex}");
        }
    }
}
