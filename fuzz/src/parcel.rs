//! Fuzz body that decodes untrusted parcels (packed rows).

use crate::plan::table_schema;
use arrow_array::{Array, ArrayRef, RecordBatch};
use bytes::Bytes;
use farpool_columns::{Parcel, ResultBuffer, pack_array, pack_chunks};
use std::sync::Arc;

/// Decodes a parcel. The rows of a valid one must be the same when read whole and in parts, and after they are packed
/// again.
pub fn parcel_decoder(data: &[u8]) {
    let schema = table_schema();
    let bytes = Bytes::copy_from_slice(data);
    let Ok(mut parcel) = Parcel::read(&bytes, &schema) else { return };
    let rows = parcel.rows();
    let room = &mut ResultBuffer::default();
    let Ok(whole) = parcel.next(rows, room) else { return };
    for column in whole.columns() {
        column.to_data().validate_full().expect("decoded values are sound");
    }
    let mut again = Parcel::read(&bytes, &schema).expect("it was read before");
    let part = rows.div_ceil(2);
    // The lengths of single strings may contradict their codes even if all of them together decode.
    if let (Ok(first), Ok(second)) = (again.next(part, room), again.next(part, room)) {
        assert!(same(&whole.slice(0, part), &first) && same(&whole.slice(part, rows - part), &second));
    }
    let pack = |column| Arc::new(pack_array(column).expect("what was decoded can be packed"));
    let chunks: Vec<_> = whole.columns().iter().map(pack).collect();
    let again = Bytes::from(pack_chunks(rows, &chunks).concat());
    let mut again = Parcel::read(&again, &schema).expect("what we write, we read");
    let again = again.next(rows, room).expect("all rows can be decoded again");
    assert!(same(&whole, &again));
}

fn same(before: &RecordBatch, after: &RecordBatch) -> bool {
    // Floats may be NaN, which does not equal itself, so that they are not compared.
    let floats = |column: &ArrayRef| *column.data_type() == arrow_schema::DataType::Float64;
    before.num_rows() == after.num_rows()
        && before
            .columns()
            .iter()
            .zip(after.columns())
            .all(|(before, after)| before == after || floats(before))
}
