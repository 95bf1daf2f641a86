//! Opens data directories whose files hold untrusted bytes behind right checksums.

use crate::log::mended;
use arrow_array::Array;
use farpool_disk::{
    Codec, Directory, Faults, Packing, SegmentWriter, SimulatedDirectory, compressing, write_sealed,
};
use farpool_memory::{Pool, PoolConfig};
use farpool_model::Result;
use farpool_store::{Background, Catalog, Chore, Helpers, check_data};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// What a section of the input is put into; other kinds are parts of a segment.
const MANIFEST: u8 = 0;
const RECORD: u8 = 1;

/// The format of manifests.
const FORMAT: u32 = 1;

/// Opens a data directory with these contents. One that opens is read as a whole, and has the same tables when it is
/// closed and opened again.
pub fn data_directory(data: &[u8]) {
    let directory = build(data);
    // No room for further files of the log, which are large.
    directory.set_faults(Faults { fails_after: None, capacity: Some(16 << 20) });
    let checked = check_data(&*directory);
    let catalog = catalog();
    let opened = catalog.open(Arc::clone(&directory) as Arc<dyn Directory>, 1);
    assert!(opened.is_err() || checked.is_ok(), "what opens is found to be whole: {checked:?}");
    if opened.is_err() {
        return;
    }
    let before = contents(&catalog);
    catalog.close().expect("nothing fails here");
    drop(catalog);
    let again = self::catalog();
    again.open(directory, 1).expect("what was closed can be opened");
    assert!(contents(&again) == before, "other tables are there again");
}

/// Tables by name, with their rows and damaged chunks.
fn contents(catalog: &Arc<Catalog>) -> BTreeMap<(String, String), (u64, usize)> {
    let mut all = BTreeMap::new();
    for tenant in catalog.tenant_names() {
        for table in catalog.tables(&tenant) {
            let (_, table_data) = catalog.get(&tenant, &table.name).expect("a table that is listed is there");
            let mut damaged = 0;
            for group in &table_data.row_groups {
                for chunk in &group.chunks {
                    match chunk.decode(0..group.rows) {
                        Ok(values) => values.to_data().validate_full().expect("decoded values are sound"),
                        Err(_) => damaged += 1,
                    }
                }
            }
            all.insert((tenant.as_str().to_string(), table.name.as_str().to_string()), (table.rows, damaged));
        }
    }
    all
}

/// A directory with a manifest, a log of the records, and one segment of the parts, compressed as the length of the input
/// says.
fn build(mut data: &[u8]) -> Arc<SimulatedDirectory> {
    let directory = SimulatedDirectory::new();
    let way = Codec::ALL.get(data.len() % 4).map_or(Packing::None, |codec| Packing::By(*codec));
    let mut payload = Vec::new();
    let (mut records, mut manifest) = (0_u32, Vec::new());
    let mut parts: BTreeMap<u64, (Vec<u8>, Vec<u8>)> = BTreeMap::new();
    while let Some(([kind, low, high], rest)) = data.split_first_chunk::<3>() {
        let (bytes, rest) = rest.split_at(usize::from(u16::from_le_bytes([*low, *high])).min(rest.len()));
        data = rest;
        match kind % 3 {
            MANIFEST => manifest = bytes.to_vec(),
            RECORD => {
                payload.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
                payload.extend_from_slice(bytes);
                records += 1;
            }
            _ => {
                let Some((number, bytes)) = bytes.split_first_chunk::<8>() else { continue };
                let Some((length, bytes)) = bytes.split_first_chunk::<2>() else { continue };
                let (head, data) = bytes.split_at(usize::from(u16::from_le_bytes(*length)).min(bytes.len()));
                parts.insert(u64::from_le_bytes(*number), (head.to_vec(), data.to_vec()));
            }
        }
    }
    write_sealed(&*directory, "manifest-000000000001", FORMAT, &manifest).expect("nothing fails here");
    let file = directory.create("log-000000000001").expect("there is none of the name");
    file.write_at(&mended(&log_bytes(records, &payload)), 0).expect("nothing fails here");
    let mut writer =
        SegmentWriter::create(compressing(directory.clone(), way), 1).expect("nothing fails here");
    for (number, (head, data)) in parts {
        writer.add(number, head, data.len(), |out| out.extend_from_slice(&data)).expect("nothing fails here");
    }
    writer.finish().expect("nothing fails here");
    directory
}

