//! Tests of Arrow batches in messages: decoding gives the encoded batch, only bytes that its rows refer to are sent,
//! and corrupt messages are refused.

use super::write::encode_within;
use super::*;
use crate::message::Outgoing;
use crate::verbs::FrameKind;
use arrow_array::builder::{BinaryViewBuilder, StringViewBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::*;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use farpool_model::{Compression, ErrorKind};
use proptest::prelude::*;
use std::sync::Arc;

fn join(message: &Outgoing) -> Bytes {
    let bytes: Vec<u8> = message.clone().frames(1).concat();
    // Removes the frame headers.
    let (mut at, mut body) = (0, Vec::new());
    while at < bytes.len() {
        let length = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        body.extend_from_slice(&bytes[at + 12..at + 12 + length]);
        at += 12 + length;
    }
    body.into()
}

const COMPRESSIONS: [Option<Compression>; 3] = [None, Some(Compression::Lz4), Some(Compression::Zstd)];

/// Encodes a batch that fits one message.
fn message(batch: &RecordBatch, compression: Option<Compression>) -> Bytes {
    let encoded = encode_batch(FrameKind::Batch, batch, compression).unwrap();
    assert_eq!(encoded.messages.len(), 1);
    let message = join(&encoded.messages[0]);
    assert!(compression.is_some() || encoded.bytes_plain < message.len());
    message
}

/// Encodes and decodes a batch, with and without compression; asserts that the results are equal, and returns one.
fn round_trip(batch: &RecordBatch) -> RecordBatch {
    let schema = decode_schema(&encode_schema(batch.schema_ref()).unwrap()).unwrap();
    assert_eq!(&schema, batch.schema_ref());
    let [plain, lz4, zstd] = COMPRESSIONS.map(|form| decode_batch(&schema, &message(batch, form)).unwrap());
    assert_eq!(lz4, plain);
    assert_eq!(zstd, plain);
    plain
}

fn every_type() -> RecordBatch {
    let zone: Arc<str> = "Europe/Berlin".into();
    let ints = [Some(1), None, Some(-3), Some(7)];
    let strings = [Some("short"), None, Some("a string that is longer than a view"), Some("")];
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("bool", Arc::new(BooleanArray::from(vec![Some(true), None, Some(false), Some(true)]))),
        ("i8", Arc::new(Int8Array::from_iter(ints.map(|v| v.map(|v| v as i8))))),
        ("i16", Arc::new(Int16Array::from_iter(ints.map(|v| v.map(|v| v as i16))))),
        ("i32", Arc::new(Int32Array::from_iter(ints))),
        ("i64", Arc::new(Int64Array::from_iter(ints.map(|v| v.map(i64::from))))),
        ("u8", Arc::new(UInt8Array::from(vec![1, 2, 3, 255]))),
        ("u16", Arc::new(UInt16Array::from(vec![1, 2, 3, 4]))),
        ("u32", Arc::new(UInt32Array::from(vec![1, 2, 3, u32::MAX]))),
        ("u64", Arc::new(UInt64Array::from(vec![1, 2, 3, u64::MAX]))),
        ("f32", Arc::new(Float32Array::from(vec![0.5, -0.0, f32::INFINITY, f32::MIN]))),
        ("f64", Arc::new(Float64Array::from(vec![Some(0.5), None, Some(f64::MAX), Some(-0.0)]))),
        (
            "decimal",
            Arc::new(
                Decimal128Array::from(vec![Some(i128::MAX), None, Some(-5), Some(0)])
                    .with_precision_and_scale(38, 4)
                    .unwrap(),
            ),
        ),
        ("date", Arc::new(Date32Array::from(vec![Some(10_471), None, Some(-1), Some(0)]))),
        ("timestamp", Arc::new(TimestampNanosecondArray::from(vec![1, 2, 3, i64::MIN]))),
        (
            "zoned",
            Arc::new(TimestampMillisecondArray::from(vec![Some(1), None, None, Some(4)]).with_timezone(zone)),
        ),
        ("text", Arc::new(StringViewArray::from_iter(strings))),
        ("bytes", Arc::new(BinaryViewArray::from_iter(strings.map(|s| s.map(str::as_bytes))))),
    ];
    let fields: Vec<Field> =
        columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
    let columns = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

#[test]
fn every_canonical_type_round_trips_whole_and_sliced() {
    let batch = every_type();
    for (offset, length) in [(0, 4), (1, 3), (3, 1), (2, 0), (0, 0)] {
        let slice = batch.slice(offset, length);
        assert_eq!(round_trip(&slice), slice, "{offset} + {length}");
    }
}

#[test]
fn our_messages_are_what_arrow_itself_reads() {
    let batch = every_type();
    for form in COMPRESSIONS {
        let mut stream = encode_schema(batch.schema_ref()).unwrap().to_vec();
        stream.extend_from_slice(&message(&batch, form));
        let mut reader = arrow_ipc::reader::StreamReader::try_new(&stream[..], None).unwrap();
        assert_eq!(reader.next().unwrap().unwrap(), batch, "{form:?}");
    }
}

#[test]
fn what_arrow_itself_writes_is_read() {
    let batch = every_type();
    for form in COMPRESSIONS {
        let mut stream = Vec::new();
        let options = IpcWriteOptions::default().try_with_compression(form.map(compress::codec)).unwrap();
        let mut writer =
            StreamWriter::try_new_with_options(&mut stream, batch.schema_ref(), options).unwrap();
        writer.write(&batch).unwrap();
        let schema = decode_schema(&stream).unwrap();
        let (metadata_bytes, _) = metadata(&stream).unwrap();
        let message = Bytes::copy_from_slice(&stream[metadata_bytes..]);
        assert_eq!(decode_batch(&schema, &message).unwrap(), batch, "{form:?}");
    }
}

#[test]
fn a_batch_without_columns_keeps_its_rows() {
    let options = RecordBatchOptions::new().with_row_count(Some(12_345));
    let batch = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).unwrap();
    assert_eq!(round_trip(&batch).num_rows(), 12_345);
}

