//! Bitmaps of the rows of a batch: bit `i` of word `i / 64` is row `i`; bits past the last row are clear.

use arrow_array::BooleanArray;
use arrow_buffer::{BooleanBuffer, Buffer};

/// Returns the number of words that hold `rows` bits.
pub(crate) fn words(rows: usize) -> usize {
    rows.div_ceil(64)
}

/// Returns a bitmap of `rows` set bits.
pub(crate) fn ones(rows: usize) -> Vec<u64> {
    let mut bits = vec![u64::MAX; words(rows)];
    clear_tail(&mut bits, rows);
    bits
}

/// Clears the bits past row `rows`.
pub(crate) fn clear_tail(bits: &mut [u64], rows: usize) {
    if !rows.is_multiple_of(64)
        && let Some(last) = bits.last_mut()
    {
        *last &= (1 << (rows % 64)) - 1;
    }
}

/// Returns the number of set bits.
pub(crate) fn count(bits: &[u64]) -> usize {
    bits.iter().map(|w| w.count_ones() as usize).sum()
}

/// Returns whether the bit of `row` is set.
pub(crate) fn get(bits: &[u64], row: usize) -> bool {
    bits[row / 64] >> (row % 64) & 1 == 1
}

/// Computes `left &= right`.
pub(crate) fn and(left: &mut [u64], right: &[u64]) {
    left.iter_mut().zip(right).for_each(|(l, r)| *l &= r);
}

/// Computes `left |= right`.
pub(crate) fn or(left: &mut [u64], right: &[u64]) {
    left.iter_mut().zip(right).for_each(|(l, r)| *l |= r);
}

/// Computes `left &= !right`.
pub(crate) fn and_not(left: &mut [u64], right: &[u64]) {
    left.iter_mut().zip(right).for_each(|(l, r)| *l &= !r);
}

/// Returns the negation of a bitmap of `rows` rows.
pub(crate) fn not(bits: &[u64], rows: usize) -> Vec<u64> {
    let mut negated: Vec<u64> = bits.iter().map(|w| !w).collect();
    clear_tail(&mut negated, rows);
    negated
}

/// Calls `f` with the number of each set bit, in ascending order.
#[inline]
pub(crate) fn for_each(bits: &[u64], mut f: impl FnMut(usize)) {
    for (index, word) in bits.iter().enumerate() {
        let mut word = *word;
        while word != 0 {
            f(index * 64 + word.trailing_zeros() as usize);
            word &= word - 1;
        }
    }
}

/// Clears each set bit for whose row `keep` does not hold.
#[inline]
pub(crate) fn retain(bits: &mut [u64], keep: impl Fn(usize) -> bool) {
    for (index, word) in bits.iter_mut().enumerate() {
        let mut rest = *word;
        while rest != 0 {
            let bit = rest.trailing_zeros();
            rest &= rest - 1;
            *word &= !(u64::from(!keep(index * 64 + bit as usize)) << bit);
        }
    }
}

/// Creates a bitmap of `rows` rows from a function of the row.
///
/// The function is first evaluated into one byte per row, because the compiler can then use vector comparisons where
/// `f` allows it.
#[inline]
pub(crate) fn collect(rows: usize, f: impl Fn(usize) -> bool) -> Vec<u64> {
    let word = |index: usize| {
        let first = index * 64;
        let mut bytes = [0_u8; 64];
        let used = (rows - first).min(64);
        for (bit, byte) in bytes[..used].iter_mut().enumerate() {
            *byte = u8::from(f(first + bit));
        }
        pack(&bytes)
    };
    (0..words(rows)).map(word).collect()
}

/// Returns the lowest bits of the 64 bytes as one word. The multiplication gathers the bits of eight bytes in the top
/// byte of the product.
#[inline]
fn pack(bytes: &[u8; 64]) -> u64 {
    let (words, _) = bytes.as_chunks::<8>();
    let gathered =
        words.iter().map(|word| u64::from_le_bytes(*word).wrapping_mul(0x0102_0408_1020_4080) >> 56);
    gathered.enumerate().fold(0, |bits, (byte, value)| bits | value << (8 * byte))
}

/// Returns the bits of an Arrow buffer.
pub(crate) fn of_buffer(buffer: &BooleanBuffer) -> Vec<u64> {
    let chunks = buffer.bit_chunks();
    let mut bits: Vec<u64> = chunks.iter_padded().collect();
    bits.truncate(words(buffer.len()));
    clear_tail(&mut bits, buffer.len());
    bits
}

/// Returns the first `rows` bits as an Arrow buffer.
pub(crate) fn to_buffer(bits: &[u64], rows: usize) -> BooleanBuffer {
    BooleanBuffer::new(Buffer::from_slice_ref(bits), 0, rows)
}

/// Returns the first `rows` bits as an Arrow array without NULLs.
pub(crate) fn to_array(bits: &[u64], rows: usize) -> BooleanArray {
    BooleanArray::new(to_buffer(bits, rows), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_past_the_last_row_stay_clear() {
        for rows in [0, 1, 63, 64, 65, 130] {
            assert_eq!(count(&ones(rows)), rows);
            assert_eq!(count(&not(&vec![0; words(rows)], rows)), rows);
            assert_eq!(count(&collect(rows, |_| true)), rows);
            assert_eq!(of_buffer(&BooleanBuffer::new_set(rows)), ones(rows));
            assert_eq!(of_buffer(&BooleanBuffer::new_set(rows + 3).slice(3, rows)), ones(rows));
            assert_eq!(to_array(&ones(rows), rows).true_count(), rows);
        }
    }

    #[test]
    fn set_bits_come_in_order() {
        let bits = collect(200, |row| row % 7 == 3);
        let mut seen = Vec::new();
        for_each(&bits, |row| seen.push(row));
        assert_eq!(seen, (0..200).filter(|row| row % 7 == 3).collect::<Vec<_>>());
        assert!(get(&bits, 3) && !get(&bits, 4));
    }
}
