//! Tests images of chunks (their form on disk and in messages): intact images are read back; corrupt ones are
//! refused, or give a chunk on which all operations are safe.

use super::arrays::{Random, SHAPES, TYPES, array};
use super::chunks::check;
use super::{encoded, pool};
use crate::{Chunk, read_into_pool};
use farpool_memory::{Pool, Tenure};
use farpool_model::{ErrorKind, TenantName};
use std::sync::Arc;

/// Returns the image of a chunk as one sequence: the length of the head, the head, and the data.
fn bytes_of(chunk: &Chunk) -> Vec<u8> {
    let image = chunk.to_image().unwrap();
    let mut bytes = (image.head.len() as u16).to_le_bytes().to_vec();
    bytes.extend_from_slice(&image.head);
    image.write_data(&mut bytes);
    assert_eq!(bytes.len(), 2 + image.head.len() + image.data_bytes());
    bytes
}

fn read(pool: &Arc<Pool>, bytes: &[u8]) -> farpool_model::Result<Chunk> {
    let (length, bytes) = bytes.split_at(bytes.len().min(2));
    let length = length.try_into().map_or(0, |length| usize::from(u16::from_le_bytes(length)));
    let (head, data) = bytes.split_at(length.min(bytes.len()));
    let (data, ()) = read_into_pool(pool, &TenantName::default(), data.len(), Tenure::Staying, |memory| {
        memory.copy_from_slice(data);
        Ok(())
    })?;
    Chunk::from_image(head, &data)
}

#[test]
fn a_chunk_comes_back_from_its_bytes() {
    let mut random = Random(5);
    for data_type in &TYPES {
        for shape in SHAPES {
            for (rows, nulls) in [(0, 0), (1, 0), (1, 100), (1500, 0), (1500, 30)] {
                let pool = pool(32);
                let array = array(data_type, shape, rows, nulls, &mut random);
                let chunk = encoded(&pool, &array);
                let bytes = bytes_of(&chunk);
                let back = read(&pool, &bytes).unwrap();
                assert!(bytes_of(&back) == bytes);
                assert_eq!(back.zone(), chunk.zone());
                assert_eq!(back.bytes_encoded(), chunk.bytes_encoded());
                assert_eq!(back.bytes_plain(), chunk.bytes_plain());
                assert_eq!(back.encoding(), chunk.encoding());
                check(&back, &array, &mut random);
            }
        }
    }
}

#[test]
fn compressed_text_comes_back_from_its_bytes() {
    let mut random = Random(6);
    let pool = pool(64);
    let array = array(&arrow_schema::DataType::Utf8View, SHAPES[2], 30_000, 5, &mut random);
    let chunk = encoded(&pool, &array);
    assert_eq!(chunk.encoding(), crate::EncodingKind::Fsst);
    check(&read(&pool, &bytes_of(&chunk)).unwrap(), &array, &mut random);
}

#[test]
fn a_dictionary_whose_values_share_bytes_costs_no_more_than_a_chunk() {
    // Each value is a suffix of one string, so that all are distinct, sorted, and long.
    let (text, values) = (vec![b'x'; 4 << 20], 60_000_u32);
    let view = |start: u32| {
        let length = text.len() as u32 - start;
        let view = arrow_data::ByteView::new(length, b"xxxx").with_offset(start);
        view.as_u128().to_le_bytes()
    };
    let short =
        arrow_array::StringViewArray::from_iter_values((0..99).map(|i| ["a long string", "b"][i % 2]));
    let short = encoded(&pool(8), &(Arc::new(short) as _));
    assert_eq!(short.encoding(), crate::EncodingKind::Dictionary);
    // The head is the same up to its dictionary.
    let mut head = short.to_image().unwrap().head;
    let at = head.windows(8).position(|window| window == 32_u64.to_le_bytes()).unwrap();
    head.truncate(at);
    head.extend_from_slice(&(u64::from(values) * 16).to_le_bytes());
    head.extend_from_slice(&(text.len() as u64).to_le_bytes());
    let mut bytes = (head.len() as u16).to_le_bytes().to_vec();
    bytes.extend_from_slice(&head);
    (0..values).rev().for_each(|start| bytes.extend_from_slice(&view(start)));
    bytes.extend_from_slice(&text);
    let error = read(&pool(8), &bytes).unwrap_err();
    assert!(error.kind == ErrorKind::Corrupt && error.message.contains("more values"), "{error}");
}