#[test]
fn a_batch_too_large_for_one_message_is_split_by_rows() {
    let batch = strings((0..1000).map(|i| Some(format!("row {i} with a text that is long enough"))));
    let mut encoded = EncodedBatch::default();
    encode_within(FrameKind::Batch, &batch, 16 << 10, None, &mut encoded).unwrap();
    let messages = encoded.messages;
    assert!(messages.len() > 2);
    let mut rows = 0;
    for message in &messages {
        assert!(join(message).len() <= 16 << 10);
        let part = decode_batch(batch.schema_ref(), &join(message)).unwrap();
        assert_eq!(part, batch.slice(rows, part.num_rows()));
        rows += part.num_rows();
    }
    assert_eq!(rows, 1000);
    let error = encode_within(FrameKind::Batch, &batch, 100, None, &mut EncodedBatch::default()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OverLimit);
}

fn strings(values: impl Iterator<Item = Option<String>>) -> RecordBatch {
    let array = StringViewArray::from_iter(values);
    let schema = Schema::new(vec![Field::new("s", DataType::Utf8View, true)]);
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(array)]).unwrap()
}

#[test]
fn only_bytes_that_rows_refer_to_travel_and_each_once() {
    let long = |i: usize| Some(format!("value {i} {}", "x".repeat(100)));
    let batch = strings((0..10_000).map(long));
    let slice = batch.slice(5_000, 10);
    let sent = message(&slice, None);
    assert!(sent.len() < 3_000, "{} bytes for 10 rows", sent.len());
    assert!(!sent.windows(10).any(|w| w == b"value 6000"), "a foreign value travels");

    // Many rows that refer to the same few values, as in a decoded dictionary column.
    let values = strings((0..100).map(long));
    let rows: Vec<u128> = {
        let views = values.column(0).as_string_view().views();
        (0..50_000).map(|i| views[i * 7 % 50]).collect()
    };
    let array = StringViewArray::new(rows.into(), values.column(0).as_string_view().data_buffers(), None);
    let batch = RecordBatch::try_new(values.schema(), vec![Arc::new(array)]).unwrap();
    let sent = message(&batch, None);
    assert!(sent.len() < 50_000 * 16 + 50 * 120, "{} bytes", sent.len());
    assert!(!sent.windows(8).any(|w| w == b"value 77"), "an unused value travels");
    assert_eq!(round_trip(&batch), batch);
}