/// A file of a log with one batch, without checksums (`crates/disk/src/log/format.rs`).
fn log_bytes(records: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = b"farpool\n\x01\0\0\0\0\0\0\0".to_vec();
    [1_u64, 1, 0, 0].iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
    bytes.resize(512, 0);
    if records > 0 {
        bytes.extend_from_slice(b"fplb\0\0\0\0");
        [1_u64, 1].iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        bytes.extend_from_slice(&records.to_le_bytes());
        bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes.resize(512 + 40, 0);
        bytes.extend_from_slice(payload);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes
}

/// A catalog over a pool that all inputs share, one after the other.
pub fn catalog() -> Arc<Catalog> {
    static POOL: OnceLock<Arc<Pool>> = OnceLock::new();
    let config = || PoolConfig { bytes_limit: 256 << 20 };
    let pool = POOL.get_or_init(|| Pool::new(config()).expect("a small pool can be made"));
    let catalog = Arc::new(Catalog::new(Arc::clone(pool), Arc::new(Alone), Arc::new(Idle)));
    catalog.close_taps();
    catalog
}

/// No threads beside the caller's.
#[derive(Debug)]
struct Alone;

impl Helpers for Alone {
    fn threads_max(&self) -> usize {
        1
    }

    fn run(&self, _threads: usize, work: &(dyn Fn() + Sync)) -> Result<()> {
        work();
        Ok(())
    }
}

/// Does no background work.
#[derive(Debug)]
struct Idle;

impl Background for Idle {
    fn submit(&self, _chore: Chore) {}

    fn rows_came(&self) {}
}

/// Inputs made of directories.
#[cfg(test)]
pub(crate) mod seeds {
    use super::{FORMAT, MANIFEST, RECORD};
    use farpool_disk::{Directory, Log, Segment, read_sealed, segment_number};
    use farpool_model::Result;

    /// Writes sections as input for [`super::data_directory`]: the kind, the length, and the bytes of each.
    fn section(kind: u8, bytes: &[u8], out: &mut Vec<u8>) {
        out.push(kind);
        out.extend_from_slice(&u16::try_from(bytes.len()).expect("a short section").to_le_bytes());
        out.extend_from_slice(bytes);
    }

    /// The files of a directory as input for [`super::data_directory`].
    pub fn directory_bytes(directory: &dyn Directory) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        let names = directory.names().expect("a simulated directory lists its files");
        let manifest = names.iter().find(|name| name.starts_with("manifest")).expect("there is a manifest");
        section(MANIFEST, &read_sealed(directory, manifest, FORMAT)?, &mut out);
        Log::read(directory, 0, &mut |_, record| {
            section(RECORD, record, &mut out);
            Ok(())
        })?;
        for number in names.iter().filter_map(|name| segment_number(name)) {
            let segment = Segment::open(directory, number)?;
            for (number, part) in segment.parts() {
                let mut bytes = number.to_le_bytes().to_vec();
                bytes.extend_from_slice(
                    &u16::try_from(part.head().expect("nobody changes it").len())
                        .expect("a short head")
                        .to_le_bytes(),
                );
                bytes.extend_from_slice(&part.head().expect("nobody changes it"));
                let mut data = vec![0; part.bytes as usize];
                segment.read(part, &mut data)?;
                bytes.extend_from_slice(&data);
                section(2, &bytes, &mut out);
            }
        }
        Ok(out)
    }
}
