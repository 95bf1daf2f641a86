//! Fuzz body that reads untrusted HyperLogLogs in the format of Redis.

use farpool_statistics::redis_hll::{Corrupt, Reader, Registers, Writer};

/// Reads, counts, merges and changes a value: all operations agree on whether it is corrupt, and the merged value has
/// the same registers.
pub fn hll_decoder(data: &[u8]) {
    let Some(value) = Reader::new(data) else { return };
    let mut registers = Registers::new();
    let read = value.merge_into(&mut registers);
    assert_eq!(value.count(), read.map(|()| registers.count()));
    let mut merged = Writer::new();
    assert_eq!(merged.merge(value), read);
    if read.is_ok() {
        let again = Reader::new(merged.bytes()).expect("what we write, we read");
        assert_eq!((again.count(), again.is_dense() || !value.is_dense()), (Ok(registers.count()), true));
    }
    let Ok(mut changed) = Writer::of(value) else {
        assert_eq!(read, Err(Corrupt));
        return;
    };
    if changed.add(data).is_err() {
        assert_eq!(read, Err(Corrupt));
    }
}
