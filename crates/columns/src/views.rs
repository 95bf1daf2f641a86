//! Arrow view arrays over bytes in the pool.
//!
//! This is where strings are returned without checks: Arrow would check each view and its UTF-8 on every decode. Here
//! both are checked only once, when a chunk is encoded from an Arrow array or read from bytes.

use arrow_array::types::{ByteArrayType, StringViewType};
use arrow_array::{
    Array, ArrayRef, BinaryViewArray, GenericByteArray, GenericByteViewArray, StringViewArray,
};
use arrow_buffer::{ArrowNativeType, Buffer, NullBuffer, ScalarBuffer};
use arrow_schema::DataType;
use farpool_model::{Error, Result};
use std::sync::Arc;

/// Maximum length of a value, in bytes, that is stored inside its view.
pub(crate) const INLINE_BYTES_MAX: usize = 12;

/// Returns the view of `data[start..start + len]`, where `data` is the first buffer.
#[inline]
pub(crate) fn view_of(data: &[u8], start: usize, len: usize) -> u128 {
    let value = &data[start..start + len];
    if len > INLINE_BYTES_MAX {
        let prefix = u32::from_le_bytes([value[0], value[1], value[2], value[3]]);
        return len as u128 | u128::from(prefix) << 32 | (start as u128) << 96;
    }
    // Reads sixteen bytes at once if that is in bounds, and masks out the bytes behind the value.
    if let Some(window) = data.get(start..start + 16).and_then(|window| window.first_chunk::<16>()) {
        let mask = (1u128 << (8 * len)) - 1;
        return len as u128 | (u128::from_le_bytes(*window) & mask) << 32;
    }
    let mut window = [0; 16];
    window[..len].copy_from_slice(value);
    len as u128 | u128::from_le_bytes(window) << 32
}

/// Returns the view of `piece[start..start + len]`, where `piece` starts at offset `base` of the first
/// buffer.
#[inline]
pub(crate) fn view_in_piece(piece: &[u8], start: usize, len: usize, base: usize) -> u128 {
    view_of(piece, start, len) + if len > INLINE_BYTES_MAX { (base as u128) << 96 } else { 0 }
}

/// Valid views into one buffer.
#[derive(Clone, Debug)]
pub(crate) struct Views {
    pub views: ScalarBuffer<u128>,
    pub data: Buffer,
}

impl Views {
    /// Returns the array of these views.
    ///
    /// # Safety
    /// Each view was made by [`view_of`] over `data` (views of NULL rows may also be 0). For `Utf8View`
    /// each value is valid UTF-8.
    pub unsafe fn into_array(self, data_type: &DataType, nulls: Option<NullBuffer>) -> ArrayRef {
        let buffers: Arc<[Buffer]> = if self.data.is_empty() { Arc::new([]) } else { Arc::new([self.data]) };
        // SAFETY: the caller guarantees that the views are valid. Without a buffer all values are stored in their
        // views.
        unsafe {
            match data_type {
                DataType::Utf8View => Arc::new(StringViewArray::new_unchecked(self.views, buffers, nulls)),
                _ => Arc::new(BinaryViewArray::new_unchecked(self.views, buffers, nulls)),
            }
        }
    }

    /// Returns the views and the buffer of an array that [`Views::into_array`] created.
    pub fn of_array(array: &ArrayRef) -> Views {
        fn of<T: arrow_array::types::ByteViewType>(array: &GenericByteViewArray<T>) -> Views {
            let data = array.data_buffers().first().cloned().unwrap_or_default();
            Views { views: array.views().clone(), data }
        }
        match array.as_any().downcast_ref::<GenericByteViewArray<StringViewType>>() {
            Some(strings) => of(strings),
            None => of(binaries(array)),
        }
    }

    /// Checks that the views are valid over `data`, so that [`Views::into_array`] may be called.
    ///
    /// # Errors
    /// `Corrupt` when they are not.
    pub fn check(&self, data_type: &DataType) -> Result<()> {
        let buffers: &[Buffer] = if self.data.is_empty() { &[] } else { std::slice::from_ref(&self.data) };
        let checked = match data_type {
            DataType::Utf8View => arrow_data::validate_string_view(&self.views, buffers),
            _ => arrow_data::validate_binary_view(&self.views, buffers),
        };
        checked.map_err(|error| Error::corrupt(format!("strings that do not lie in their bytes: {error}")))
    }
}

