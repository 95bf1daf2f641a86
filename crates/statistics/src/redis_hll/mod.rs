//! HyperLogLogs in the format of Redis 7. To clients they are strings, which may be read and written as such.
//!
//! ```text
//! byte  0..4   "HYLL"
//!       4      0: dense, 1: sparse
//!       5..8   unused
//!       8..16  the cardinality that was computed last; the highest bit is set once it no longer holds
//!       16..   16,384 registers: dense, six bits each, or sparse, as runs of equal registers
//! ```
//! Numbers are little-endian. After the same additions, the bytes equal those of Redis, so that values can be moved
//! between the two and compared. As in Redis, a value begins sparse. It becomes dense when it would take more than
//! 3,000 bytes or a register exceeds 32, and never becomes sparse again.

use farpool_model::Error;

mod estimate;
mod sparse;
#[cfg(test)]
mod tests;

use estimate::Histogram;

const MAGIC: &[u8; 4] = b"HYLL";
const HEADER_BYTES: usize = 16;
const DENSE: u8 = 0;
const SPARSE: u8 = 1;

/// Number of bits of a hash that select a register.
const INDEX_BITS: u32 = 14;
const REGISTERS: usize = 1 << INDEX_BITS;
const REGISTER_BITS: usize = 6;
const REGISTER_MASK: u8 = (1 << REGISTER_BITS) - 1;
const DENSE_BYTES: usize = HEADER_BYTES + REGISTERS * REGISTER_BITS / 8;

/// Maximum size of a sparse value in bytes, including its header: the default of Redis' `hll-sparse-max-bytes`.
const SPARSE_BYTES: usize = 3000;

/// Maximum size in bytes of a sparse value: each register in a run of its own, which takes two bytes at most.
const LONGEST_BYTES: usize = HEADER_BYTES + 2 * REGISTERS;

/// Seed of Redis' hash function.
const SEED: u64 = 0xadc8_3b19;

/// Error for a corrupt value: its runs do not cover exactly all registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

impl Corrupt {
    /// Returns the error for the client that sent the value.
    pub fn into_error(self) -> Error {
        Error::invalid("a HyperLogLog is corrupt: its registers do not add up")
    }
}

/// Returns a reader of `value`.
///
/// # Errors
/// `Invalid` where [`Reader::new`] returns `None`.
pub fn read(value: &[u8]) -> farpool_model::Result<Reader<'_>> {
    Reader::new(value).ok_or_else(|| {
        Error::invalid(format!("a value of {} bytes is no HyperLogLog in the format of Redis", value.len()))
            .advise("PFADD makes them, as does hll in SQL")
    })
}

/// Registers of the union of some values: for each register the greatest one.
#[derive(Debug)]
pub struct Registers(Box<[u8]>);

impl Default for Registers {
    fn default() -> Self {
        Self::new()
    }
}

impl Registers {
    /// Creates the registers of a value without elements.
    pub fn new() -> Self {
        Registers(vec![0; REGISTERS].into())
    }

    /// Creates a value with these registers, sparse if possible. It has no cached cardinality.
    fn written(&self) -> Writer {
        let mut value = Writer::new();
        value.forget_count();
        if let Some(runs) = sparse::written(&self.0) {
            value.0.truncate(HEADER_BYTES);
            value.0.extend_from_slice(&runs);
            return value;
        }
        value.0[4] = DENSE;
        value.0.resize(DENSE_BYTES, 0);
        value.0[HEADER_BYTES..].fill(0);
        for (index, register) in self.0.iter().enumerate() {
            raise_dense(&mut value.0[HEADER_BYTES..], index, *register);
        }
        value
    }

    /// Estimates the number of distinct elements of all values together.
    pub fn count(&self) -> u64 {
        let mut histogram = Histogram::default();
        self.0.iter().for_each(|register| histogram.add(*register, 1));
        histogram.estimate()
    }
}

