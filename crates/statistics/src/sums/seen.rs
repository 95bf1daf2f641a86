//! Tracks which groups of a sum have values (a sum without values is NULL), in the cheapest form that the result
//! needs.

use super::words::{Rows, take_first};
use arrow_array::UInt64Array;
use arrow_buffer::NullBuffer;

/// Records which groups have values, or how many.
#[derive(Debug)]
pub(super) enum Seen {
    /// Every group below this number has a value, because no row was NULL or filtered out so far.
    All(usize),
    /// Whether each group has a value.
    Some(Vec<bool>),
    /// The number of values of each group.
    Counts(Vec<u64>),
}

impl Seen {
    /// Records that `count` rows were added; `total` is the number of groups.
    pub(super) fn note(&mut self, rows: Rows<'_>, count: usize, total: usize) {
        match (&mut *self, rows.valid) {
            (Seen::All(_), None) if count == 0 => {}
            (Seen::All(seen), None) => *seen = total,
            (Seen::All(seen), Some(_)) => {
                *self = Seen::Some(vec![true; *seen]);
                self.note(rows, count, total);
            }
            (Seen::Some(seen), _) => {
                seen.resize(total, false);
                for_each(rows, count, |group| seen[group] = true);
            }
            (Seen::Counts(counts), _) => {
                counts.resize(total, 0);
                for_each(rows, count, |group| counts[group] += 1);
            }
        }
    }

    /// Adds the numbers of values in merged states.
    pub(super) fn add_counts(&mut self, others: &[u64], groups: Option<&[usize]>, total: usize) {
        let Seen::Counts(counts) = self else { unreachable!("means are made of counts") };
        counts.resize(total, 0);
        for (row, other) in others.iter().enumerate() {
            counts[groups.map_or(0, |groups| groups[row])] += other;
        }
    }

    /// Returns the null buffer of the first `groups` groups; `None` if all of them have a value.
    pub(super) fn nulls(&self, groups: usize) -> Option<NullBuffer> {
        let nulls: NullBuffer = match self {
            Seen::All(_) => return None,
            Seen::Some(seen) => seen[..groups].iter().copied().collect(),
            Seen::Counts(counts) => {
                (0..groups).map(|group| counts.get(group).is_some_and(|count| *count > 0)).collect()
            }
        };
        Some(nulls).filter(|nulls| nulls.null_count() > 0)
    }

    /// Removes the first `groups` groups; returns their counts, if values are counted.
    pub(super) fn take_counts(&mut self, groups: usize) -> Option<UInt64Array> {
        match self {
            Seen::All(_) | Seen::Some(_) => {
                self.drop_first(groups);
                None
            }
            Seen::Counts(counts) => {
                counts.resize(counts.len().max(groups), 0);
                Some(take_first(counts, groups).into())
            }
        }
    }

    pub(super) fn drop_first(&mut self, groups: usize) {
        match self {
            Seen::All(seen) => *seen = seen.saturating_sub(groups),
            Seen::Some(seen) => {
                take_first(seen, groups);
            }
            Seen::Counts(counts) => {
                take_first(counts, groups);
            }
        }
    }

    pub(super) fn bytes_held(&self) -> usize {
        match self {
            Seen::All(_) => 0,
            Seen::Some(seen) => seen.capacity(),
            Seen::Counts(counts) => counts.capacity() * size_of::<u64>(),
        }
    }
}

#[inline]
fn for_each(rows: Rows<'_>, count: usize, mut f: impl FnMut(usize)) {
    match (rows.groups, rows.valid) {
        (Some(groups), None) => groups.iter().for_each(|group| f(*group)),
        (Some(groups), Some(valid)) => valid.valid_indices().for_each(|row| f(groups[row])),
        (None, None) => (0..count).for_each(|_| f(0)),
        (None, Some(valid)) => valid.valid_indices().for_each(|_| f(0)),
    }
}
