//! Encoding of histograms: version 1; the kind (0 for whole numbers, 1 for floats); the number of values in no
//! bin (NaN and infinities); whether there are bins; then the minimum and maximum of the values (16 bytes each for
//! whole numbers, 8 for floats), and the counts. Numbers without a stated width are varints with 7 bits per byte, the
//! lowest first. The bins follow from the minimum and maximum.

use super::{Bins, Filled, Histogram, Number};
use farpool_model::{Error, Result};

const VERSION: u8 = 1;

pub(super) fn write(histogram: &Histogram) -> Vec<u8> {
    let mut out = vec![VERSION, u8::from(matches!(histogram.filled, Filled::Real(_)))];
    varint(&mut out, histogram.outside);
    let range: Option<Vec<u8>> = match &histogram.filled {
        Filled::Whole(bins) => bins.range.map(|(low, high)| [low.to_le_bytes(), high.to_le_bytes()].concat()),
        Filled::Real(bins) => bins.range.map(|(low, high)| [low.to_le_bytes(), high.to_le_bytes()].concat()),
    };
    out.push(u8::from(range.is_some()));
    out.extend(range.unwrap_or_default());
    histogram.counts().iter().for_each(|count| varint(&mut out, *count));
    out
}

pub(super) fn read(bytes: &[u8]) -> Result<Histogram> {
    let mut input = Input(bytes);
    let version = input.byte()?;
    if version != VERSION {
        return Err(damaged(format!("version {version} is not known")));
    }
    let real = input.flag()?;
    let outside = input.varint()?;
    let filled = input.flag()?;
    let filled = match (real, filled) {
        (false, false) => Filled::Whole(Bins::empty()),
        (true, false) => Filled::Real(Bins::empty()),
        (false, true) => {
            let (low, high) = (i128::from_le_bytes(input.array()?), i128::from_le_bytes(input.array()?));
            Filled::Whole(counts(&mut input, low, high)?)
        }
        (true, true) => {
            let (low, high) = (f64::from_le_bytes(input.array()?), f64::from_le_bytes(input.array()?));
            if !low.is_finite() || !high.is_finite() {
                return Err(damaged("its range is not finite"));
            }
            Filled::Real(counts(&mut input, low + 0.0, high + 0.0)?)
        }
    };
    match input.0.is_empty() {
        true => Ok(Histogram { filled, outside }),
        false => Err(damaged("bytes are left over")),
    }
}

fn counts<T: Number>(input: &mut Input<'_>, low: T, high: T) -> Result<Bins<T>> {
    if low > high {
        return Err(damaged("its least value is above its greatest"));
    }
    let mut bins = Bins::within(low, high);
    for count in &mut bins.counts {
        *count = input.varint()?;
    }
    if bins.counts.first() == Some(&0) || bins.counts.last() == Some(&0) {
        return Err(damaged("there is no value where the least or the greatest should be"));
    }
    Ok(bins)
}

fn damaged(what: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("a damaged histogram: {what}"))
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Result<u8> {
        let (first, rest) = self.0.split_first().ok_or_else(|| damaged("it is cut off"))?;
        self.0 = rest;
        Ok(*first)
    }

    fn flag(&mut self) -> Result<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(damaged(format!("{other} where 0 or 1 is expected"))),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk::<N>().ok_or_else(|| damaged("it is cut off"))?;
        self.0 = rest;
        Ok(*array)
    }

    fn varint(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(damaged("a number has more than 64 bits"))
    }
}
