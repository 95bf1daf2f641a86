//! The parameters of sketches: their text form, and the check of their values.
//!
//! Invariant: parameters that pass [`SketchParameters::check`] leave enough bits of one 128-bit hash for every row of
//! every sketch. Rows that used the same bits would not be independent, and the error bounds would not hold (M.
//! Chiosa's thesis, ETH Zurich no. 29551, section 4.3).

use crate::{Counters, Error, NullHandling, Result, SketchParameters, limits};
use std::fmt::{self, Write};
use std::ops::RangeInclusive;
use std::str::FromStr;

impl SketchParameters {
    /// No sketch. The state still has what every state has: count, NULLs, minimum, maximum, sum.
    pub const NONE: SketchParameters =
        SketchParameters { distinct: None, frequency: None, second_moment: None, top: 0, quantiles: None };

    /// Checks that the pool accepts the parameters.
    ///
    /// # Errors
    /// `Invalid` if a size is outside the limits, if the counter rows need more bits than a hash has, or if frequent
    /// values are requested without the counters that find them.
    pub fn check(&self) -> Result<()> {
        if let Some(precision) = self.distinct {
            within("the precision of HyperLogLog", precision, &limits::DISTINCT_PRECISION)?;
        }
        let tables = [("Count-Min", self.frequency, 0), ("Fast-AGMS", self.second_moment, 1)];
        for (name, counters, sign) in tables {
            let Some(Counters { rows, precision }) = counters else { continue };
            within(&format!("the precision of {name}"), precision, &limits::COUNTERS_PRECISION)?;
            let bits = u32::from(rows) * u32::from(precision + sign);
            if rows == 0 || bits > limits::SKETCH_HASH_BITS {
                return Err(Error::invalid(format!(
                    "{name} of {rows} rows and precision {precision} takes {bits} bits of a hash of {}",
                    limits::SKETCH_HASH_BITS
                ))
                .advise(
                    "choose at least one row, and fewer rows or a lower precision where there are too many",
                ));
            }
        }
        if self.top > limits::SKETCH_TOP_MAX {
            return Err(Error::invalid(format!(
                "a sketch keeps up to {} frequent values, not {}",
                limits::SKETCH_TOP_MAX,
                self.top
            )));
        }
        if let Some(k) = self.quantiles {
            within("the size of KLL", k, &limits::SKETCH_QUANTILES)?;
        }
        if self.top > 0 && self.frequency.is_none() {
            return Err(Error::invalid(
                "the most frequent values are found with Count-Min, which is not there",
            )
            .advise("give the parameters of Count-Min as well, as in 'frequency=6x13'"));
        }
        Ok(())
    }

    /// Returns the approximate bytes of an encoded state after many values.
    pub fn state_bytes(&self) -> usize {
        let registers = self.distinct.map_or(0, |precision| (1_usize << precision) * 3 / 4);
        let table = |counters: Option<Counters>, sign: u8| {
            counters.map_or(0, |c| usize::from(c.rows) << (c.precision + sign) << 1)
        };
        let counters = table(self.second_moment, 1).max(table(self.frequency, 0));
        let kept = 3 * usize::from(self.quantiles.unwrap_or(0));
        registers + counters + 64 * self.top as usize + 4 * kept + 64
    }

    /// Returns the union of these sketches and those of `other`; `None` if both have a sketch with different
    /// parameters.
    pub fn and(&self, other: &SketchParameters) -> Option<SketchParameters> {
        fn either<T: PartialEq + Copy>(a: Option<T>, b: Option<T>) -> Option<Option<T>> {
            match (a, b) {
                (Some(a), Some(b)) if a != b => None,
                (a, b) => Some(a.or(b)),
            }
        }
        Some(SketchParameters {
            distinct: either(self.distinct, other.distinct)?,
            frequency: either(self.frequency, other.frequency)?,
            second_moment: either(self.second_moment, other.second_moment)?,
            top: either(Some(self.top).filter(|t| *t > 0), Some(other.top).filter(|t| *t > 0))?.unwrap_or(0),
            quantiles: either(self.quantiles, other.quantiles)?,
        })
    }
}

fn within<T: PartialOrd + fmt::Display>(what: &str, value: T, range: &RangeInclusive<T>) -> Result<()> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(format!("{what} is from {} to {}, not {value}", range.start(), range.end())))
}

