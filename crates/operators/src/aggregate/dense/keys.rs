//! Computes group numbers: the array index of a row's group, from the integer codes of its group keys. A group
//! number is a mixed-radix number whose digits are the codes.
//!
//! The code of a value is its dictionary code or its distance from the least value, in one row group or, by
//! [`KeyFrame`]s, in the whole table. A *lane* is a column or an expression evaluated as 64-bit integers.

use crate::aggregate::aggregation::Key;
use crate::aggregate::unfit::{DOMAIN_UNKNOWN, Fit, Unfit};
use crate::evaluate::array_of_ints;
use crate::failure;
use crate::group::{Groups, Packing};
use crate::lanes::{BoundLanes, LaneBuffers, LaneId, RowSet};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, UInt32Array, new_null_array};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;
use arrow_select::take::take;
use farpool_columns::{Chunk, EncodingKind, Integers, RowGroup};
use farpool_model::cast::u32_checked;
use farpool_model::{Error, Result};
use std::cell::OnceCell;
use std::ops::Range;

const DOMAIN_TOO_LARGE: Unfit = Unfit("the domain of the keys is too large for an array");

/// Group keys of one row group, with their codes.
pub(crate) struct DenseKeys<'a> {
    keys: Vec<DenseKey<'a>>,
    /// Number of possible groups: the product of the numbers of codes of all group keys.
    pub(crate) domain: usize,
    /// Group number of a row whose codes are all 0.
    base: u32,
}

/// Mapping of the values of one group key to codes that are valid in the whole table.
#[derive(Clone, Debug)]
pub(crate) struct KeyFrame {
    /// Value that has code 0.
    pub(crate) min: i64,
    /// Number of codes. If the group key can be NULL, the last code stands for NULL.
    pub(crate) domain: usize,
    /// Factor by which the code of this group key is multiplied in the group number.
    pub(crate) stride: usize,
    pub(crate) nullable: bool,
    pub(crate) data_type: DataType,
}

struct DenseKey<'a> {
    codes: Codes<'a>,
    data_type: DataType,
    /// Number of codes. If the group key can be NULL, the last code stands for NULL.
    domain: usize,
    /// Factor by which the code of this group key is multiplied in the group number.
    stride: usize,
    /// Chunks with NULLs that the group key is computed from. The group key of a row is NULL if the value of the row
    /// in one of them is NULL.
    nullable: Vec<&'a Chunk>,
    /// For each dictionary entry of the row group, its code in the whole table; computed on first use.
    text_numbers: OnceCell<Vec<i64>>,
}

