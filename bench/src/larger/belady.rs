//! Lower bounds of the bytes that a cache of given size must read for a recorded trace of uses.
//!
//! [`belady`] computes the reads of Belady's rule (*A study of replacement algorithms for a virtual-storage computer*,
//! IBM Systems Journal 1966): the entry that is used furthest in the future is evicted, possibly the new one, which
//! then is not cached. For values of equal size this is optimal. For values of several sizes the rule is an
//! approximation from above, as finding the optimum is NP-hard; [`bound`] is an approximation from below, which no
//! order of eviction can beat: PFOO-L of Berger, Beckmann and Harchol-Balter (*Practical Bounds on Optimal Caching with
//! Variable Object Sizes*, SIGMETRICS 2018). It keeps those values, or parts of them, from one use to the next that
//! save most for the space and time that they take, as long as the cache would hold them on average over time.

use std::collections::{BTreeSet, HashMap};

/// A use of the values of a chunk.
#[derive(Clone, Copy, Debug)]
pub struct Use {
    pub chunk: u64,
    /// Bytes of the values in the cache.
    pub bytes: u64,
    /// Bytes that are read on a cache miss.
    pub cost: u64,
}

/// Returns the bytes that Belady's rule reads with a cache of `capacity` bytes that is empty at first.
pub fn belady(uses: &[Use], capacity: u64) -> u64 {
    let next = next_uses(uses);
    // Positions of the next uses of the cached values. A position identifies the chunk that is used there; the greatest
    // is that of the value that is used furthest in the future.
    let mut held: BTreeSet<usize> = BTreeSet::new();
    let (mut bytes_held, mut read) = (0, 0);
    for (place, one) in uses.iter().enumerate() {
        match held.remove(&place) {
            true => bytes_held -= one.bytes,
            false => read += one.cost,
        }
        let Some(next) = next[place].filter(|_| one.bytes <= capacity) else { continue };
        held.insert(next);
        bytes_held += one.bytes;
        while bytes_held > capacity
            && let Some(furthest) = held.pop_last()
        {
            bytes_held -= uses[furthest].bytes;
        }
    }
    read
}

/// Returns a lower bound of the bytes that any order of eviction reads.
pub fn bound(uses: &[Use], capacity: u64) -> u64 {
    let kept = next_uses(uses).into_iter().enumerate().filter_map(|(place, next)| {
        let Use { bytes, cost, .. } = uses[place];
        let steps = (next? - place) as u128;
        (bytes <= capacity).then_some((u128::from(bytes) * steps, cost))
    });
    let mut kept: Vec<(u128, u64)> = kept.collect();
    // Candidates in ascending order of space and time divided by savings.
    kept.sort_unstable_by(|left, right| (left.0 * u128::from(right.1)).cmp(&(right.0 * u128::from(left.1))));
    let mut room = u128::from(capacity) * uses.len().saturating_sub(1) as u128;
    let mut read: u64 = uses.iter().map(|one| one.cost).sum();
    for (wanted, cost) in kept {
        if wanted > room {
            // A part of the values still fits. Its cost is rounded up, so that the result stays a lower bound.
            let part = (room * u128::from(cost)).div_ceil(wanted);
            return read - u64::try_from(part).map_or(cost, |part| part.min(cost));
        }
        room -= wanted;
        read -= cost;
    }
    read
}

/// Returns for each use the index of the next one of the same chunk.
fn next_uses(uses: &[Use]) -> Vec<Option<usize>> {
    let mut next = vec![None; uses.len()];
    let mut later = HashMap::new();
    for (place, one) in uses.iter().enumerate().rev() {
        next[place] = later.insert(one.chunk, place);
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Returns the optimum over all choices: after each use, any of the cached and the used values may be kept.
    fn optimum(uses: &[Use], capacity: u64) -> u64 {
        let chunks: HashMap<u64, Use> = uses.iter().map(|one| (one.chunk, *one)).collect();
        let fits = |kept: u64| {
            let held = chunks.values().filter(|one| kept & (1 << one.chunk) != 0);
            held.map(|one| one.bytes).sum::<u64>() <= capacity
        };
        // Minimal bytes read so far, by the set of cached chunks (a bit for each chunk).
        let mut states: HashMap<u64, u64> = HashMap::from([(0, 0)]);
        for one in uses {
            let mut after: HashMap<u64, u64> = HashMap::new();
            for (kept, read) in states {
                let read = if kept & (1 << one.chunk) == 0 { read + one.cost } else { read };
                let all = kept | (1 << one.chunk);
                for part in (0..=all).filter(|part| part & !all == 0 && fits(*part)) {
                    after.entry(part).and_modify(|least| *least = read.min(*least)).or_insert(read);
                }
            }
            states = after;
        }
        states.into_values().min().unwrap_or(0)
    }

    fn trace(random: &mut Random, len: u64, chunks: u64, bytes_most: u64) -> Vec<Use> {
        let sizes: Vec<(u64, u64)> = (0..chunks)
            .map(|_| {
                let bytes = 1 + random.next() % bytes_most;
                (bytes, 1 + random.next() % bytes)
            })
            .collect();
        let one = |chunk: u64| {
            let (bytes, cost) = sizes[chunk as usize];
            Use { chunk, bytes, cost }
        };
        (0..len).map(|_| one(random.next() % chunks)).collect()
    }

    #[test]
    fn with_one_size_nothing_reads_less() {
        let mut random = Random(1);
        for _ in 0..400 {
            let (len, capacity) = (random.next() % 12, random.next() % 5);
            let uses = trace(&mut random, len, 5, 1);
            let least = optimum(&uses, capacity);
            assert_eq!(belady(&uses, capacity), least, "{uses:?} in {capacity}");
            assert!(bound(&uses, capacity) <= least);
        }
    }

    #[test]
    fn with_several_sizes_the_optimum_lies_between() {
        let mut random = Random(2);
        let (mut read, mut least_read, mut bound_of_all) = (0, 0, 0);
        for _ in 0..400 {
            let (len, capacity) = (random.next() % 12, random.next() % 20);
            let uses = trace(&mut random, len, 5, 9);
            let least = optimum(&uses, capacity);
            let (above, below) = (belady(&uses, capacity), bound(&uses, capacity));
            assert!(below <= least && least <= above, "{below} {least} {above}: {uses:?} in {capacity}");
            (read, least_read, bound_of_all) = (read + above, least_read + least, bound_of_all + below);
        }
        // The bytes of Belady's rule, and the lower bound, are close to the optimum.
        assert!(read * 10 <= least_read * 11, "{read} of {least_read}");
        assert!(bound_of_all * 10 >= least_read * 7, "{bound_of_all} of {least_read}");
    }

    #[test]
    fn what_fits_is_read_once_and_what_does_not_each_time() {
        let uses: Vec<Use> = (0..30).map(|place| Use { chunk: place % 3, bytes: 10, cost: 7 }).collect();
        assert_eq!((belady(&uses, 30), bound(&uses, 30)), (21, 21));
        assert_eq!((belady(&uses, 9), bound(&uses, 9)), (210, 210));
        // In a cyclic scan of three values, a cache for one value can keep it for the other nine rounds.
        assert_eq!(belady(&uses, 10), 210 - 7 * 9);
        assert_eq!((belady(&[], 5), bound(&[], 5)), (0, 0));
    }
}
