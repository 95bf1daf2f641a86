//! Adds rows to moments (sums and sums of products of pairs of columns), in blocks that fit the CPU cache. A
//! block is added to the moments that all pairs share. If it has NULLs that are left out pair by pair, it is added to
//! the moments of each pair instead.

use super::layout::Layout;
use super::matrix::BLOCK_ROWS;
use super::shared::Shared;
use super::split::Split;
use super::{exact, floats, scalar};
use arrow_array::{Array, ArrayRef};
use farpool_model::NullHandling;
use std::fmt;

/// Number of rows of a block with float columns. Reason: 24 columns of that many rows fit the L1 and L2 caches.
const FLOAT_ROWS: usize = 1024;

/// Scratch memory for processing blocks. It is not part of a state.
#[derive(Default)]
pub(crate) struct Room {
    exact: exact::Room,
    floats: floats::Room,
    block: Option<Shared>,
}

impl Clone for Room {
    fn clone(&self) -> Room {
        Room::default()
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Room")
    }
}

impl Room {
    pub(crate) fn bytes_held(&self) -> usize {
        self.exact.bytes_held() + self.floats.bytes_held() + self.block.as_ref().map_or(0, Shared::bytes_held)
    }
}

/// Returns the number of rows per block.
pub(crate) fn rows(layout: &Layout) -> usize {
    if layout.exact < layout.columns() { FLOAT_ROWS } else { BLOCK_ROWS }
}

/// Adds a block in which all pairs have the same rows: those without a NULL in any column.
pub(crate) fn add_shared(layout: &Layout, arrays: &[ArrayRef], room: &mut Room, whole: &mut Shared) {
    let mask = common_mask(arrays);
    let rows = arrays.first().map_or(0, |array| array.len());
    let count = mask.as_ref().map_or(rows, |mask| mask.iter().filter(|byte| **byte != 0).count()) as u64;
    if count == 0 {
        return;
    }
    let mask = (mask.as_deref(), count);
    if layout.exact == layout.columns() {
        let to = (&mut whole.sums, &mut whole.products);
        exact::add_shared(layout, arrays, mask, &mut room.exact, to);
        whole.rows += count;
        return;
    }
    let block = room.block.get_or_insert_with(|| Shared::new(layout));
    block.clear(count);
    let to = (&mut block.sums, &mut block.products);
    exact::add_shared(layout, arrays, mask, &mut room.exact, to);
    floats::set_shared(layout, arrays, mask, &mut room.floats, block);
    whole.merge(layout, block);
}

/// Adds a block in which a NULL is left out of the pairs with its column only.
pub(crate) fn add_split(layout: &Layout, arrays: &[ArrayRef], room: &mut Room, split: &mut Split) {
    let masks: Vec<Option<Vec<u8>>> = arrays.iter().map(mask).collect();
    if exact::add_split(layout, arrays, &masks, &mut room.exact, split) {
        floats::add_split(layout, arrays, &masks, &mut room.floats, split);
    } else {
        let rows = arrays.first().map_or(0, |array| array.len());
        split.merge(&scalar::split(layout, arrays, rows));
    }
}

/// Returns whether some rows of the block count for some pairs but not for all.
pub(crate) fn splits(layout: &Layout, arrays: &[ArrayRef]) -> bool {
    layout.nulls == NullHandling::Pairwise && arrays.iter().any(|array| array.null_count() > 0)
}

/// Returns a byte per row: 255 for a value and 0 for NULL. Returns `None` if there are no NULLs.
fn mask(array: &ArrayRef) -> Option<Vec<u8>> {
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0)?;
    Some(nulls.iter().map(|valid| if valid { u8::MAX } else { 0 }).collect())
}

/// Returns a byte per row: 255 if no column is NULL, otherwise 0. Returns `None` if there are no NULLs.
fn common_mask(arrays: &[ArrayRef]) -> Option<Vec<u8>> {
    arrays.iter().filter_map(mask).reduce(|mut common, mask| {
        common.iter_mut().zip(mask).for_each(|(common, mask)| *common &= mask);
        common
    })
}
