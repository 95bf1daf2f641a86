//! Finds the codes of an FSST symbol table (each stands for a frequent byte sequence) of which only the first of
//! several consecutive ones matters to an automaton for LIKE.
//!
//! Codes are of one kind if they have the same effect on every state. A kind is repeatable if applying it twice has
//! the same effect as applying it once. In `%fox%bar%`, all codes without a part of either word form a repeatable
//! kind.

use fsst::ESCAPE_CODE;

/// Number of codes that are sampled to estimate how many would be dropped.
const SAMPLE_CODES: usize = 4096;

/// Divisor: codes of the kind must be at least one part in this many of the sample. Reason: if most codes remain,
/// dropping the others costs more than it saves.
const PART_MIN: usize = 4;

/// A repeatable kind of codes.
#[derive(Debug)]
pub(super) struct Repeats {
    /// A bit for each code. Never includes the escape.
    pub codes: [u8; 32],
    /// One of the codes. Appending it to a string does not change whether the automaton accepts that string.
    pub pad: u8,
}

impl Repeats {
    /// Returns the most frequent repeatable kind in `data`, if it is frequent enough. `steps` returns for
    /// each code the states that follow each state, the first of which are those of `accepts`.
    pub fn find<'s>(steps: impl Fn(usize) -> &'s [u8], accepts: &[bool], data: &[u8]) -> Option<Repeats> {
        let mut counts = [0; 256];
        let sample = &data[..data.len().min(SAMPLE_CODES)];
        sample.iter().for_each(|code| counts[usize::from(*code)] += 1);
        let steps = |code: usize| &steps(code)[..accepts.len()];
        let mut open: Vec<usize> =
            (0..usize::from(ESCAPE_CODE)).filter(|code| repeats(steps(*code), accepts)).collect();
        let (mut best, mut most) = (Vec::new(), 0);
        while let Some(first) = open.first().copied() {
            let (kind, others) = open.into_iter().partition(|code| steps(*code) == steps(first));
            open = others;
            let count = kind.iter().map(|code: &usize| counts[*code]).sum::<usize>();
            if count > most {
                (best, most) = (kind, count);
            }
        }
        let pad = best.first().filter(|_| most * PART_MIN >= sample.len())?;
        let mut codes = [0; 32];
        best.iter().for_each(|code| codes[code / 8] |= 1 << (code % 8));
        Some(Repeats { codes, pad: *pad as u8 })
    }
}

/// Returns whether applying these steps a second time changes nothing, and no step changes acceptance.
fn repeats(steps: &[u8], accepts: &[bool]) -> bool {
    steps.iter().zip(accepts).all(|(to, accepted)| {
        let to = usize::from(*to);
        steps.get(to).is_some_and(|again| usize::from(*again) == to) && accepts[to] == *accepted
    })
}