#[test]
fn long_runs_of_strings_are_sent_from_where_they_are() {
    let batch = strings((0..20_000).map(|i| Some(format!("value {i} {}", "x".repeat(100)))));
    let pieces = encode_batch(FrameKind::Batch, &batch, None).unwrap().messages.remove(0).frames(1);
    let inside = |piece: &Bytes| {
        batch.column(0).as_string_view().data_buffers().iter().any(|buffer| {
            let range = buffer.as_slice().as_ptr_range();
            range.contains(&piece.as_ptr())
        })
    };
    let shared: usize = pieces.iter().filter(|piece| inside(piece)).map(|p| p.len()).sum();
    assert!(shared > 20_000 * 100);
}

fn decode_damaged(schema: &SchemaRef, bytes: &[u8]) {
    if let Ok(batch) = decode_batch(schema, &Bytes::copy_from_slice(bytes)) {
        // If a corruption is not detected, the arrays must still be valid, so that using them cannot panic.
        for column in batch.columns() {
            column.to_data().validate_full().unwrap();
        }
    }
}

#[test]
fn damaged_batches_and_schemas_never_panic() {
    let batch = every_type();
    let schema = encode_schema(batch.schema_ref()).unwrap();
    for message in COMPRESSIONS.map(|form| message(&batch, form)) {
        for at in 0..message.len() {
            decode_damaged(batch.schema_ref(), &message[..at]);
            for flip in [0x01, 0x80, 0xff] {
                let mut damaged = message.to_vec();
                damaged[at] ^= flip;
                decode_damaged(batch.schema_ref(), &damaged);
            }
        }
    }
    for at in 0..schema.len() {
        let _ = decode_schema(&schema[..at]);
        for flip in [0x01, 0x08, 0x80, 0xff] {
            let mut damaged = schema.to_vec();
            damaged[at] ^= flip;
            let _ = decode_schema(&damaged);
        }
    }
}

#[test]
fn compressed_batches_are_small_and_say_what_they_were() {
    let batch = strings((0..5_000).map(|i| Some(format!("value {} of the same few values", i % 7))));
    let plain = message(&batch, None).len();
    for form in [Compression::Lz4, Compression::Zstd] {
        let encoded = encode_batch(FrameKind::Batch, &batch, Some(form)).unwrap();
        assert!(encoded.bytes_plain.abs_diff(plain) < 1_000, "{form:?}: {} of {plain}", encoded.bytes_plain);
        assert!(join(&encoded.messages[0]).len() * 4 < plain, "{form:?}");
    }
}

