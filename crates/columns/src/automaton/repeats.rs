//! Which codes may be left out behind one of their kind.
//!
//! Codes of a kind do the same to every state. A kind repeats if what it does a second time changes nothing more: then
//! of a row of such codes only the first counts. In `%fox%bar%` that is every code without a part of either word.

use fsst::ESCAPE_CODE;

/// Codes that are looked at to see how many would go.
const SAMPLE_CODES: usize = 4096;

/// One in so many of these has to be of the kind: if most remain, leaving them out costs more than it saves.
const PART_MIN: usize = 4;

/// A kind of codes that repeats.
#[derive(Debug)]
pub(super) struct Repeats {
    /// A bit for each code. The escape is none of them.
    pub codes: [u8; 32],
    /// One of them. Behind a string it changes nothing about the answer.
    pub pad: u8,
}

impl Repeats {
    /// The most frequent kind in `data`, if it is frequent. `steps` gives the states that follow each state, the
    /// first of which are those of `accepts`.
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

/// Whether doing these steps a second time changes nothing more, and no step changes the answer.
fn repeats(steps: &[u8], accepts: &[bool]) -> bool {
    steps.iter().zip(accepts).all(|(to, accepted)| {
        let to = usize::from(*to);
        steps.get(to).is_some_and(|again| usize::from(*again) == to) && accepts[to] == *accepted
    })
}
