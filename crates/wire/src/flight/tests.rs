//! Tests with what a client sends, and with what none should.

use super::*;
use arrow_array::types::Int8Type;
use arrow_array::{ArrayRef, DictionaryArray, Int32Array, LargeStringArray, RecordBatch, StringArray};
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions};
use bytes::Bytes;
use farpool_model::ErrorKind;
use std::sync::Arc;

/// Returns the metadata and bodies of a stream with this batch.
fn messages(batch: &RecordBatch) -> Vec<(Vec<u8>, Bytes)> {
    let (options, mut tracker) = (IpcWriteOptions::default(), DictionaryTracker::new(false));
    let generator = IpcDataGenerator::default();
    let schema = generator.schema_to_bytes_with_dictionary_tracker(&batch.schema(), &mut tracker, &options);
    let (dictionaries, rows) =
        generator.encode(batch, &mut tracker, &options, &mut Default::default()).unwrap();
    let parts = [schema].into_iter().chain(dictionaries).chain([rows]);
    parts.map(|part| (part.ipc_message, Bytes::from(part.arrow_data))).collect()
}

fn sample() -> RecordBatch {
    let keys: DictionaryArray<Int8Type> =
        [Some("red"), None, Some("a rather long name"), Some("red")].into_iter().collect();
    RecordBatch::try_from_iter([
        ("n", Arc::new(Int32Array::from(vec![Some(1), None, Some(3), Some(4)])) as ArrayRef),
        ("s", Arc::new(StringArray::from(vec!["a", "bc", "", "d"])) as ArrayRef),
        ("l", Arc::new(LargeStringArray::from(vec![None, Some("x"), None, Some("y")])) as ArrayRef),
        ("k", Arc::new(keys) as ArrayRef),
        ("e", arrow_array::new_null_array(&arrow_schema::DataType::Null, 4)),
    ])
    .unwrap()
}

#[test]
fn rows_are_read_and_dictionaries_become_values() {
    let sent = messages(&sample());
    let mut reader = FlightReader::open(&sent[0].0).unwrap();
    let mut read = sent[1..].iter().filter_map(|(header, body)| reader.read(header, body).unwrap());
    let batch = read.next().unwrap();
    assert!(read.next().is_none());
    assert_eq!(batch.columns()[..3], sample().columns()[..3]);
    let values = batch.column(3).as_any().downcast_ref::<arrow_array::StringViewArray>().unwrap();
    assert_eq!(
        values.iter().collect::<Vec<_>>(),
        [Some("red"), None, Some("a rather long name"), Some("red")]
    );
    assert_eq!(batch.schema(), *reader.schema());
}

#[test]
fn buffers_that_lie_outside_are_found_before_arrow_reads_them() {
    let sent = messages(&sample());
    for (place, (header, body)) in sent.iter().enumerate().skip(1) {
        let mut reader = FlightReader::open(&sent[0].0).unwrap();
        let cut = body.slice(..body.len() / 2);
        sent[1..place].iter().try_for_each(|(h, b)| reader.read(h, b).map(drop)).unwrap();
        assert_eq!(reader.read(header, &cut).unwrap_err().kind, ErrorKind::Corrupt, "{place}");
    }
    let mut reader = FlightReader::open(&sent[0].0).unwrap();
    let (header, body) = sent.last().unwrap();
    assert_eq!(reader.read(header, body).unwrap_err().kind, ErrorKind::Corrupt, "keys without values");
    assert_eq!(FlightReader::open(header).unwrap_err().kind, ErrorKind::Invalid, "rows first");
}

#[test]
fn tickets_are_read_as_they_were_written() {
    let text = |in_schema: Option<&str>, text: &str| TicketTarget::Text {
        in_schema: in_schema.map(str::to_string),
        text: text.to_string(),
    };
    let targets = [
        text(None, "select 1"),
        text(Some("my schema"), "select 'é'"),
        text(None, ""),
        TicketTarget::Prepared { handle: u128::MAX - 5, binding: 7 },
    ];
    for target in targets {
        let ticket = Ticket { id: 1 << 100, schema: 99, target };
        let bytes = ticket.encode();
        assert_eq!(Ticket::decode(&bytes).unwrap(), ticket);
        for length in 0..29.min(bytes.len()) {
            assert!(Ticket::decode(&bytes[..length]).is_err(), "{length}");
        }
    }
    assert!(Ticket::decode(&[]).is_err());
}
