//! Tests that parcels (encoded rows of a result, as they are sent) decode to the values that were packed, in any
//! form and at any alignment, and that corruption is noticed.

use super::*;
use crate::chunk::Chunk;
use crate::encode::encode;
use crate::result_buffer::{ResultBuffer, ResultMemory};
use arrow_array::*;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use farpool_model::limits::PAGE_BYTES;
use proptest::prelude::*;
use std::sync::Arc;

fn schema_of(columns: &[ArrayRef]) -> SchemaRef {
    let field = |(i, c): (usize, &ArrayRef)| Field::new(format!("c{i}"), c.data_type().clone(), true);
    Arc::new(Schema::new(columns.iter().enumerate().map(field).collect::<Vec<_>>()))
}

/// Returns the parcel of `chunks`, in memory that begins `offset` bytes after an aligned address.
fn sent(chunks: Vec<Chunk>, rows: usize, offset: usize) -> Bytes {
    let chunks: Vec<Arc<Chunk>> = chunks.into_iter().map(Arc::new).collect();
    let mut bytes = vec![0; offset];
    pack_chunks(rows, &chunks).iter().for_each(|piece| bytes.extend_from_slice(piece));
    Bytes::from(bytes).slice(offset..)
}

/// Packs the columns as stored chunks and as arrays, and reads them back whole and in parts.
fn check(columns: &[ArrayRef]) {
    let rows = columns.first().map_or(0, |column| column.len());
    let schema = schema_of(columns);
    let whole = RecordBatch::try_new(schema.clone(), columns.to_vec()).unwrap();
    let stored = |column: &ArrayRef| encode(column).unwrap();
    let packed = |column: &ArrayRef| pack_array(column).unwrap();
    for offset in [0, 1, 8] {
        for chunks in [columns.iter().map(stored).collect(), columns.iter().map(packed).collect::<Vec<_>>()] {
            let sent = sent(chunks, rows, offset);
            let memory = ResultMemory::new(8 * PAGE_BYTES).unwrap();
            for (mut room, part) in [
                (ResultBuffer::default(), rows.max(1)),
                (ResultBuffer::default(), rows / 3 + 1),
                (ResultBuffer::of_pages(&memory), 2049),
            ] {
                let mut parcel = Parcel::read(&sent, &schema).unwrap();
                assert_eq!(parcel.rows(), rows);
                for start in (0..rows).step_by(part) {
                    let next = parcel.next(part, &mut room).unwrap();
                    assert_eq!(next, whole.slice(start, part.min(rows - start)));
                }
                assert_eq!((parcel.rows_left(), parcel.next(1, &mut room).unwrap().num_rows()), (0, 0));
            }
        }
    }
}

fn sample(rows: usize) -> Vec<ArrayRef> {
    let count = rows as i64;
    let colour = |i: i64| ["red", "green", "a colour that is longer than a view"][(i % 3) as usize];
    let text = |i: i64| format!("every text is another one: ü {}, {}", i * 7919 % 10_007, i);
    vec![
        Arc::new(Int64Array::from_iter((0..count).map(|i| (i % 11 > 0).then_some(i * 37 % 1000)))),
        Arc::new(Int32Array::from_iter_values((0..count as i32).map(|i| i.wrapping_mul(65_537)))),
        Arc::new(Int64Array::from_iter_values((0..count).map(|i| i.wrapping_mul(i64::MAX / 7)))),
        Arc::new(Int16Array::from_iter_values((0..count).map(|_| 7))),
        Arc::new(UInt64Array::from_iter_values((0..count).map(|i| u64::MAX - i as u64))),
        Arc::new(Date32Array::from_iter((0..count).map(|i| (i % 2 > 0).then_some(i as i32)))),
        Arc::new(Decimal128Array::from_iter_values((0..count).map(|i| i128::MAX / 10 - i128::from(i)))),
        Arc::new(Decimal128Array::from_iter_values((0..count).map(|i| i128::from(i) * 99))),
        Arc::new(Float64Array::from_iter((0..count).map(|i| (i % 7 > 0).then_some(i as f64 / 3.0)))),
        Arc::new(Float32Array::from_iter_values((0..count).map(|i| i as f32))),
        Arc::new(BooleanArray::from_iter((0..count).map(|i| (i % 5 > 0).then_some(i % 3 == 0)))),
        Arc::new(StringViewArray::from_iter_values((0..count).map(colour))),
        Arc::new(StringViewArray::from_iter((0..count).map(|i| (i % 4 > 0).then(|| colour(i))))),
        Arc::new(StringViewArray::from_iter_values((0..count).map(|_| "one"))),
        Arc::new(StringViewArray::from_iter((0..count).map(|i| (i % 9 > 0).then(|| text(i))))),
        Arc::new(BinaryViewArray::from_iter_values(
            (0..count as u32).map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()),
        )),
        new_null_array(&DataType::Utf8View, rows),
        new_null_array(&DataType::Timestamp(arrow_schema::TimeUnit::Nanosecond, None), rows),
    ]
}

#[test]
fn columns_of_every_form_come_back_whole_and_in_parts() {
    for rows in [0, 1, 5, 1023, 1024, 1030, 3000, 8192] {
        check(&sample(rows));
    }
}