/// Creates a copy of an array that [`Views::into_array`] created: `copy` must return a buffer with the same bytes.
pub(crate) fn moved(
    array: &ArrayRef,
    data_type: &DataType,
    copy: &mut dyn FnMut(&Buffer) -> Buffer,
) -> ArrayRef {
    let Views { views, data } = Views::of_array(array);
    let length = views.len();
    let views = ScalarBuffer::new(copy(views.inner()), 0, length);
    // SAFETY: the views are the same, over the same bytes.
    unsafe { Views { views, data: copy(&data) }.into_array(data_type, array.nulls().cloned()) }
}

/// Returns the views of an array of strings or binaries, and the buffers that they point into.
pub(crate) fn parts(array: &ArrayRef) -> (&[u128], &[Buffer]) {
    match array.as_any().downcast_ref::<StringViewArray>() {
        Some(strings) => (strings.views(), strings.data_buffers()),
        None => (binaries(array).views(), binaries(array).data_buffers()),
    }
}

/// Returns the value of a row, which must not be NULL.
pub(crate) fn value(array: &ArrayRef, row: usize) -> &[u8] {
    match array.as_any().downcast_ref::<StringViewArray>() {
        Some(strings) => strings.value(row).as_bytes(),
        None => binaries(array).value(row),
    }
}

/// Converts strings or binaries with offsets to views of the same bytes; `None` if there are too many bytes for views.
/// Arrow's cast gives the same result at several times the cost.
pub(crate) fn of_offsets<T: ByteArrayType>(array: &GenericByteArray<T>) -> Option<ArrayRef> {
    let data = array.values();
    if data.len() > i32::MAX as usize {
        return None;
    }
    let offsets = array.value_offsets();
    let views = offsets.windows(2).map(|w| {
        let (start, end) = (w[0].as_usize(), w[1].as_usize());
        view_of(data, start, end - start)
    });
    let views = Views { views: views.collect::<Vec<_>>().into(), data: data.clone() };
    let data_type = match T::DATA_TYPE {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        _ => DataType::BinaryView,
    };
    // SAFETY: the views were made over this data; the values come from an array, and are UTF-8 if its type is
    // strings.
    Some(unsafe { views.into_array(&data_type, array.nulls().cloned()) })
}

/// Returns the values of an array of strings or binaries as byte slices; NULLs as empty ones.
pub(crate) fn slices(array: &ArrayRef) -> Vec<&[u8]> {
    fn of<'a, T, V>(array: &'a GenericByteViewArray<T>) -> Vec<&'a [u8]>
    where
        T: arrow_array::types::ByteViewType<Native = V>,
        V: AsRef<[u8]> + ?Sized + 'a,
    {
        match array.nulls().filter(|nulls| nulls.null_count() > 0) {
            None => (0..array.len()).map(|i| array.value(i).as_ref()).collect(),
            Some(nulls) => {
                let value = |i| if nulls.is_valid(i) { array.value(i).as_ref() } else { &[][..] };
                (0..array.len()).map(value).collect()
            }
        }
    }
    match array.as_any().downcast_ref::<StringViewArray>() {
        Some(strings) => of(strings),
        None => of(binaries(array)),
    }
}

fn binaries(array: &ArrayRef) -> &BinaryViewArray {
    array.as_any().downcast_ref().expect("strings and binaries are held as views")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_what_arrow_makes_of_the_same_bytes() {
        let data: Vec<u8> = (1..=40).collect();
        for start in 0..data.len() {
            for len in 0..=data.len() - start {
                let expected = arrow_array::builder::make_view(&data[start..start + len], 0, start as u32);
                assert_eq!(view_of(&data, start, len), expected, "{len} bytes at {start}");
                let base = start / 2;
                assert_eq!(view_in_piece(&data[base..], start - base, len, base), expected);
            }
        }
    }
}