/// Calls every operation on a chunk. None of them may panic.
fn exercise(chunk: &Chunk) {
    let rows = chunk.rows();
    let all = chunk.decode(0..rows).unwrap();
    all.to_data().validate_full().unwrap();
    let some: Vec<u32> = (0..rows as u32).step_by(7).collect();
    chunk.gather(&some).unwrap().to_data().validate_full().unwrap();
    chunk.validity(0..rows);
    for integers in chunk.integers().into_iter().chain(chunk.dictionary().map(|d| d.codes())) {
        let mut bits = vec![0; rows.div_ceil(64)];
        integers.retain_within(i128::MIN, i128::from(integers.max()) - 1, true, 0, &mut bits);
        let mut values = Vec::new();
        integers.unpack(0..rows, &mut values);
        assert!(values.iter().all(|v| (integers.min()..=integers.max()).contains(v)));
    }
    bytes_of(chunk);
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.below(3) {
        // Most changes are made in the head, because it has the lengths of buffers.
        let near = if random.below(3) == 0 { bytes.len() } else { bytes.len().min(120) };
        let at = random.below(near);
        match random.below(8) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.next() as u8),
            2 => {
                bytes.remove(at);
            }
            3 => bytes[at] = [0, 1, 0x7F, 0x80, 0xFF][random.below(5)],
            _ => bytes[at] ^= 1 << random.below(8),
        }
        if bytes.is_empty() {
            return;
        }
    }
}

#[test]
fn damaged_bytes_are_refused_or_give_a_sound_chunk() {
    let mut random = Random(7);
    let pool = pool(64);
    let (mut read_anyway, mut refused) = (0, 0);
    for data_type in &TYPES {
        for shape in SHAPES {
            for nulls in [0, 25] {
                let array = array(data_type, shape, 1100, nulls, &mut random);
                let bytes = bytes_of(&encoded(&pool, &array));
                for _ in 0..60 {
                    let mut damaged = bytes.clone();
                    mutate(&mut damaged, &mut random);
                    match read(&pool, &damaged) {
                        Ok(chunk) => {
                            exercise(&chunk);
                            read_anyway += 1;
                        }
                        Err(error) => {
                            assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
                            refused += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(read_anyway > 100 && refused > 1000, "{read_anyway} read, {refused} refused");
    assert_eq!(pool.usage().bytes_used, 0);
}

#[test]
fn damaged_compressed_text_is_refused_or_gives_a_sound_chunk() {
    let mut random = Random(8);
    let pool = pool(64);
    let array = array(&arrow_schema::DataType::Utf8View, SHAPES[2], 3000, 5, &mut random);
    let bytes = bytes_of(&encoded(&pool, &array));
    for round in 0..600 {
        let mut damaged = bytes.clone();
        if round % 2 == 0 {
            mutate(&mut damaged, &mut random);
        } else {
            let at = random.below(damaged.len());
            damaged[at] ^= 1 << random.below(8);
        }
        if let Ok(chunk) = read(&pool, &damaged) {
            exercise(&chunk);
        }
    }
}

#[test]
fn any_bytes_at_all_are_refused() {
    let mut random = Random(9);
    let pool = pool(4);
    for _ in 0..2000 {
        let mut bytes = vec![60, 0];
        bytes.extend_from_slice(b"FPC2");
        bytes.extend((0..random.below(80)).map(|_| random.next() as u8 >> random.below(8)));
        if let Ok(chunk) = read(&pool, &bytes) {
            exercise(&chunk);
        }
    }
}

#[test]
fn decimal_types_that_are_not_canonical_are_refused() {
    let mut bytes = Vec::new();
    crate::type_code::write(&arrow_schema::DataType::Decimal128(38, -38), &mut bytes);
    let read = |bytes: &[u8]| crate::type_code::read(&mut crate::bytes::Reader::new(bytes));
    assert_eq!(read(&bytes), Ok(arrow_schema::DataType::Decimal128(38, -38)));
    for (precision, scale) in [(0, 0_i8), (39, 0), (5, 6), (38, -39)] {
        let changed = [bytes[0], precision, scale.cast_unsigned()];
        assert_eq!(read(&changed).unwrap_err().kind, ErrorKind::Corrupt, "decimal({precision},{scale})");
    }
}

#[test]
fn bounds_that_cannot_be_right_are_refused() {
    let pool = pool(4);
    let values: Vec<i64> = (100..1100).collect();
    let chunk = encoded(&pool, &(Arc::new(arrow_array::Int64Array::from(values)) as _));
    let bytes = bytes_of(&chunk);
    let bound = |value: i128| bytes.windows(16).position(|window| window == value.to_le_bytes()).unwrap();
    for (at, value) in [(bound(100), 99_i128), (bound(1099), 1100), (bound(100), 1099), (bound(1099), 99)] {
        let mut changed = bytes.clone();
        changed[at..at + 16].copy_from_slice(&value.to_le_bytes());
        let read = read(&pool, &changed);
        match value {
            // A minimum or maximum that is possible is accepted without comparing it with the values, because a
            // checksum protects it.
            1099 => assert!(read.is_ok()),
            _ => assert_eq!(read.unwrap_err().kind, ErrorKind::Corrupt),
        }
    }
}