#[test]
fn slices_of_arrays_take_nothing_foreign_along() {
    let columns: Vec<ArrayRef> = sample(4000).iter().map(|column| column.slice(1001, 1500)).collect();
    check(&columns);
    let long: ArrayRef =
        Arc::new(StringViewArray::from_iter_values((0..4000).map(|i| format!("{i} {}", "x".repeat(100)))));
    let packed = pack_array(&long.slice(3000, 10)).unwrap();
    assert!(sent(vec![packed], 10, 0).len() < 2000);
}

#[test]
fn a_few_rows_take_a_few_bytes() {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values((0..7).map(|i| i * 100_000)));
    assert!(sent(vec![pack_array(&column).unwrap()], 7, 0).len() < 128);
}

#[test]
fn parcels_of_other_columns_are_refused() {
    let columns = sample(10);
    let bytes = sent(columns.iter().map(|c| pack_array(c).unwrap()).collect(), 10, 0);
    for wrong in [&columns[..3], &[], &sample(10)[1..]] {
        assert!(Parcel::read(&bytes, &schema_of(wrong)).is_err());
    }
    let strict = Schema::new(vec![Field::new("c", DataType::Int64, false)]);
    let bytes = sent(vec![pack_array(&columns[0]).unwrap()], 10, 0);
    assert!(Parcel::read(&bytes, &Arc::new(strict)).unwrap().next(10, &mut ResultBuffer::default()).is_err());
}

#[test]
fn rows_that_refer_to_long_strings_are_bounded_by_what_they_have_together() {
    let text = "x".repeat(64 << 10);
    let dictionary: ArrayRef = Arc::new(StringViewArray::from(vec!["", &text]));
    let rows = 60_000;
    // Creates a parcel of a dictionary whose long string is in `long` rows; the other rows are NULL.
    let parcel = |long: usize| {
        let codes: Vec<u32> = vec![1; rows];
        let validity = arrow_buffer::BooleanBuffer::from_iter((0..rows).map(|row| row < long));
        let zone = crate::zone::ZoneMap { null_count: rows - long, ..Default::default() };
        let codes = crate::packed::Packed::pack_u32(&codes, 1);
        let body = crate::body::Body::Dictionary { values: dictionary.clone(), codes };
        let chunk = Chunk::new(DataType::Utf8View, rows, Some(validity), zone, body, 0);
        sent(vec![chunk], rows, 0)
    };
    let schema = schema_of(std::slice::from_ref(&dictionary));
    let fits = i32::MAX as usize / text.len();
    let mut sound = Parcel::read(&parcel(fits), &schema).unwrap();
    assert_eq!(sound.next(rows, &mut ResultBuffer::default()).unwrap().column(0).null_count(), rows - fits);
    let error = Parcel::read(&parcel(fits + 1), &schema).unwrap_err();
    assert_eq!(error.kind, farpool_model::ErrorKind::OverLimit);
}

#[test]
fn columns_that_take_no_bytes_are_decoded_in_parts() {
    let rows = farpool_model::limits::ROW_GROUP_ROWS;
    let null: ArrayRef = new_null_array(&DataType::Decimal128(38, 0), rows);
    let columns = vec![null; 1000];
    let sent = sent(columns.iter().map(|c| pack_array(c).unwrap()).collect(), rows, 0);
    assert!(sent.len() < 4096);
    let mut parcel = Parcel::read(&sent, &schema_of(&columns)).unwrap();
    let part = farpool_model::limits::MESSAGE_BYTES_MAX / 16_000;
    let first = parcel.next(rows, &mut ResultBuffer::default()).unwrap();
    assert_eq!((first.num_rows(), parcel.rows_left()), (part, rows - part));
    assert_eq!(first.column(999).null_count(), part);
}

#[test]
fn damaged_parcels_are_refused_or_sound() {
    let columns = sample(1030);
    let schema = schema_of(&columns);
    for form in [encode, pack_array] {
        let whole = sent(columns.iter().map(|column| form(column).unwrap()).collect(), 1030, 0);
        let head = u32::from_le_bytes(whole[..4].try_into().unwrap()) as usize;
        for at in (0..head).chain((head..whole.len()).step_by(97)) {
            for flip in [0x01, 0x40, 0xff] {
                let mut damaged = whole.to_vec();
                damaged[at] ^= flip;
                read_all(&Bytes::from(damaged), &schema);
            }
            read_all(&whole.slice(..at), &schema);
        }
    }
}

fn read_all(bytes: &Bytes, schema: &SchemaRef) {
    let Ok(mut parcel) = Parcel::read(bytes, schema) else { return };
    while parcel.rows_left() > 0
        && let Ok(batch) = parcel.next(700, &mut ResultBuffer::default())
    {
        for column in batch.columns() {
            column.to_data().validate_full().unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn random_columns_come_back(
        rows in 0usize..2500,
        bits in 0u32..64,
        base in any::<i64>(),
        seed in any::<u64>(),
        nulls in 1u64..20,
    ) {
        let mut state = seed | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mask = (1u64 << bits) - 1;
        let ints: Vec<Option<i64>> = (0..rows)
            .map(|_| (next() % nulls != 1).then(|| base.saturating_add((next() & mask) as i64)))
            .collect();
        let texts: Vec<Option<String>> = ints
            .iter()
            .map(|v| v.map(|v| "aé".repeat((v as usize) % 9) + &(v % 50).to_string()))
            .collect();
        check(&[
            Arc::new(Int64Array::from(ints)) as ArrayRef,
            Arc::new(StringViewArray::from_iter(texts)) as ArrayRef,
        ]);
    }
}