enum Codes<'a> {
    /// A value that all rows have, as an array of one row.
    Constant(ArrayRef),
    /// NULL in all rows.
    Null,
    Boolean(&'a Chunk),
    /// Dictionary codes, of which the least has code 0 here, and the dictionary entries.
    Dictionary(Integers<'a>, &'a ArrayRef),
    Integers(Integers<'a>),
    /// An integer lane, and its least value, which has code 0.
    Lane(LaneId, i64),
}

/// Buffers for the codes of a batch.
#[derive(Default)]
pub(crate) struct KeyBuffers {
    bytes: Vec<u8>,
    shorts: Vec<u16>,
    ints: Vec<u32>,
    longs: Vec<i64>,
}

impl<'a> DenseKeys<'a> {
    /// Assigns codes to the group keys within `group`. Returns [`Unfit`] if the number of possible groups is not
    /// known or exceeds `limit`.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(crate) fn bind(
        keys: &[Key],
        lanes: &BoundLanes<'a>,
        group: &'a RowGroup,
        limit: usize,
    ) -> Result<Fit<Self>> {
        let mut dense = DenseKeys { keys: Vec::with_capacity(keys.len()), domain: 1, base: 0 };
        for key in keys {
            let Some((codes, values)) = codes_of(key, lanes, group)? else { return Ok(Err(DOMAIN_UNKNOWN)) };
            let is_constant = matches!(codes, Codes::Constant(_));
            let columns = key.compiled.columns().iter().map(|column| &*group.chunks[*column]);
            let nullable: Vec<&Chunk> = columns.filter(|c| c.null_count() > 0 && !is_constant).collect();
            let domain = values.saturating_add(usize::from(!nullable.is_empty()));
            let stride = dense.domain;
            dense.domain = match stride.checked_mul(domain) {
                Some(product) if product <= limit => product,
                _ => return Ok(Err(DOMAIN_TOO_LARGE)),
            };
            dense.keys.push(DenseKey::new(codes, key.compiled.data_type(), (domain, stride), nullable));
        }
        Ok(Ok(dense))
    }

    /// Assigns the codes of the whole table, given by `frames`, to the group keys of `group`.
    ///
    /// # Errors
    /// `Internal` when a group key has values outside its frame.
    pub(crate) fn within(
        keys: &[Key],
        frames: &[KeyFrame],
        lanes: &BoundLanes<'a>,
        group: &'a RowGroup,
    ) -> Result<Self> {
        let mut dense = DenseKeys { keys: Vec::with_capacity(keys.len()), domain: 1, base: 0 };
        for (key, frame) in keys.iter().zip(frames) {
            let (codes, first) = codes_within(key, frame, lanes, group)?;
            let columns = key.compiled.columns().iter().map(|column| &*group.chunks[*column]);
            let nullable: Vec<&Chunk> = columns.filter(|c| c.null_count() > 0).collect();
            let KeyFrame { domain, stride, ref data_type, .. } = *frame;
            dense.base += u32_checked(first * stride);
            dense.domain *= domain;
            dense.keys.push(DenseKey::new(codes, data_type, (domain, stride), nullable));
        }
        Ok(dense)
    }

    /// Returns whether there are no group keys.
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the lanes that group keys are read from.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = LaneId> + '_ {
        self.keys.iter().filter_map(|key| match key.codes {
            Codes::Lane(lane, _) => Some(lane),
            _ => None,
        })
    }

    /// Replaces `groups` by the group numbers of `rows` and returns true, if the only group key has codes that are
    /// stored as bytes and need no conversion. Returns false otherwise.
    pub(crate) fn bytes(&self, rows: Range<usize>, groups: &mut Vec<u8>) -> bool {
        let [DenseKey { codes: Codes::Dictionary(codes, _) | Codes::Integers(codes), nullable, .. }] =
            self.keys.as_slice()
        else {
            return false;
        };
        let held = self.base == 0 && nullable.is_empty() && codes.lane_bits() == u8::BITS;
        if held {
            codes.unpack_deltas_u8(rows, groups);
        }
        held
    }

    /// Replaces `groups` by the group number of each row.
    pub(crate) fn number(
        &self,
        rows: RowSet<'_>,
        lanes: &LaneBuffers,
        buffers: &mut KeyBuffers,
        groups: &mut Vec<u32>,
    ) -> Result<()> {
        groups.clear();
        groups.resize(rows.len(), self.base);
        for key in &self.keys {
            let stride = key.stride as u32;
            match &key.codes {
                Codes::Constant(_) | Codes::Null => {}
                Codes::Boolean(chunk) => {
                    let values = match rows {
                        RowSet::Range(start, end) => chunk.decode(start..end)?,
                        RowSet::Rows(rows) => chunk.gather(rows)?,
                    };
                    let values = values.as_boolean().values();
                    let codes = values.iter().map(u32::from);
                    groups.iter_mut().zip(codes).for_each(|(g, code)| *g += code * stride);
                }
                Codes::Dictionary(integers, _) | Codes::Integers(integers) => {
                    add_codes(integers, rows, stride, buffers, groups);
                }
                Codes::Lane(lane, min) => add_values(lanes.values(*lane), *min, stride, groups),
            }
            for chunk in &key.nullable {
                self.add_nulls(key, chunk, rows, groups);
            }
        }
        Ok(())
    }

    /// Replaces the code of rows whose group key is NULL, which is arbitrary, by the last code, which stands for NULL.
    fn add_nulls(&self, key: &DenseKey<'_>, chunk: &Chunk, rows: RowSet<'_>, groups: &mut [u32]) {
        let (stride, last) = (key.stride as u32, key.domain as u32 - 1);
        let set = |group: &mut u32| {
            let code = *group / stride % (last + 1);
            *group += (last - code) * stride;
        };
        match rows {
            RowSet::Range(start, end) => {
                let Some(valid) = chunk.validity(start..end) else { return };
                (!&valid).set_indices().for_each(|row| set(&mut groups[row]));
            }
            RowSet::Rows(rows) => {
                let Some(valid) = chunk.validity(0..chunk.rows()) else { return };
                let rows = groups.iter_mut().zip(rows);
                rows.filter(|(_, row)| !valid.value(**row as usize)).for_each(|(group, _)| set(group));
            }
        }
    }

    /// Finds or adds the groups with the group numbers `numbers` in the hash table `table`, and replaces `ids` by
    /// their group ids there. `packing` must be given if `table` has packed group keys.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(crate) fn intern(
        &self,
        numbers: &[u32],
        packing: Option<&Packing>,
        table: &mut Groups,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let Some(packing) = packing else {
            let arrays = self.keys.iter().map(|key| key.array(numbers)).collect::<Result<_>>()?;
            return table.intern_arrays(arrays, ids);
        };
        let mut codes = vec![0; numbers.len()];
        for (index, key) in self.keys.iter().enumerate() {
            key.pack(index, packing, numbers, &mut codes)?;
        }
        table.intern_codes(&codes, ids)
    }
}

