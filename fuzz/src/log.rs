//! Fuzz body that opens logs whose files contain untrusted bytes.

use farpool_disk::{Directory, Faults, Log, ReservePolicy, SimulatedDirectory};
use std::sync::Arc;

/// Maximal number of records that are kept for comparison: batches of empty records are large.
const RECORDS_MAX: usize = 1 << 20;

/// Opens a log of one or two files, the first of which ends at the offset in the first two bytes. Checksums are
/// corrected where possible, so that corruption that they would detect is decoded as well. A log that opens must return
/// the same records again and accept another one.
pub fn log_reader(data: &[u8]) {
    let Some((split, data)) = data.split_first_chunk::<2>() else { return };
    let (first, second) = data.split_at(usize::from(u16::from_le_bytes(*split)).min(data.len()));
    let directory = SimulatedDirectory::new();
    for (name, bytes) in [("log-000000000001", first), ("log-000000000002", second)] {
        if !bytes.is_empty() {
            let file = directory.create(name).expect("there is none of the name");
            file.write_at(&mended(bytes), 0).expect("nothing fails here");
        }
    }
    // Further log files do not fit on the simulated disk, because they are large and creating them would take long.
    directory.set_faults(Faults { capacity: Some(1 << 20), ..Faults::default() });
    let open = || {
        let mut records = Vec::new();
        let mut keep = |_, record: &[u8]| {
            if records.len() < RECORDS_MAX {
                records.push(record.to_vec());
            }
            Ok(())
        };
        let directory = Arc::clone(&directory) as Arc<dyn Directory>;
        Log::open(directory, Some(1), 0, &mut keep).map(|(log, _)| (log, records))
    };
    let Ok((log, mut records)) = open() else { return };
    let number = log.append(b"one more", ReservePolicy::Normal).expect("there is room");
    log.commit(number).expect("nothing fails here");
    log.close().expect("nothing fails here");
    records.push(b"one more".to_vec());
    let (_, again) = open().expect("what we write, we read");
    assert!(again.len() >= RECORDS_MAX || again == records, "other records are read again");
}

/// Returns the bytes with valid checksums in everything that looks like a header of a file or a batch
/// (`crates/disk/src/log/format.rs`).
pub(crate) fn mended(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let put = |bytes: &mut [u8], at: usize, checksum: u32| {
        bytes[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
    };
    if bytes.len() >= 52 && bytes.starts_with(b"farpool\n") {
        let checksum = crc32fast::hash(&bytes[..48]);
        put(&mut bytes, 48, checksum);
    }
    for at in (0..bytes.len()).step_by(512) {
        let batch = &mut bytes[at..];
        if batch.len() >= 40 && batch.starts_with(b"fplb") {
            let length = u32::from_le_bytes([batch[28], batch[29], batch[30], batch[31]]);
            if let Some(payload) = batch[40..].get(..length as usize) {
                let checksum = crc32fast::hash(payload);
                put(batch, 32, checksum);
            }
            let checksum = crc32fast::hash(&batch[8..40]);
            put(batch, 4, checksum);
        }
    }
    bytes
}
