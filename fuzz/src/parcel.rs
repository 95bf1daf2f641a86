//! Packed rows of a result from anybody.

use crate::plan::table_schema;
use arrow_array::Array;
use bytes::Bytes;
use farpool_columns::{Parcel, pack_array, pack_chunks};
use std::sync::Arc;

/// Reads a parcel; one that comes out is decoded whole and in parts, and its rows come back when they are
/// packed again.
pub fn parcel_decoder(data: &[u8]) {
    let schema = table_schema();
    let Ok(parcel) = Parcel::read(&Bytes::copy_from_slice(data), &schema) else { return };
    let rows = parcel.rows();
    let whole = parcel.decode(0..rows).expect("all rows can be decoded");
    for column in whole.columns() {
        column.to_data().validate_full().expect("decoded values are sound");
    }
    let half = parcel.decode(rows / 2..rows).expect("the second half can be decoded");
    assert_eq!(half.num_rows(), rows - rows / 2);
    let pack = |column| Arc::new(pack_array(column).expect("what was decoded can be packed"));
    let chunks: Vec<_> = whole.columns().iter().map(pack).collect();
    let again = Bytes::from(pack_chunks(rows, &chunks).concat());
    let again = Parcel::read(&again, &schema).expect("what we write, we read");
    let again = again.decode(0..rows).expect("all rows can be decoded again");
    for (before, after) in whole.columns().iter().zip(again.columns()) {
        // Floats may be NaN, which does not equal itself.
        assert!(before == after || *before.data_type() == arrow_schema::DataType::Float64);
    }
}
