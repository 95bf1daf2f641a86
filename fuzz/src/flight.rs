//! Fuzz body that reads what clients of Arrow Flight send: rows as Arrow IPC messages, and tickets.

use arrow_array::Array;
use bytes::Bytes;
use farpool_wire::flight::{FlightReader, Ticket};

/// Reads the input as a ticket, and as a stream of rows: for each message the lengths of its metadata and its body in
/// four bytes each, and both. A ticket that is read is written as it was, and rows that are read are valid.
pub fn flight_messages(data: &[u8]) {
    if let Ok(ticket) = Ticket::decode(data) {
        assert_eq!(ticket.encode(), data);
    }
    let mut reader = None;
    let mut rest = data;
    while let Some((header, body, behind)) = next(rest) {
        rest = behind;
        let Some(reader) = &mut reader else {
            let Ok(opened) = FlightReader::open(header) else { return };
            reader = Some(opened);
            continue;
        };
        let Ok(Some(batch)) = reader.read(header, &Bytes::copy_from_slice(body)) else { continue };
        assert_eq!(batch.schema(), *reader.schema());
        for column in batch.columns() {
            column.to_data().validate_full().expect("values that are valid");
        }
    }
}

/// Returns the next message of a stream, and what is behind it.
fn next(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (header, bytes) = bytes.split_first_chunk()?;
    let (body, bytes) = bytes.split_first_chunk()?;
    let length = |bytes: &[u8; 4]| usize::try_from(u32::from_le_bytes(*bytes)).ok();
    let (header, bytes) = bytes.split_at_checked(length(header)?)?;
    let (body, bytes) = bytes.split_at_checked(length(body)?)?;
    Some((header, body, bytes))
}
