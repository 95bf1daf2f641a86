//! Ids of column chunks and of segments (the files in which chunks are stored).

/// Id of a chunk or a segment of a data directory: 16 bits for the *origin*, the node that gave the id, and 48 bits for
/// a counter of that node.
///
/// Nodes that share their records and segments have different origins, so that none gives an id that another one has
/// given. The origin of a node by itself is 0, so that its ids are plain counters.
///
/// Example: chunk 7 of origin 2 has the id `2 << 48 | 7`, and origin 0 has a chunk 7 of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartId(pub u64);

/// Number of bits of the counter in an id.
const COUNTER_BITS: u32 = 48;

impl PartId {
    /// Returns the id that node `origin` gives for this value of its counter, of which only the lower 48 bits are used.
    pub fn new(origin: u16, counter: u64) -> PartId {
        PartId(u64::from(origin) << COUNTER_BITS | counter & ((1 << COUNTER_BITS) - 1))
    }

    /// Returns the origin: the node that gave the id.
    pub fn origin(self) -> u16 {
        // The cast cannot truncate, because only 16 bits are left after the shift.
        (self.0 >> COUNTER_BITS) as u16
    }

    /// Returns the value of the node's counter.
    pub fn counter(self) -> u64 {
        self.0 & ((1 << COUNTER_BITS) - 1)
    }
}

const SEGMENT_PREFIX: &str = "segment-";

/// Returns the file name of a segment: `segment-000000000003` for origin 0, `segment-00002-000000000003` for origin 2.
pub fn segment_name(number: u64) -> String {
    let id = PartId(number);
    match id.origin() {
        0 => format!("{SEGMENT_PREFIX}{:012}", id.counter()),
        origin => format!("{SEGMENT_PREFIX}{origin:05}-{:012}", id.counter()),
    }
}

/// Returns the id of the segment with this file name; `None` if it is not the name of a segment.
pub fn segment_number(name: &str) -> Option<u64> {
    let name = name.strip_prefix(SEGMENT_PREFIX)?;
    let number = match name.split_once('-') {
        None => PartId(name.parse().ok()?),
        Some((origin, counter)) => PartId::new(origin.parse().ok()?, counter.parse().ok()?),
    };
    Some(number.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_segments_have_their_origin_unless_it_is_0() {
        for (origin, counter, name) in [
            (0, 3, "segment-000000000003"),
            (2, 3, "segment-00002-000000000003"),
            (u16::MAX, (1 << 48) - 1, "segment-65535-281474976710655"),
        ] {
            let id = PartId::new(origin, counter);
            assert_eq!((id.origin(), id.counter()), (origin, counter));
            assert_eq!(segment_name(id.0), name);
            assert_eq!(segment_number(name), Some(id.0));
        }
        for other in ["segment-", "segment-x", "segment-1-", "segment-99999-1", "manifest-000000000003"] {
            assert_eq!(segment_number(other), None, "{other}");
        }
    }
}
