//! Matrices of byte columns and of float columns, in the two layouts that the kernels of moments read: each
//! column contiguous, and groups of columns interleaved row by row.

use std::ops::Range;

/// Number of columns of bytes in an interleaved group.
pub(crate) const GROUP: usize = 16;

/// Bytes of a cache line, and number of rows of a byte column that a kernel processes at a time.
pub(crate) const LINE: usize = 64;

/// Number of columns of floats in an interleaved group.
pub(crate) const LANES: usize = 8;

/// Maximum number of rows of a block. Reason: sums of products of that many bytes fit 32 bits, and 16 columns of 32-bit
/// integers fit the L2 cache.
pub(crate) const BLOCK_ROWS: usize = 4096;

const _: () = assert!(BLOCK_ROWS * 255 * 255 <= u32::MAX as usize);

/// Matrix of columns of bytes, with up to [`BLOCK_ROWS`] rows.
#[derive(Default)]
pub(crate) struct Bytes {
    columns: usize,
    lines: usize,
    plain: Vec<u8>,
    interleaved: Vec<u8>,
}

impl Bytes {
    /// Resizes to `columns` columns of `rows` bytes with arbitrary contents.
    pub(crate) fn reshape(&mut self, columns: usize, rows: usize) {
        self.columns = columns.next_multiple_of(GROUP);
        self.lines = rows.div_ceil(LINE);
        let plain = self.columns * self.stride();
        grow(&mut self.plain, plain + LINE);
        let interleaved = self.columns / GROUP * self.group_stride();
        grow(&mut self.interleaved, interleaved + LINE);
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    pub(crate) fn lines(&self) -> usize {
        self.lines
    }

    /// Returns the distance in bytes from the start of one column to that of the next. It is one cache line more than
    /// a column has, because columns at multiples of a large power of two would compete for the same lines of the
    /// cache.
    pub(crate) fn stride(&self) -> usize {
        (self.lines + 1) * LINE
    }

    pub(crate) fn column(&self, index: usize) -> &[u8] {
        &self.columns_from(index, 1)[..self.lines * LINE]
    }

    pub(crate) fn columns_from(&self, index: usize, count: usize) -> &[u8] {
        &self.plain[aligned(&self.plain)..][index * self.stride()..][..count * self.stride()]
    }

    /// Returns the memory of a column, to be filled. Bytes behind the last row must be set to 0.
    pub(crate) fn column_mut(&mut self, index: usize) -> &mut [u8] {
        let (stride, length, start) = (self.stride(), self.lines * LINE, aligned(&self.plain));
        &mut self.plain[start..][index * stride..][..length]
    }

    pub(crate) fn interleaved(&self, group: usize) -> &[u8] {
        let (start, stride) = (aligned(&self.interleaved), self.group_stride());
        &self.interleaved[start..][group * stride..][..self.lines * LINE * GROUP]
    }

    /// Returns the distance in bytes from one interleaved group to the next, with padding as in [`Bytes::stride`].
    pub(crate) fn group_stride(&self) -> usize {
        self.stride() * GROUP
    }

    /// Returns all columns, and the memory for their interleaved copy.
    pub(crate) fn both_mut(&mut self) -> (&[u8], &mut [u8]) {
        let (plain, interleaved) = (aligned(&self.plain), aligned(&self.interleaved));
        let length = self.columns / GROUP * self.group_stride();
        (&self.plain[plain..], &mut self.interleaved[interleaved..][..length])
    }

    pub(crate) fn bytes_held(&self) -> usize {
        self.plain.capacity() + self.interleaved.capacity()
    }

    /// Asserts that the ranges of columns and the `room` for the results fit the matrix and the kernels.
    pub(crate) fn check(&self, left: &Range<usize>, right: &Range<usize>, room: usize, width: usize) {
        assert!(self.lines > 0 && left.end <= self.columns && right.end <= self.columns);
        assert!([left.start, left.end, right.start, right.end].iter().all(|k| k.is_multiple_of(GROUP)));
        assert!(right.len() <= width && left.len() * width <= room);
    }
}

/// Returns the offset of the first byte that is at a multiple of [`LINE`].
fn aligned(bytes: &[u8]) -> usize {
    bytes.as_ptr().align_offset(LINE)
}

fn grow<T: Clone + Default>(values: &mut Vec<T>, length: usize) {
    if values.len() < length {
        values.clear();
        values.resize(length, T::default());
    }
}

/// Matrix of columns of floats, with up to [`BLOCK_ROWS`] rows.
#[derive(Default)]
pub(crate) struct Floats {
    columns: usize,
    rows: usize,
    plain: Vec<f64>,
    interleaved: Vec<[f64; LANES]>,
}

impl Floats {
    /// Resizes to `columns` columns of `rows` values with arbitrary contents.
    pub(crate) fn reshape(&mut self, columns: usize, rows: usize) {
        (self.columns, self.rows) = (columns.next_multiple_of(LANES), rows);
        let plain = self.columns * self.stride();
        grow(&mut self.plain, plain);
        grow(&mut self.interleaved, self.columns / LANES * rows);
    }

    #[cfg(test)]
    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the distance in values from one column to the next, with padding as in [`Bytes::stride`].
    fn stride(&self) -> usize {
        self.rows.next_multiple_of(LANES) + LANES
    }

    pub(crate) fn column(&self, index: usize) -> &[f64] {
        &self.plain[index * self.stride()..][..self.rows]
    }

    pub(crate) fn column_mut(&mut self, index: usize) -> &mut [f64] {
        let stride = self.stride();
        &mut self.plain[index * stride..][..self.rows]
    }

    pub(crate) fn group(&self, group: usize) -> &[[f64; LANES]] {
        &self.interleaved[group * self.rows..][..self.rows]
    }

    /// Fills the interleaved copy of the columns.
    pub(crate) fn interleave(&mut self) {
        let stride = self.stride();
        for (group, to) in self.interleaved.chunks_exact_mut(self.rows).take(self.columns / LANES).enumerate()
        {
            let from: [&[f64]; LANES] =
                std::array::from_fn(|lane| &self.plain[(group * LANES + lane) * stride..][..self.rows]);
            for (row, to) in to.iter_mut().enumerate() {
                *to = std::array::from_fn(|lane| from[lane][row]);
            }
        }
    }

    pub(crate) fn bytes_held(&self) -> usize {
        8 * self.plain.capacity() + 8 * LANES * self.interleaved.capacity()
    }

    /// Asserts that the ranges of columns and the `room` for the results fit the matrix and the kernels.
    pub(crate) fn check(&self, left: &Range<usize>, right: &Range<usize>, room: usize, width: usize) {
        assert!(left.end <= self.columns && right.end <= self.columns);
        assert!([left.start, left.end, right.start, right.end].iter().all(|k| k.is_multiple_of(LANES)));
        assert!(right.len() <= width && left.len() * width <= room);
    }
}
