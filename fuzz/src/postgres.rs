//! Fuzz body that reads messages of PostgreSQL's protocol, and values in both of its formats.

use bytes::{Bytes, BytesMut};
use farpool_postgres::messages::{Format, Message, format_at, message, opening};
use farpool_postgres::output::Output;
use farpool_postgres::types::PostgresType;
use farpool_postgres::values::{Columns, Style, array_of_one};

/// Maximum bytes of a message here.
const MESSAGE_BYTES_MAX: usize = 1 << 16;

/// The types that values are read as, by the first byte of the input.
const TYPES: [u32; 20] =
    [16, 17, 20, 21, 23, 25, 26, 700, 701, 1007, 1009, 1082, 1083, 1114, 1184, 1186, 1231, 1700, 2950, 3802];

/// Reads messages whole and in pieces, which must give the same; the values of each Bind are read as the type that the
/// first byte selects. A value that is read can be written, and reads as itself again in binary.
pub fn postgres_messages(data: &[u8]) {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let whole = messages(bytes, bytes.len());
    assert_eq!(whole, messages(bytes, usize::from(choice & 15) + 1));
    let oid = TYPES[usize::from(choice) % TYPES.len()];
    for message in whole.0 {
        let Message::Bind(bind) = message else { continue };
        for (place, value) in bind.values.iter().enumerate() {
            read(oid, format_at(&bind.formats, place), value.as_ref());
        }
    }
    drop(opening(&mut BytesMut::from(bytes)));
}

/// Returns the messages, and whether an error ends them.
fn messages(bytes: &[u8], piece: usize) -> (Vec<Message>, bool) {
    let (mut received, mut messages) = (BytesMut::new(), Vec::new());
    for piece in bytes.chunks(piece.max(1)) {
        received.extend_from_slice(piece);
        loop {
            match message(&mut received, MESSAGE_BYTES_MAX) {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(_) => return (messages, true),
            }
        }
    }
    (messages, false)
}

fn read(oid: u32, format: Format, value: Option<&Bytes>) {
    let Ok(array) = array_of_one(oid, format, value) else { return };
    assert_eq!(array.len(), 1);
    // A value is written as the type that its column has: an oid as a number of 8 bytes.
    let oid = PostgresType::of(array.data_type()).oid;
    let batch =
        arrow_array::RecordBatch::try_from_iter_with_nullable([("value", array, true)]).expect("one column");
    for format in [Format::Text, Format::Binary] {
        let Ok(columns) = Columns::new(&batch, |_| format, Style::default()) else { return };
        let mut output = Output::default();
        if columns.put_row(0, &mut output).is_err() {
            assert!(output.is_empty(), "a row that fails is taken back");
            return;
        }
        // Behind the head of the message, the number of columns and the length of the value.
        let row = Bytes::copy_from_slice(output.bytes());
        let value = (row[7..11] != [255; 4]).then(|| row.slice(11..));
        if format == Format::Binary {
            let again = array_of_one(oid, format, value.as_ref()).expect("what was written is read");
            let written = Columns::new(
                &arrow_array::RecordBatch::try_from_iter_with_nullable([("value", again, true)])
                    .expect("one column"),
                |_| format,
                Style::default(),
            );
            let mut twice = Output::default();
            written.expect("a value of the type").put_row(0, &mut twice).expect("a value that was written");
            assert_eq!(twice.bytes(), output.bytes());
        }
    }
}