/// Writes the format that [`SketchParameters::from_str`] reads.
impl fmt::Display for SketchParameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        if let Some(precision) = self.distinct {
            write!(text, " distinct={precision}")?;
        }
        for (name, counters) in [("frequency", self.frequency), ("second_moment", self.second_moment)] {
            if let Some(Counters { rows, precision }) = counters {
                write!(text, " {name}={rows}x{precision}")?;
            }
        }
        if self.top > 0 {
            write!(text, " top={}", self.top)?;
        }
        if let Some(k) = self.quantiles {
            write!(text, " quantiles={k}")?;
        }
        f.write_str(text.trim_start())
    }
}

impl FromStr for SketchParameters {
    type Err = Error;

    /// Parses `distinct=P frequency=RxP second_moment=RxP top=K quantiles=K`, each part at most once, in any
    /// order, separated by spaces or commas.
    fn from_str(text: &str) -> Result<Self> {
        let mut parameters = SketchParameters::default();
        let mut seen = Vec::new();
        for part in text.split([' ', ',']).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| wrong(part))?;
            if seen.contains(&name) {
                return Err(wrong(part));
            }
            seen.push(name);
            parameters.set(name, value)?;
        }
        Ok(parameters)
    }
}

impl SketchParameters {
    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let wrong = || wrong(&format!("{name}={value}"));
        let number = |text: &str| text.parse::<u8>().map_err(|_| wrong());
        let counters = || {
            let (rows, precision) = value.split_once('x').ok_or_else(wrong)?;
            Ok::<_, Error>(Some(Counters { rows: number(rows)?, precision: number(precision)? }))
        };
        match name {
            "distinct" => self.distinct = Some(number(value)?),
            "frequency" => self.frequency = counters()?,
            "second_moment" => self.second_moment = counters()?,
            "top" => self.top = value.parse().map_err(|_| wrong())?,
            "quantiles" => self.quantiles = Some(value.parse().map_err(|_| wrong())?),
            _ => return Err(wrong()),
        }
        Ok(())
    }
}

fn wrong(part: &str) -> Error {
    Error::invalid(format!("{part:?} is no parameter of a sketch"))
        .advise("write them as in 'distinct=14 frequency=6x13 second_moment=6x13 top=64 quantiles=200'")
}

impl NullHandling {
    /// Returns the name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            NullHandling::Listwise => "listwise",
            NullHandling::Pairwise => "pairwise",
        }
    }
}

impl FromStr for NullHandling {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        [NullHandling::Listwise, NullHandling::Pairwise]
            .into_iter()
            .find(|nulls| nulls.name() == text)
            .ok_or_else(|| Error::invalid(format!("{text:?} is neither listwise nor pairwise")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> SketchParameters {
        text.parse().unwrap()
    }

    #[test]
    fn parameters_are_read_as_they_are_written() {
        for text in [
            "",
            "distinct=14",
            "frequency=5x13 top=32",
            "distinct=4 frequency=1x4 second_moment=8x15",
            "quantiles=200",
        ] {
            assert_eq!(read(text).to_string(), text);
        }
        assert_eq!(read("top=3,frequency=2x8"), read("frequency=2x8 top=3"));
        for text in
            ["distinct", "distinct=", "distinct=x", "distinct=300", "frequency=5", "bits=3", "top=1 top=2"]
        {
            assert!(text.parse::<SketchParameters>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_needs_more_bits_than_a_hash_has_is_refused() {
        read("distinct=16 frequency=8x16 second_moment=8x15 top=9").check().unwrap();
        for text in ["second_moment=8x16", "distinct=3", "distinct=40", "frequency=0x9", "frequency=9x15"] {
            assert!(read(text).check().is_err(), "{text}");
        }
        for text in [
            "frequency=2x3",
            "second_moment=2x30",
            "top=3",
            "frequency=2x9 top=100000000",
            "quantiles=7",
            "quantiles=5000",
        ] {
            assert!(read(text).check().is_err(), "{text}");
        }
    }

    #[test]
    fn sketches_of_one_column_go_together_unless_they_contradict() {
        let both = read("distinct=14").and(&read("frequency=5x13 top=32"));
        assert_eq!(both, Some(read("distinct=14 frequency=5x13 top=32")));
        assert_eq!(read("distinct=14 top=3").and(&read("distinct=14")), Some(read("distinct=14 top=3")));
        assert_eq!(read("quantiles=8").and(&read("top=2")), Some(read("top=2 quantiles=8")));
        assert_eq!(read("quantiles=8").and(&read("quantiles=9")), None);
        assert_eq!(read("distinct=14").and(&read("distinct=12")), None);
        assert_eq!(read("frequency=5x13 top=3").and(&read("frequency=5x13 top=4")), None);
    }
}
