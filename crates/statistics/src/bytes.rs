//! Encoding and decoding of the states of statistics (sketches, moments and histograms): numbers as LEB128
//! varints, and a checksum at the end.
//!
//! Invariant: decoding never panics. It allocates at most a small multiple of the given bytes, except where the
//! caller has checked the size.

use crate::hash::murmur3;
use farpool_model::{Error, Result};

/// Size of the checksum at the end of a state, in bytes.
pub(crate) const CHECKSUM_BYTES: usize = 8;

/// Appends a checksum to `state`: the first word of the state's Murmur3 hash with seed 0, little-endian. It detects
/// corruption, but not deliberate changes.
pub fn sealed(mut state: Vec<u8>) -> Vec<u8> {
    let checksum = murmur3(&state, 0).low.to_le_bytes();
    state.extend(checksum);
    state
}

/// Verifies the checksum at the end of `bytes` and returns the state before it.
pub(crate) fn opened(bytes: &[u8]) -> Result<&[u8]> {
    let Some((state, checksum)) = bytes.split_last_chunk::<CHECKSUM_BYTES>() else {
        return Err(damaged("it is too short"));
    };
    if murmur3(state, 0).low.to_le_bytes() != *checksum {
        return Err(damaged("its checksum is wrong"));
    }
    Ok(state)
}

/// Returns the error for a state that cannot be decoded because of `why`.
pub(crate) fn damaged(why: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("the state of a statistic is damaged: {why}")).advise("make or fetch it again")
}

pub(crate) fn put(out: &mut Vec<u8>, mut number: u128) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(crate) fn put_signed(out: &mut Vec<u8>, number: i128) {
    put(out, ((number << 1) ^ (number >> 127)) as u128);
}

/// Reads the bytes of a state that are not decoded yet.
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    pub fn take(&mut self, bytes: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or_else(|| damaged("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("as many bytes were taken"))
    }

    /// Reads a number in LEB128, which must be in its shortest form.
    pub fn number(&mut self) -> Result<u128> {
        let mut number = 0_u128;
        for shift in (0..).step_by(7) {
            let byte = self.byte()?;
            let part = u128::from(byte & 0x7f);
            if shift >= 128 || part << shift >> shift != part || (byte == 0 && shift > 0) {
                return Err(damaged("a number is too long"));
            }
            number |= part << shift;
            if byte < 0x80 {
                break;
            }
        }
        Ok(number)
    }

    pub fn signed(&mut self) -> Result<i128> {
        let number = self.number()?;
        Ok((number >> 1) as i128 ^ -((number & 1) as i128))
    }

    pub fn u64(&mut self) -> Result<u64> {
        u64::try_from(self.number()?).map_err(|_| damaged("a number is too large"))
    }

    /// Reads the number of items that follow. Each item takes at least one byte, so that a number which exceeds the
    /// bytes left is an error.
    pub fn count(&mut self) -> Result<usize> {
        match usize::try_from(self.number()?) {
            Ok(count) if count <= self.0.len() => Ok(count),
            _ => Err(damaged("it says to have more than it has")),
        }
    }

    /// Checks that no bytes are left.
    pub fn end(&self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(damaged("there are bytes behind its end")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let numbers = [0, 1, -1, 63, -64, 64, i128::from(i64::MIN), i128::MAX, i128::MIN];
        let mut bytes = Vec::new();
        numbers.iter().for_each(|n| put_signed(&mut bytes, *n));
        let mut reader = Reader(&bytes);
        assert!(numbers.iter().all(|n| reader.signed().unwrap() == *n));
        reader.end().unwrap();
    }

    #[test]
    fn what_is_no_number_is_refused() {
        let read = |bytes: &[u8]| Reader(bytes).number();
        assert!(read(&[]).is_err());
        assert!(read(&[0x80]).is_err(), "it goes on");
        assert!(read(&[0x80, 0]).is_err(), "not the shortest form");
        assert!(read(&[0xff; 19]).is_err(), "more than 128 bits");
        assert_eq!(read(&[[0xff; 18].as_slice(), &[3]].concat()).unwrap(), u128::MAX);
        assert!(Reader(&[5, 0]).count().is_err());
    }

    #[test]
    fn a_flipped_bit_breaks_the_seal() {
        let bytes = sealed(vec![1, 2, 3]);
        assert_eq!(opened(&bytes).unwrap(), [1, 2, 3]);
        for bit in 0..8 * bytes.len() {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(opened(&bytes).is_err());
        }
        assert!(opened(&bytes[..7]).is_err());
    }
}
