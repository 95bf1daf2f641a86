//! Fuzz body that decodes untrusted column chunks.

use arrow_array::Array;
use farpool_columns::{Chunk, Image, Integers, ValueReader, ValueSource, read_into_pool};
use farpool_memory::{Pool, PoolConfig, Tenure};
use farpool_model::{Result, TenantName, limits};
use std::sync::{Arc, OnceLock};

/// Writes an image as input for [`chunk_decoder`]: the length of the head, the head, and the data.
pub fn image_bytes(image: &Image) -> Vec<u8> {
    let mut bytes = u16::try_from(image.head.len()).expect("a short head").to_le_bytes().to_vec();
    bytes.extend_from_slice(&image.head);
    image.write_data(&mut bytes);
    bytes
}

fn read(bytes: &[u8]) -> Result<Chunk> {
    let (length, bytes) = bytes.split_at(bytes.len().min(2));
    let length = length.try_into().map_or(0, |length| usize::from(u16::from_le_bytes(length)));
    let (head, data) = bytes.split_at(length.min(bytes.len()));
    let fill = |memory: &mut [u8]| {
        memory.copy_from_slice(data);
        Ok(())
    };
    let (data, ()) = read_into_pool(pool(), &TenantName::default(), data.len(), Tenure::Staying, fill)?;
    let handle = Chunk::absent(head, &source(), None);
    let chunk = Chunk::from_image(head, &data)?;
    check_handle(handle, &chunk);
    Ok(chunk)
}

/// Decodes the image of a chunk. A valid image is decoded, gathered from and compared in every way that it supports,
/// and must give the same values after it is written and read again.
pub fn chunk_decoder(data: &[u8]) {
    if let Ok(outlined) = Chunk::outlined(data, &source())
        && let Some(again) = outlined.to_outline().expect("it is in the clear")
    {
        let again = Chunk::outlined(&again, &source()).expect("what we write, we read");
        same_outline(&again, &outlined);
    }
    let Ok(chunk) = read(data) else { return };
    if let Some(outline) = chunk.to_outline().expect("it is in the clear") {
        same_outline(&Chunk::outlined(&outline, &source()).expect("what we write, we read"), &chunk);
    }
    let rows = chunk.rows();
    let all = chunk.decode(0..rows).expect("all rows can be decoded");
    all.to_data().validate_full().expect("decoded values are sound");
    assert_eq!((all.len(), all.null_count()), (rows, chunk.null_count()));
    assert_eq!(all.data_type(), chunk.data_type());

    let some: Vec<u32> = (0..rows as u32).step_by(7).collect();
    let gathered = chunk.gather(&some).expect("rows of the chunk can be gathered");
    for (place, row) in some.iter().enumerate() {
        let (one, other) = (gathered.slice(place, 1), all.slice(*row as usize, 1));
        assert!(one == other || is_nan(&one), "row {row} differs when it is gathered");
    }
    assert!(chunk.gather(&[rows as u32]).is_err());
    let half = rows / 2;
    assert_eq!(chunk.decode(half..rows).expect("the second half can be decoded").len(), rows - half);
    if let Some(valid) = chunk.validity(0..rows) {
        assert_eq!(rows - valid.count_set_bits(), chunk.null_count());
    }
    if let Some(integers) = chunk.integers() {
        compare(&integers, rows);
    }
    if let Some(dictionary) = chunk.dictionary() {
        compare(&dictionary.codes(), rows);
        let mut codes = Vec::new();
        dictionary.codes().unpack(0..rows, &mut codes);
        let values = dictionary.values().len() as i64;
        assert!(codes.iter().all(|code| (0..values).contains(code)));
    }
    let again =
        read(&image_bytes(&chunk.to_image().expect("the values are there"))).expect("what we write, we read");
    let again = again.decode(0..rows).expect("all rows can be decoded again");
    // Floats may be NaN, which does not equal itself; their bits are compared through the data.
    assert!(again.to_data().buffers() == all.to_data().buffers() || again == all);
}

/// Checks that the handle (a chunk whose values are fetched later) made from a chunk's head has the same properties as
/// the chunk.
fn check_handle(handle: Result<Option<Chunk>>, chunk: &Chunk) {
    let Some(handle) = handle.expect("the head of a chunk that is valid") else { return };
    same_outline(&handle, chunk);
}

/// Checks that a handle has the same outline as its chunk.
fn same_outline(handle: &Chunk, chunk: &Chunk) {
    assert_eq!((handle.rows(), handle.null_count()), (chunk.rows(), chunk.null_count()));
    assert_eq!((handle.data_type(), handle.encoding()), (chunk.data_type(), chunk.encoding()));
    assert_eq!((handle.bytes_plain(), handle.bytes_encoded()), (chunk.bytes_plain(), chunk.bytes_encoded()));
    assert_eq!(handle.integer_bounds(), chunk.integer_bounds());
    assert_eq!(handle.dictionary_len(), chunk.dictionary_len());
    assert!(handle.check_intact().is_err() && handle.decode(0..handle.rows()).is_err());
}

/// The source of handles whose values are never requested.
#[derive(Debug, Default)]
struct Nowhere(TenantName);

impl ValueSource for Nowhere {
    fn tenant(&self) -> &TenantName {
        &self.0
    }

    fn fetch(&self, _handles: Vec<Arc<Chunk>>, _reader: Box<dyn ValueReader>) {}
}

fn source() -> Arc<dyn ValueSource> {
    Arc::new(Nowhere::default())
}

/// Checks that comparing a range selects the same rows as comparing the values one by one.
fn compare(integers: &Integers<'_>, rows: usize) {
    let mut values = Vec::new();
    integers.unpack(0..rows, &mut values);
    let start = if rows > limits::BLOCK_ROWS { limits::BLOCK_ROWS } else { 0 };
    let some = values.get(rows / 2).copied().unwrap_or(0);
    let bounds = [i128::MIN, integers.min().into(), some.into(), integers.max().into(), i128::MAX];
    for (low, high) in bounds.iter().flat_map(|low| bounds.map(|high| (*low, high))) {
        for inside in [true, false] {
            let mut bits = vec![u64::MAX; (rows - start).div_ceil(64)];
            integers.retain_within(low, high, inside, start, &mut bits);
            for (place, value) in values[start..].iter().map(|v| i128::from(*v)).enumerate() {
                let got = bits[place / 64] >> (place % 64) & 1 == 1;
                assert_eq!(got, (low <= value && value <= high) == inside, "{value} within {low} to {high}");
            }
        }
    }
}

fn is_nan(value: &dyn Array) -> bool {
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Float32Type, Float64Type};
    value.as_primitive_opt::<Float64Type>().is_some_and(|v| v.value(0).is_nan())
        || value.as_primitive_opt::<Float32Type>().is_some_and(|v| v.value(0).is_nan())
}

/// Returns a pool for all inputs: creating one takes longer than a run.
fn pool() -> &'static Arc<Pool> {
    static POOL: OnceLock<Arc<Pool>> = OnceLock::new();
    let config = || PoolConfig { bytes_limit: 256 << 20 };
    POOL.get_or_init(|| Pool::new(config()).expect("a small pool can be made"))
}