impl KeyFrame {
    /// Returns the values of this group key for the group numbers `groups`.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(crate) fn array(&self, groups: &[u32]) -> Result<ArrayRef> {
        let codes = self.codes(groups);
        let domain = u32_checked(self.domain);
        let null = domain - 1;
        let nulls = self.nullable.then(|| codes.iter().map(|code| *code != null).collect::<NullBuffer>());
        let nulls = nulls.filter(|n| n.null_count() > 0);
        if self.data_type == DataType::Boolean {
            let values: Vec<bool> = codes.iter().map(|code| *code == 1).collect();
            return Ok(std::sync::Arc::new(BooleanArray::new(values.into(), nulls)));
        }
        let values = codes.iter().map(|code| i128::from(self.min) + i128::from(*code));
        array_of_ints(&self.data_type, values, nulls)
    }

    /// Returns the codes of this group key in the group numbers `groups`. Avoids the division if there is a single
    /// group key, because it would take as long as everything else per group.
    fn codes(&self, groups: &[u32]) -> Vec<u32> {
        let (stride, domain) = (u32_checked(self.stride), u32_checked(self.domain));
        let last = groups.iter().max().copied().unwrap_or(0);
        match (stride, last / stride < domain) {
            (1, true) => groups.to_vec(),
            (1, false) => groups.iter().map(|group| group % domain).collect(),
            (_, true) => groups.iter().map(|group| group / stride).collect(),
            _ => groups.iter().map(|group| group / stride % domain).collect(),
        }
    }
}

impl<'a> DenseKey<'a> {
    fn new(
        codes: Codes<'a>,
        data_type: &DataType,
        (domain, stride): (usize, usize),
        nullable: Vec<&'a Chunk>,
    ) -> Self {
        DenseKey {
            codes,
            data_type: data_type.clone(),
            domain,
            stride,
            nullable,
            text_numbers: OnceCell::new(),
        }
    }

    /// Writes the values of this group key for the group numbers `numbers` into packed group keys.
    fn pack(&self, index: usize, packing: &Packing, numbers: &[u32], packed: &mut [i64]) -> Result<()> {
        let (stride, domain) = (u32_checked(self.stride), u32_checked(self.domain));
        let codes = || numbers.iter().map(|number| number / stride % domain);
        let from = |min: i64| codes().map(|code| min + i64::from(code)).collect::<Vec<i64>>();
        let values = match &self.codes {
            Codes::Constant(value) if !value.is_null(0) => {
                vec![packing.lanes_of(index, value)?[0]; numbers.len()]
            }
            Codes::Dictionary(integers, values) => {
                let first = usize::try_from(integers.min()).unwrap_or(0);
                if self.text_numbers.get().is_none() {
                    let _ = self.text_numbers.set(packing.lanes_of(index, values)?);
                }
                let numbers = self.text_numbers.get().map_or(&[][..], Vec::as_slice);
                // The last code, that of NULL, has no entry in `numbers`.
                codes().map(|code| numbers.get(first + code as usize).copied().unwrap_or(0)).collect()
            }
            Codes::Boolean(_) => from(0),
            Codes::Integers(integers) => from(integers.min()),
            Codes::Lane(_, min) => from(*min),
            Codes::Constant(_) | Codes::Null => {
                packing.set_nulls(index, 0..numbers.len(), packed);
                return Ok(());
            }
        };
        packing.add_values(index, &values, packed);
        if !self.nullable.is_empty() {
            let nulls = codes().enumerate().filter(|(_, code)| *code == domain - 1).map(|(row, _)| row);
            packing.set_nulls(index, nulls, packed);
        }
        Ok(())
    }

    /// Returns the values of this group key for group numbers within the row group (not within the whole table).
    fn array(&self, groups: &[u32]) -> Result<ArrayRef> {
        let codes = || groups.iter().map(|g| *g as usize / self.stride % self.domain);
        let null = (!self.nullable.is_empty()).then_some(self.domain - 1);
        let nulls = null.map(|null| codes().map(|code| code != null).collect::<NullBuffer>());
        // The last code, that of NULL, does not belong to a value.
        let code_or_0 = |code: usize| if Some(code) == null { 0 } else { code };
        Ok(match &self.codes {
            Codes::Constant(value) => {
                let indices = UInt32Array::from(vec![0; groups.len()]);
                take(value, &indices, None).map_err(failure::of_kernel)?
            }
            Codes::Boolean(_) => {
                let values: Vec<bool> = codes().map(|code| code_or_0(code) == 1).collect();
                std::sync::Arc::new(BooleanArray::new(values.into(), nulls))
            }
            Codes::Dictionary(integers, values) => {
                let first = usize::try_from(integers.min()).unwrap_or(0);
                let indices: Vec<u32> = codes().map(|code| u32_checked(first + code_or_0(code))).collect();
                take(values, &UInt32Array::new(indices.into(), nulls), None).map_err(failure::of_kernel)?
            }
            Codes::Null => new_null_array(&self.data_type, groups.len()),
            Codes::Integers(integers) => self.ints(integers.min(), codes().map(code_or_0), nulls)?,
            Codes::Lane(_, min) => self.ints(*min, codes().map(code_or_0), nulls)?,
        })
    }