/// Reads a value.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Creates a reader of `value`. Returns `None` if it does not have the header of a HyperLogLog, or is dense and has
    /// the wrong length. Whether its runs are corrupt is not checked here.
    pub fn new(value: &'a [u8]) -> Option<Self> {
        let is_one = match value.get(..HEADER_BYTES)? {
            [b'H', b'Y', b'L', b'L', DENSE, ..] => value.len() == DENSE_BYTES,
            [b'H', b'Y', b'L', b'L', SPARSE, ..] => true,
            _ => false,
        };
        is_one.then_some(Reader(value))
    }

    /// Returns the size of the value in bytes.
    pub fn bytes(self) -> usize {
        self.0.len()
    }

    /// Returns whether the value is dense: each register has six bits.
    pub fn is_dense(self) -> bool {
        self.0[4] == DENSE
    }

    /// Returns the cached cardinality; `None` if the value has changed since it was computed.
    pub fn cached_count(self) -> Option<u64> {
        let bytes = self.0[8..HEADER_BYTES].try_into().ok()?;
        Some(u64::from_le_bytes(bytes)).filter(|count| count >> 63 == 0)
    }

    /// Returns the cached cardinality; if there is none, estimates it.
    ///
    /// # Errors
    /// [`Corrupt`].
    pub fn known_count(self) -> Result<u64, Corrupt> {
        self.cached_count().map_or_else(|| self.count(), Ok)
    }

    /// Estimates the number of distinct elements that were added.
    ///
    /// # Errors
    /// [`Corrupt`].
    pub fn count(self) -> Result<u64, Corrupt> {
        let mut histogram = Histogram::default();
        if self.is_dense() {
            dense_registers(&self.0[HEADER_BYTES..]).for_each(|register| histogram.add(register, 1));
        } else {
            self.runs(|run, _| histogram.add(run.register, run.count))?;
        }
        Ok(histogram.estimate())
    }

    /// Raises each of `registers` to that of the value where the value's is greater. After an error, `registers` are
    /// unspecified.
    ///
    /// # Errors
    /// [`Corrupt`].
    pub fn merge_into(self, registers: &mut Registers) -> Result<(), Corrupt> {
        if self.is_dense() {
            let raised = registers.0.iter_mut().zip(dense_registers(&self.0[HEADER_BYTES..]));
            raised.for_each(|(register, other)| *register = other.max(*register));
            return Ok(());
        }
        self.runs(|run, first| {
            let raised = &mut registers.0[first..first + run.count];
            raised.iter_mut().for_each(|register| *register = run.register.max(*register));
        })
    }

    /// Calls `f` with each run of equal registers and the index of its first register. Fails unless the runs cover
    /// exactly all registers.
    fn runs(self, mut f: impl FnMut(sparse::Run, usize)) -> Result<(), Corrupt> {
        let mut first = 0;
        for run in sparse::runs(&self.0[HEADER_BYTES..]) {
            let run = run?;
            if first + run.count > REGISTERS {
                return Err(Corrupt);
            }
            f(run, first);
            first += run.count;
        }
        if first == REGISTERS { Ok(()) } else { Err(Corrupt) }
    }

    /// Returns whether the value is dense and adding `element` would not change its registers.
    pub fn is_dense_with(self, element: &[u8]) -> bool {
        let (index, rank) = place(element);
        self.is_dense() && dense_register(&self.0[HEADER_BYTES..], index) >= rank
    }
}

/// Changes a value.
#[derive(Clone, Debug)]
pub struct Writer(Vec<u8>);

impl Default for Writer {
    fn default() -> Self {
        Self::new()
    }
}

impl Writer {
    /// Creates a value without elements.
    pub fn new() -> Self {
        let mut value = vec![0; HEADER_BYTES];
        value[..4].copy_from_slice(MAGIC);
        value[4] = SPARSE;
        value.extend_from_slice(&sparse::NO_ELEMENTS);
        Writer(value)
    }

    /// Creates a copy of a value. A value that is longer than all registers need is corrupt.
    ///
    /// # Errors
    /// [`Corrupt`].
    pub fn of(value: Reader<'_>) -> Result<Self, Corrupt> {
        if value.0.len() > LONGEST_BYTES { Err(Corrupt) } else { Ok(Writer(value.0.to_vec())) }
    }

    /// Returns the value.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the bytes of memory that the value takes.
    pub fn bytes_held(&self) -> usize {
        self.0.capacity()
    }

    /// Adds an element. Returns whether a register changed. Corruption is noticed only in the runs that are read.
    ///
    /// # Errors
    /// [`Corrupt`].
    pub fn add(&mut self, element: &[u8]) -> Result<bool, Corrupt> {
        let (index, rank) = place(element);
        self.raise(index, rank)
    }

    /// Raises each register to that of another value where the other's is greater. The result is dense if one of the
    /// two values is. After an error, the bytes of this value are unspecified.
    ///
    /// # Errors
    /// [`Corrupt`].
    pub fn merge(&mut self, other: Reader<'_>) -> Result<(), Corrupt> {
        if other.is_dense() {
            self.make_dense()?;
        }
        if self.0[4] == SPARSE {
            let mut registers = Registers::new();
            Reader(&self.0).merge_into(&mut registers)?;
            other.merge_into(&mut registers)?;
            *self = registers.written();
            return Ok(());
        }
        let dense = &mut self.0[HEADER_BYTES..];
        if other.is_dense() {
            dense_registers(&other.0[HEADER_BYTES..]).enumerate().for_each(|(index, register)| {
                raise_dense(dense, index, register);
            });
        } else {
            other.runs(|run, first| {
                let raised = if run.register == 0 { 0 } else { run.count };
                (first..first + raised).for_each(|index| {
                    raise_dense(dense, index, run.register);
                });
            })?;
        }
        self.forget_count();
        Ok(())
    }