#[test]
fn what_inflating_takes_is_known_before_and_no_buffer_is_longer_than_it_says() {
    // A message of a few kilobytes that decompresses to gigabytes of zeros.
    let schema = Schema::new(vec![Field::new("n", DataType::Int64, false)]);
    let zeros: ArrayRef = Arc::new(Int64Array::from(vec![0; 1 << 20]));
    let batch = RecordBatch::try_new(Arc::new(schema), vec![zeros]).unwrap();
    for form in [Compression::Lz4, Compression::Zstd] {
        let sound = message(&batch, Some(form));
        assert!(sound.len() < 64 << 10);
        assert_eq!(bytes_to_decode(&sound).unwrap(), 8 << 20);
        let length = (8_u64 << 20).to_le_bytes();
        let at = sound.windows(8).position(|window| window == length).unwrap();
        for (claimed, kind) in [
            (300_u64 << 20, ErrorKind::OverLimit),
            (u64::MAX >> 1, ErrorKind::OverLimit),
            (1 << 63, ErrorKind::Corrupt),
        ] {
            let damaged = with_length(&sound, at, claimed);
            assert_eq!(bytes_to_decode(&damaged).unwrap_err().kind, kind, "{form:?} {claimed}");
            assert_eq!(decode_batch(batch.schema_ref(), &damaged).unwrap_err().kind, kind);
        }
        for claimed in [(8 << 20) - 1, (8 << 20) + 1, 200 << 20] {
            let damaged = with_length(&sound, at, claimed);
            assert_eq!(bytes_to_decode(&damaged).unwrap(), claimed.next_multiple_of(64) as usize);
            let error = decode_batch(batch.schema_ref(), &damaged).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Corrupt, "{form:?}: {error}");
        }
    }
    let plain = message(&batch, None);
    let shifted = Bytes::from([&[0][..], &plain].concat()).slice(1..);
    let sum = [&plain, &shifted].map(|message| bytes_to_decode(message).unwrap());
    assert!(sum.contains(&0) && sum.contains(&(8 << 20)), "one of them has to be copied: {sum:?}");
}

fn with_length(message: &Bytes, at: usize, length: u64) -> Bytes {
    let mut damaged = message.to_vec();
    damaged[at..at + 8].copy_from_slice(&length.to_le_bytes());
    damaged.into()
}

/// Returns a message with one column of string views that consists of `buffers`; the last `data` of them are the data
/// buffers that the views refer to.
fn handmade(rows: usize, buffers: &[Vec<u8>], data: usize) -> Bytes {
    let mut layout = write::Layout::default();
    layout.nodes.push(arrow_ipc::FieldNode::new(rows as i64, 0));
    layout.variadic_counts.push(data as i64);
    buffers.iter().for_each(|buffer| layout.add(buffer.len()));
    let mut message = encapsulate(&layout.metadata(rows as i64, None)).to_vec();
    for buffer in buffers {
        message.extend_from_slice(buffer);
        message.resize(message.len().next_multiple_of(ALIGNMENT), 0);
    }
    message.into()
}

#[test]
fn views_that_share_bytes_cost_no_more_than_a_message() {
    let schema = Arc::new(Schema::new(vec![Field::new("s", DataType::Utf8View, true)]));
    let text = vec![b'x'; 64 << 10];
    let view = arrow_data::ByteView::new(text.len() as u32, b"xxxx").as_u128().to_le_bytes();
    let fits = farpool_model::limits::MESSAGE_BYTES_MAX / text.len();
    let batch_of = |rows: usize| handmade(rows, &[vec![], view.repeat(rows), text.clone()], 1);
    let batch = decode_batch(&schema, &batch_of(fits)).unwrap();
    assert_eq!(batch.num_rows(), fits);
    let error = decode_batch(&schema, &batch_of(fits + 1)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OverLimit, "{error}");
    assert!(error.message.contains(&((fits + 1) * text.len()).to_string()), "{error}");

    // An encoder splits such rows into several messages.
    let views = batch.column(0).as_string_view();
    let twice: Vec<u128> = views.views().iter().chain(views.views().iter()).copied().collect();
    let array = StringViewArray::new(twice.into(), views.data_buffers(), None);
    let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(array)]).unwrap();
    let messages = encode_batch(FrameKind::Batch, &batch, None).unwrap().messages;
    assert_eq!(messages.len(), 2);
    let rows = messages.iter().map(|message| decode_batch(&schema, &join(message)).unwrap().num_rows());
    assert_eq!(rows.sum::<usize>(), 2 * fits);
}