    fn ints(
        &self,
        min: i64,
        codes: impl Iterator<Item = usize>,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef> {
        array_of_ints(&self.data_type, codes.map(|code| i128::from(min) + code as i128), nulls)
    }
}

/// Returns the source of the codes of a group key in `group`, and their number; `None` if it has no codes.
fn codes_of<'a>(
    key: &Key,
    lanes: &BoundLanes<'a>,
    group: &'a RowGroup,
) -> Result<Option<(Codes<'a>, usize)>> {
    if let Some(column) = key.compiled.as_column() {
        let chunk: &'a Chunk = &group.chunks[column];
        let nulls = chunk.null_count();
        if chunk.encoding() == EncodingKind::Constant && (nulls == 0 || nulls == group.rows) && group.rows > 0
        {
            return Ok(Some((Codes::Constant(chunk.gather(&[0])?), 1)));
        }
        if *chunk.data_type() == DataType::Boolean {
            return Ok(Some((Codes::Boolean(chunk), 2)));
        }
        if let Some(dictionary) = chunk.dictionary() {
            let codes = dictionary.codes();
            return Ok(domain(codes.min(), codes.max())
                .map(|domain| (Codes::Dictionary(codes, dictionary.values()), domain)));
        }
    }
    let Some(lane) = key.lane else { return Ok(None) };
    let Some((min, max)) = lanes.interval(lane) else { return Ok(None) };
    let codes = lanes.integers(lane).map_or(Codes::Lane(lane, min), Codes::Integers);
    Ok(domain(min, max).map(|domain| (codes, domain)))
}

/// Returns the source of the codes of a group key in a row group, and the code within `frame` (that is, in the whole
/// table) of the least value of the row group.
fn codes_within<'a>(
    key: &Key,
    frame: &KeyFrame,
    lanes: &BoundLanes<'a>,
    group: &'a RowGroup,
) -> Result<(Codes<'a>, usize)> {
    if *key.compiled.data_type() == DataType::Boolean {
        let column = key.compiled.as_column().ok_or_else(|| Error::internal("a key without codes"))?;
        return Ok((Codes::Boolean(&group.chunks[column]), 0));
    }
    let lane = key.lane.ok_or_else(|| Error::internal("a key without codes"))?;
    let Some((min, max)) = lanes.interval(lane) else { return Ok((Codes::Null, 0)) };
    let values = frame.domain - usize::from(frame.nullable);
    if min < frame.min || domain(frame.min, max).is_none_or(|last| last > values) {
        return Err(Error::internal("a row group of another table"));
    }
    let codes = lanes.integers(lane).map_or(Codes::Lane(lane, min), Codes::Integers);
    Ok((codes, min.abs_diff(frame.min) as usize))
}

fn domain(min: i64, max: i64) -> Option<usize> {
    usize::try_from(i128::from(max) - i128::from(min) + 1).ok()
}

fn add_codes(
    integers: &Integers<'_>,
    rows: RowSet<'_>,
    stride: u32,
    buffers: &mut KeyBuffers,
    groups: &mut [u32],
) {
    match (rows, integers.lane_bits()) {
        (RowSet::Range(start, end), 8) => {
            integers.unpack_deltas_u8(start..end, &mut buffers.bytes);
            let codes = buffers.bytes.iter();
            groups.iter_mut().zip(codes).for_each(|(g, code)| *g += u32::from(*code) * stride);
        }
        (RowSet::Range(start, end), 16) => {
            integers.unpack_deltas_u16(start..end, &mut buffers.shorts);
            groups.iter_mut().zip(&buffers.shorts).for_each(|(g, code)| *g += u32::from(*code) * stride);
        }
        (RowSet::Range(start, end), 32) => {
            integers.unpack_deltas_u32(start..end, &mut buffers.ints);
            groups.iter_mut().zip(&buffers.ints).for_each(|(g, code)| *g += code * stride);
        }
        (RowSet::Range(start, end), _) => {
            integers.unpack(start..end, &mut buffers.longs);
            add_values(&buffers.longs, integers.min(), stride, groups);
        }
        (RowSet::Rows(rows), _) => {
            integers.gather(rows, &mut buffers.longs);
            add_values(&buffers.longs, integers.min(), stride, groups);
        }
    }
}

fn add_values(values: &[i64], min: i64, stride: u32, groups: &mut [u32]) {
    groups.iter_mut().zip(values).for_each(|(g, value)| *g += (value - min) as u32 * stride);
}