    /// Raises each register to that of `registers` where the latter is greater.
    ///
    /// # Errors
    /// [`Corrupt`].
    pub fn raise_all(&mut self, registers: &Registers) -> Result<(), Corrupt> {
        for (index, register) in registers.0.iter().enumerate().filter(|(_, register)| **register > 0) {
            self.raise(index, *register)?;
        }
        Ok(())
    }

    /// Raises a register to `rank` if it is less than `rank`. Returns whether it was.
    fn raise(&mut self, index: usize, rank: u8) -> Result<bool, Corrupt> {
        if self.0[4] == SPARSE {
            match sparse::raise(&mut self.0, index, rank)? {
                sparse::Raised::No => return Ok(false),
                sparse::Raised::Yes => return Ok(true),
                sparse::Raised::NeedsDense => self.make_dense()?,
            }
        }
        Ok(raise_dense(&mut self.0[HEADER_BYTES..], index, rank))
    }

    /// Makes the value dense.
    ///
    /// # Errors
    /// [`Corrupt`].
    pub fn make_dense(&mut self) -> Result<(), Corrupt> {
        if self.0[4] == DENSE {
            return Ok(());
        }
        let mut dense = vec![0; DENSE_BYTES];
        dense[..HEADER_BYTES].copy_from_slice(&self.0[..HEADER_BYTES]);
        dense[4] = DENSE;
        let registers = &mut dense[HEADER_BYTES..];
        Reader(&self.0).runs(|run, first| {
            (first..first + run.count).for_each(|index| {
                raise_dense(registers, index, run.register);
            });
        })?;
        self.0 = dense;
        Ok(())
    }

    /// Marks the cached cardinality as no longer valid.
    pub fn forget_count(&mut self) {
        forget_count(&mut self.0);
    }
}

/// Adds an element to a dense value in place.
pub fn add_to_dense(value: &mut [u8], element: &[u8]) {
    let (index, rank) = place(element);
    raise_dense(&mut value[HEADER_BYTES..], index, rank);
}

/// Marks the cached cardinality of a value as no longer valid, in place.
pub fn forget_count(value: &mut [u8]) {
    value[HEADER_BYTES - 1] |= 0x80;
}

/// Stores `count` as the cached cardinality of a value, in place.
pub fn keep_count(value: &mut [u8], count: u64) {
    value[8..HEADER_BYTES].copy_from_slice(&count.to_le_bytes());
}

/// Returns three bytes as a number of 24 bits, which holds four registers of six bits.
fn four(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0])
}

fn dense_registers(dense: &[u8]) -> impl Iterator<Item = u8> {
    let of_four = |four: u32| (0..4).map(move |at| (four >> (6 * at)) as u8 & REGISTER_MASK);
    dense.chunks_exact(3).flat_map(move |bytes| of_four(four(bytes)))
}

fn dense_register(dense: &[u8], index: usize) -> u8 {
    (four(&dense[index / 4 * 3..]) >> (REGISTER_BITS * (index % 4))) as u8 & REGISTER_MASK
}

fn raise_dense(dense: &mut [u8], index: usize, rank: u8) -> bool {
    if dense_register(dense, index) >= rank {
        return false;
    }
    let bytes = &mut dense[index / 4 * 3..][..3];
    let shift = REGISTER_BITS * (index % 4);
    let raised = four(bytes) & !(u32::from(REGISTER_MASK) << shift) | u32::from(rank) << shift;
    bytes.copy_from_slice(&raised.to_le_bytes()[..3]);
    true
}

/// Returns the index of the register of an element, and the element's rank: one plus the number of trailing zeros in
/// the rest of its hash.
fn place(element: &[u8]) -> (usize, u8) {
    let hash = hash(element);
    let index = hash as usize & (REGISTERS - 1);
    // A bit that is always set limits the number of zeros to 50.
    let rest = hash >> INDEX_BITS | 1 << (64 - INDEX_BITS);
    (index, rest.trailing_zeros() as u8 + 1)
}

/// Computes MurmurHash64A (Austin Appleby), on little-endian words.
fn hash(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(FACTOR);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let word = u64::from_le_bytes(*word).wrapping_mul(FACTOR);
        hash = (hash ^ (word ^ word >> 47).wrapping_mul(FACTOR)).wrapping_mul(FACTOR);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(FACTOR);
    }
    hash = (hash ^ hash >> 47).wrapping_mul(FACTOR);
    hash ^ hash >> 47
}
