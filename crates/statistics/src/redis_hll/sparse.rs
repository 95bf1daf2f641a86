//! Sparse form of HyperLogLogs in the format of Redis: the registers as runs of equal ones.
//!
//! ```text
//! 00nnnnnn           n + 1 registers are zero
//! 01nnnnnn nnnnnnnn  n + 1 registers are zero; the high bits come first
//! 1vvvvvnn           n + 1 registers are v + 1
//! ```
//! A register is raised within the encoded runs, by the same steps as in Redis, so that the bytes are the same.

use super::{Corrupt, HEADER_BYTES, REGISTERS, SPARSE_BYTES, forget_count};

const ZEROS_IN_BYTE: usize = 64;
const GREATEST_VALUE: u8 = 32;
const VALUES_IN_BYTE: usize = 4;

/// Number of runs that are checked for joining after a run has changed, starting with the run before it. Reason: a
/// changed run may have become three runs, each of which may be joined with its neighbours.
const JOINED_RUNS: usize = 5;

/// Encoded run of a value without elements.
pub(super) const NO_ELEMENTS: [u8; 2] = {
    let zeros = REGISTERS - 1;
    [0x40 | (zeros >> 8) as u8, zeros as u8]
};

/// A run of equal registers.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub register: u8,
    /// Number of registers.
    pub count: usize,
    /// Size of the encoded run in bytes.
    bytes: usize,
}

impl Run {
    fn first(runs: &[u8]) -> Option<Result<Run, Corrupt>> {
        let zeros = |count, bytes| Ok(Run { register: 0, count, bytes });
        Some(match *runs {
            [] => return None,
            [value @ 0x80..=0xff, ..] => {
                Ok(Run { register: (value >> 2 & 0x1f) + 1, count: usize::from(value & 3) + 1, bytes: 1 })
            }
            [high @ 0x40..=0x7f, low, ..] => zeros((usize::from(high & 0x3f) << 8 | usize::from(low)) + 1, 2),
            [0x40..=0x7f] => Err(Corrupt),
            [short, ..] => zeros(usize::from(short) + 1, 1),
        })
    }
}

/// Returns the runs of a value, up to the first that is incomplete.
pub(super) fn runs(mut bytes: &[u8]) -> impl Iterator<Item = Result<Run, Corrupt>> {
    std::iter::from_fn(move || {
        let run = Run::first(bytes)?;
        bytes = run.map_or(&[], |run| &bytes[run.bytes..]);
        Some(run)
    })
}

/// Outcome of raising a register.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Raised {
    /// The register has at least that value already.
    No,
    Yes,
    /// The register cannot be raised while the value is sparse.
    NeedsDense,
}

/// Up to three encoded runs that replace one.
#[derive(Default)]
struct Encoded {
    bytes: [u8; 5],
    used: usize,
}

impl Encoded {
    fn push(&mut self, register: u8, count: usize) {
        let long = count.wrapping_sub(1);
        match (register, count) {
            (_, 0) => return,
            (0, ..=ZEROS_IN_BYTE) => self.bytes[self.used] = long as u8,
            (0, _) => {
                self.bytes[self.used] = 0x40 | (long >> 8) as u8;
                self.used += 1;
                self.bytes[self.used] = long as u8;
            }
            _ => self.bytes[self.used] = value(register, count),
        }
        self.used += 1;
    }
}

fn value(register: u8, count: usize) -> u8 {
    0x80 | (register - 1) << 2 | (count - 1) as u8
}

/// Encodes all registers as runs; `None` if a register exceeds the maximum of the sparse form, or the result would be
/// longer than the maximum size of a sparse value.
pub(super) fn written(registers: &[u8]) -> Option<Vec<u8>> {
    let mut runs = Vec::new();
    for equal in registers.chunk_by(|one, other| one == other) {
        let register = equal[0];
        let most = if register == 0 { REGISTERS } else { VALUES_IN_BYTE };
        for run in equal.chunks(most) {
            let mut encoded = Encoded::default();
            encoded.push(register, run.len());
            runs.extend_from_slice(&encoded.bytes[..encoded.used]);
        }
        if register > GREATEST_VALUE || HEADER_BYTES + runs.len() > SPARSE_BYTES {
            return None;
        }
    }
    Some(runs)
}

/// Raises a register of a sparse value if it is less than `rank`.
pub(super) fn raise(whole: &mut Vec<u8>, index: usize, rank: u8) -> Result<Raised, Corrupt> {
    if rank > GREATEST_VALUE {
        return Ok(Raised::NeedsDense);
    }
    let (mut before, mut at, mut first) = (HEADER_BYTES, HEADER_BYTES, 0);
    let run = loop {
        let run = Run::first(&whole[at..]).ok_or(Corrupt)??;
        if index < first + run.count {
            break run;
        }
        (before, at, first) = (at, at + run.bytes, first + run.count);
    };
    if run.register >= rank {
        return Ok(Raised::No);
    }
    let mut encoded = Encoded::default();
    encoded.push(run.register, index - first);
    encoded.push(rank, 1);
    encoded.push(run.register, first + run.count - 1 - index);
    if encoded.used > run.bytes && whole.len() + encoded.used - run.bytes > SPARSE_BYTES {
        return Ok(Raised::NeedsDense);
    }
    whole.splice(at..at + run.bytes, encoded.bytes[..encoded.used].iter().copied());
    join(whole, before);
    forget_count(whole);
    Ok(Raised::Yes)
}

/// Joins adjacent runs of equal register values, from the run at byte `at` on.
fn join(whole: &mut Vec<u8>, mut at: usize) {
    for _ in 0..JOINED_RUNS {
        match whole.get(at..) {
            None | Some([]) => return,
            Some(&[one @ 0x80..=0xff, other @ 0x80..=0xff, ..]) if one >> 2 == other >> 2 => {
                let count = usize::from(one & 3) + usize::from(other & 3) + 2;
                if count <= VALUES_IN_BYTE {
                    whole[at] = (one & !3) | (count - 1) as u8;
                    whole.remove(at + 1);
                } else {
                    at += 1;
                }
            }
            Some([0x40..0x80, ..]) => at += 2,
            Some(_) => at += 1,
        }
    }
}