#[test]
fn rows_and_buffers_that_take_no_bytes_are_bounded() {
    let rows = farpool_model::limits::MESSAGE_ROWS_MAX;
    let empty = Arc::new(Schema::empty());
    let of = |rows| {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(empty.clone(), vec![], &options).unwrap()
    };
    assert_eq!(round_trip(&of(rows)).num_rows(), rows);
    assert_eq!(encode_batch(FrameKind::Batch, &of(rows + 1), None).unwrap().messages.len(), 2);
    let message = encapsulate(&write::Layout::default().metadata(rows as i64 + 1, None));
    assert_eq!(decode_batch(&empty, &message).unwrap_err().kind, ErrorKind::OverLimit);

    let schema = Arc::new(Schema::new(vec![Field::new("s", DataType::Utf8View, true)]));
    let of = |buffers: usize| handmade(1, &vec![vec![]; 2 + buffers], buffers);
    let most = farpool_model::limits::MESSAGE_BUFFERS_MAX;
    assert_eq!(decode_batch(&schema, &of(most - 1)).unwrap_err().kind, ErrorKind::OverLimit);
    assert_eq!(
        decode_batch(&schema, &of(most - 2)).unwrap_err().kind,
        ErrorKind::Corrupt,
        "no view is there"
    );
}

#[test]
fn types_that_are_not_canonical_are_refused_by_name() {
    for data_type in [DataType::Utf8, DataType::Date64, DataType::Null, DataType::Float16] {
        let schema = Schema::new(vec![Field::new("c", data_type, true)]);
        let error = encode_schema(&schema).unwrap_err();
        assert!(error.message.contains("\"c\""), "{error}");
    }
    let mut stream = Vec::new();
    let schema = Schema::new(vec![Field::new_list("c", Field::new_list_field(DataType::Int8, true), true)]);
    arrow_ipc::writer::StreamWriter::try_new(&mut stream, &schema).unwrap();
    let error = decode_schema(&stream).unwrap_err();
    assert!(error.message.contains("List"), "{error}");
    let schema = Schema::new(vec![Field::new("c", DataType::Timestamp(TimeUnit::Second, None), true)]);
    assert!(encode_schema(&schema).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_views_round_trip(
        values in proptest::collection::vec(proptest::option::of("[a-z]{0,40}"), 1..300),
        picks in proptest::collection::vec(proptest::option::weighted(0.9, 0usize..1000), 0..400),
    ) {
        // A column whose rows refer to several data buffers in any order, with duplicates and NULLs.
        let mut builder = StringViewBuilder::new().with_fixed_block_size(64);
        values.iter().for_each(|value| builder.append_option(value.as_deref()));
        let array = builder.finish();
        let picked: Vec<u128> = picks.iter().map(|p| p.map_or(u128::MAX, |p| array.views()[p % array.len()])).collect();
        let valid = picks.iter().map(|p| p.is_some_and(|p| array.is_valid(p % array.len())));
        let nulls = arrow_buffer::NullBuffer::from_iter(valid);
        let expected: Vec<Option<&str>> = picks
            .iter()
            .map(|p| p.and_then(|p| values[p % values.len()].as_deref()))
            .collect();
        let compacted = compact::compact(&picked.into(), Some(&nulls), array.data_buffers(), 1 << 20).unwrap();
        let data: Vec<_> = compacted.data;
        let got = StringViewArray::try_new(compacted.views.into(), data, Some(nulls)).unwrap();
        prop_assert_eq!(got.iter().collect::<Vec<_>>(), expected.clone());
        let batch = strings(expected.iter().map(|s| s.map(str::to_string)));
        prop_assert_eq!(round_trip(&batch), batch);
    }
}

#[test]
fn binary_views_round_trip_as_strings_do() {
    let mut builder = BinaryViewBuilder::new();
    (0..100u8).for_each(|i| builder.append_value(vec![i; usize::from(i)]));
    let array = builder.finish();
    let schema = Schema::new(vec![Field::new("b", DataType::BinaryView, false)]);
    let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(array)]).unwrap();
    assert_eq!(round_trip(&batch), batch);
    assert_eq!(round_trip(&batch).column(0).as_primitive_opt::<Int8Type>(), None);
}
