//! Compacts string views (Arrow's `Utf8View`), so that a message carries exactly the bytes that the views refer to.
//!
//! A column of strings may refer to a whole dictionary or to a page of the pool, of which a result uses only a part.
//! Arrow's `gc()` would copy a string once for each row that has it, so that a dictionary would no longer save
//! anything. Here the ranges of bytes that rows refer to are sorted and merged, so that each byte is sent once. If few,
//! long ranges remain (a slice of a page), they are sent from where they are; otherwise they are copied into one
//! buffer. Cost: a sort of the views, or none if they are in order already, as after decoding.

use arrow_buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow_data::ByteView;

/// Maximum length in bytes of strings that Arrow stores in the view itself.
const INLINE_BYTES_MAX: u32 = 12;

/// Minimum average size of the ranges, in bytes, from which each is sent as a buffer of its own rather than copied.
const RANGE_BYTES_MIN: usize = 16 << 10;

/// The string views of a column after compaction, and the data buffers that they refer to.
pub(super) struct Compacted {
    pub(super) views: Buffer,
    pub(super) data: Vec<Buffer>,
}

/// A range of bytes that views refer to: its place in the old buffers, and in the new ones.
struct ViewRange {
    buffer: u32,
    start: u64,
    end: u64,
    new_buffer: u32,
    new_start: u64,
}

impl ViewRange {
    fn bytes(&self) -> usize {
        (self.end - self.start) as usize
    }
}

/// Compacts the views of a column; returns `None` if the strings' data takes more than `bytes_max` bytes.
pub(super) fn compact(
    views: &ScalarBuffer<u128>,
    nulls: Option<&NullBuffer>,
    data: &[Buffer],
    bytes_max: usize,
) -> Option<Compacted> {
    let mut ranges = merged_ranges(views, nulls);
    if ranges.is_empty() && nulls.is_none() {
        return Some(Compacted { views: views.inner().clone(), data: Vec::new() });
    }
    let bytes: usize = ranges.iter().map(ViewRange::bytes).sum();
    if bytes > bytes_max {
        return None;
    }
    let data = if bytes / RANGE_BYTES_MIN >= ranges.len() {
        share(&mut ranges, data)
    } else {
        vec![copy(&mut ranges, data, bytes)]
    };
    let data = if ranges.is_empty() { Vec::new() } else { data };
    Some(Compacted { views: moved_views(views, nulls, &ranges), data })
}

fn merged_ranges(views: &ScalarBuffer<u128>, nulls: Option<&NullBuffer>) -> Vec<ViewRange> {
    let referred = |(row, view): (usize, &u128)| {
        let view = ByteView::from(*view);
        let is_long = view.length > INLINE_BYTES_MAX && nulls.is_none_or(|nulls| nulls.is_valid(row));
        is_long.then_some(((view.buffer_index, view.offset), view.length))
    };
    let mut referred: Vec<((u32, u32), u32)> = views.iter().enumerate().filter_map(referred).collect();
    if !referred.is_sorted_by_key(|(place, _)| *place) {
        referred.sort_unstable_by_key(|(place, _)| *place);
    }
    let mut ranges: Vec<ViewRange> = Vec::new();
    for ((buffer, offset), length) in referred {
        let (start, end) = (u64::from(offset), u64::from(offset) + u64::from(length));
        match ranges.last_mut() {
            Some(last) if last.buffer == buffer && start <= last.end => last.end = last.end.max(end),
            _ => ranges.push(ViewRange { buffer, start, end, new_buffer: 0, new_start: 0 }),
        }
    }
    ranges
}

/// Makes each range a buffer of its own, without a copy: it shares the memory of the old buffer.
fn share(ranges: &mut [ViewRange], data: &[Buffer]) -> Vec<Buffer> {
    let mut shared = Vec::with_capacity(ranges.len());
    for (index, range) in (0..).zip(ranges.iter_mut()) {
        range.new_buffer = index;
        let old = &data[range.buffer as usize];
        shared.push(old.slice_with_length(range.start as usize, range.bytes()));
    }
    shared
}

/// Copies all ranges into one new buffer, one after the other; returns it.
fn copy(ranges: &mut [ViewRange], data: &[Buffer], bytes: usize) -> Buffer {
    let mut copied = Vec::with_capacity(bytes);
    for range in ranges {
        range.new_start = copied.len() as u64;
        copied.extend_from_slice(&data[range.buffer as usize][range.start as usize..range.end as usize]);
    }
    Buffer::from(copied)
}

fn moved_views(views: &ScalarBuffer<u128>, nulls: Option<&NullBuffer>, ranges: &[ViewRange]) -> Buffer {
    let mut current = 0;
    let moved = |(row, raw): (usize, &u128)| {
        if nulls.is_some_and(|nulls| nulls.is_null(row)) {
            return 0;
        }
        let view = ByteView::from(*raw);
        if view.length <= INLINE_BYTES_MAX {
            return *raw;
        }
        let place = (view.buffer_index, u64::from(view.offset));
        let holds = |r: &ViewRange| r.buffer == place.0 && r.start <= place.1 && place.1 < r.end;
        // Neighbouring rows mostly refer to the same range, so that it is tried first.
        if !holds(&ranges[current]) {
            current = ranges.partition_point(|r| (r.buffer, r.start) <= place) - 1;
        }
        let range = &ranges[current];
        let offset = (range.new_start + place.1 - range.start) as u32;
        view.with_buffer_index(range.new_buffer).with_offset(offset).as_u128()
    };
    views.iter().enumerate().map(moved).collect::<Vec<u128>>().into()
}
