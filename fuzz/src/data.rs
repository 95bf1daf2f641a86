//! Fuzz body that opens data directories whose files contain untrusted bytes with valid checksums.

use crate::log::mended;
use arrow_array::Array;
use farpool_catalog::{Background, Catalog, Chore, HelperThreads, check_data};
use farpool_disk::{
    Codec, CompressionPolicy, Directory, Faults, Log, NewPart, ReservePolicy, SegmentWriter,
    SimulatedDirectory, TableKey, WrappedKey, compressing, segment_name, unlock, write_sealed,
};
use farpool_memory::{Pool, PoolConfig};
use farpool_model::Result;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// The kinds of the input's sections. A directory whose first section contains keys is encrypted; the wrapped keys of a
/// tenant and a table apply to the parts that follow.
const MANIFEST: u8 = 0;
const RECORD: u8 = 1;
const PART: u8 = 2;
const KEYS: u8 = 3;
const KINDS: u8 = 4;

/// The wrapped key of an encrypted directory, always the same so that keys in the input can be valid.
const DIRECTORY_KEYS: &[u8] = include_bytes!("directory.keys");

/// Bytes of a log file without records.
const LOG_BYTES: usize = 8 << 10;

/// Version of the format of manifests.
const FORMAT: u32 = 2;

/// Origin number in the ids that a catalog gives which receives the records of another node.
const ORIGIN: u16 = 2;

/// Opens a data directory with the contents that `data` describes. If it opens, all of it is read, and it has the same
/// tables after it is closed and opened again.
pub fn data_directory(data: &[u8]) {
    let (device, directory) = build(data);
    // Further log files do not fit on the simulated disk, because they are large and creating them would take long.
    device.set_faults(Faults { capacity: Some(16 << 20), ..Faults::default() });
    let checked = check_data(&*directory);
    let catalog = catalog();
    let opened = catalog.open(Arc::clone(&directory), 1);
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

/// Applies the records of a data directory with the contents that `data` describes to an empty catalog that has its
/// segment, as records that another node has made. A record that does not fit is refused.
pub fn received_records(data: &[u8]) {
    let (device, from) = build(data);
    let mut records = Vec::new();
    let read = Log::read(&*from, 0, &mut |_, record| {
        records.push(record.to_vec());
        Ok(())
    });
    if read.is_err() {
        return;
    }
    let (to, directory) = directory(from.keys().is_some());
    let catalog = catalog();
    catalog.open_of(directory, 2, ORIGIN).expect("an empty directory is opened");
    copy(&device, &to, &segment_name(1));
    for record in records {
        let _ = catalog.apply_record(&record).and_then(|commit| commit.wait());
    }
    contents(&catalog);
}

fn copy(from: &SimulatedDirectory, to: &SimulatedDirectory, name: &str) {
    let file = from.open(name).expect("it was written");
    let mut bytes = vec![0; file.bytes().expect("nothing fails here") as usize];
    file.read_at(&mut bytes, 0).expect("nothing fails here");
    to.create(name).and_then(|file| file.write_at(&bytes, 0)).expect("nothing fails here");
}

/// Returns the tables by name, with their numbers of rows and corrupted chunks.
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

/// Creates an empty directory; returns its device and the opened directory.
pub fn directory(is_encrypted: bool) -> (Arc<SimulatedDirectory>, Arc<dyn Directory>) {
    let device = SimulatedDirectory::new();
    if !is_encrypted {
        return (Arc::clone(&device), device);
    }
    device.create("keys").and_then(|file| file.write_at(DIRECTORY_KEYS, 0)).expect("nothing fails here");
    let opened = unlock(Arc::clone(&device) as Arc<dyn Directory>, Some(&crate::keys::master()), None);
    (device, opened.expect("the key fits"))
}

/// A part of a segment from a section of the input.
struct PartOf {
    head: Vec<u8>,
    data: Vec<u8>,
    key: Option<Arc<TableKey>>,
}

/// Reads the wrapped encryption key of a table from a section of the input.
fn table_key(directory: &dyn Directory, bytes: &[u8]) -> Option<Arc<TableKey>> {
    let (tenant, table) = bytes.split_at_checked(bytes.len() / 2)?;
    let tenant = directory.keys()?.tenant(WrappedKey::from_bytes(tenant).ok()?).ok()?;
    tenant.table(WrappedKey::from_bytes(table).ok()?).ok()
}

/// Builds a directory with a manifest, a log of the records, and one segment of the parts, compressed depending on the
/// length of the input.
fn build(mut data: &[u8]) -> (Arc<SimulatedDirectory>, Arc<dyn Directory>) {
    let is_encrypted = data.first().is_some_and(|kind| kind % KINDS == KEYS);
    let (device, directory) = directory(is_encrypted);
    let way =
        Codec::ALL.get(data.len() % 4).map_or(CompressionPolicy::None, |codec| CompressionPolicy::By(*codec));
    let (mut records, mut manifest, mut key) = (Vec::new(), Vec::new(), None);
    let mut parts: BTreeMap<u64, PartOf> = BTreeMap::new();
    while let Some(([kind, low, high], rest)) = data.split_first_chunk::<3>() {
        let (bytes, rest) = rest.split_at(usize::from(u16::from_le_bytes([*low, *high])).min(rest.len()));
        data = rest;
        match kind % KINDS {
            MANIFEST => manifest = bytes.to_vec(),
            RECORD => records.push(bytes),
            PART => {
                let Some((number, bytes)) = bytes.split_first_chunk::<8>() else { continue };
                let Some((length, bytes)) = bytes.split_first_chunk::<2>() else { continue };
                let (head, data) = bytes.split_at(usize::from(u16::from_le_bytes(*length)).min(bytes.len()));
                let (head, data) = (head.to_vec(), data.to_vec());
                parts.insert(u64::from_le_bytes(*number), PartOf { head, data, key: key.clone() });
            }
            _ => key = table_key(&*directory, bytes),
        }
    }
    write_sealed(&*directory, "manifest-000000000001", FORMAT, &manifest).expect("nothing fails here");
    write_log(&device, &directory, is_encrypted, &records);
    let mut writer =
        SegmentWriter::create(compressing(directory.clone(), way), 1).expect("nothing fails here");
    for (number, PartOf { head, data, key }) in parts {
        let part = NewPart { number, head, bytes: data.len(), key: key.as_ref(), may_be_packed: true };
        writer.add(part, |out| out.extend_from_slice(&data)).expect("nothing fails here");
    }
    writer.finish().expect("nothing fails here");
    (device, directory)
}

/// Writes a log of these records, as one batch.
fn write_log(
    device: &Arc<SimulatedDirectory>,
    directory: &Arc<dyn Directory>,
    is_encrypted: bool,
    records: &[&[u8]],
) {
    let create = |bytes: &[u8]| {
        let file = device.create("log-000000000001").expect("there is none of the name");
        file.write_at(bytes, 0).expect("nothing fails here");
    };
    if !is_encrypted {
        let lengths = records.iter().map(|record| (record.len() as u32).to_le_bytes());
        let payload: Vec<u8> =
            lengths.zip(records).flat_map(|(length, record)| [&length, *record].concat()).collect();
        return create(&mended(&log_bytes(records.len() as u32, &payload)));
    }
    // A log whose space is reserved takes long to create.
    static EMPTY: OnceLock<Vec<u8>> = OnceLock::new();
    create(EMPTY.get_or_init(empty_log));
    let log = Log::open(Arc::clone(directory), None, 0, &mut |_, _| Ok(())).expect("it has no records").0;
    let append = |record: &&[u8]| log.append(record, ReservePolicy::Normal).expect("there is room");
    if let Some(last) = records.iter().map(append).last() {
        log.commit(last).expect("nothing fails here");
    }
}

/// Returns the beginning of the log of an encrypted directory, without records.
fn empty_log() -> Vec<u8> {
    let (device, directory) = directory(true);
    Log::open_sized(directory, LOG_BYTES as u64, Some(1), 0, &mut |_, _| Ok(())).expect("nothing fails here");
    let mut bytes = vec![0; LOG_BYTES];
    let file = device.open("log-000000000001").expect("it was made");
    file.read_at(&mut bytes, 0).expect("it is longer");
    bytes
}

/// Returns a log file with one batch, without checksums (`crates/disk/src/log/format.rs`).
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

/// Returns a catalog over a pool that all inputs share in succession.
pub fn catalog() -> Arc<Catalog> {
    static POOL: OnceLock<Arc<Pool>> = OnceLock::new();
    let config = || PoolConfig { bytes_limit: 256 << 20 };
    let pool = POOL.get_or_init(|| Pool::new(config()).expect("a small pool can be made"));
    let catalog = Arc::new(Catalog::new(Arc::clone(pool), Arc::new(Alone), Arc::new(Idle)));
    catalog.close_taps();
    catalog
}

/// Helper threads of a catalog: none, so that work runs on the calling thread.
#[derive(Debug)]
struct Alone;

impl HelperThreads for Alone {
    fn threads_max(&self) -> usize {
        1
    }

    fn run(&self, _threads: usize, work: &(dyn Fn() + Sync)) -> Result<()> {
        work();
        Ok(())
    }
}

/// Background work of a catalog, which is never done.
#[derive(Debug)]
struct Idle;

impl Background for Idle {
    fn submit(&self, _chore: Chore) {}

    fn rows_came(&self) {}
}

/// Inputs generated from directories.
#[cfg(test)]
pub(crate) mod seeds {
    use super::{FORMAT, KEYS, MANIFEST, PART, RECORD};
    use farpool_cipher::WRAPPED_KEY_BYTES;
    use farpool_disk::{
        Directory, Log, Part, Segment, SimulatedDirectory, TableKey, Tier, WrappedKey, read_sealed,
        segment_number, unlock,
    };
    use farpool_model::Result;
    use std::sync::Arc;

    /// Returns the file with the wrapped key of a new encrypted directory.
    pub fn new_keys() -> Vec<u8> {
        let device = SimulatedDirectory::new();
        unlock(device.clone(), Some(&crate::keys::master()), Some(Tier::Standard)).expect("it is empty");
        let file = device.open("keys").expect("it was made");
        let mut bytes = vec![0; file.bytes().expect("nothing fails here") as usize];
        file.read_at(&mut bytes, 0).expect("nothing fails here");
        bytes
    }

    /// Writes sections as input for [`super::data_directory`]: the kind, the length, and the bytes of each.
    fn section(kind: u8, bytes: &[u8], out: &mut Vec<u8>) {
        out.push(kind);
        out.extend_from_slice(&u16::try_from(bytes.len()).expect("a short section").to_le_bytes());
        out.extend_from_slice(bytes);
    }

    /// Returns the encryption keys of tables that are wrapped anywhere in `bytes`.
    fn table_keys(directory: &dyn Directory, bytes: &[u8]) -> Vec<Arc<TableKey>> {
        let Some(keys) = directory.keys() else { return Vec::new() };
        let wrapped = bytes.windows(WRAPPED_KEY_BYTES).filter_map(|bytes| WrappedKey::from_bytes(bytes).ok());
        let wrapped: Vec<WrappedKey> = wrapped.collect();
        let tenants: Vec<_> = wrapped.iter().filter_map(|key| keys.tenant(key.clone()).ok()).collect();
        let of_tenant = |key: &WrappedKey| tenants.iter().find_map(|tenant| tenant.table(key.clone()).ok());
        wrapped.iter().filter_map(of_tenant).collect()
    }

    /// Returns the files of a directory as input for [`super::data_directory`].
    pub fn directory_bytes(directory: &dyn Directory) -> Result<Vec<u8>> {
        let (mut out, mut all) = (Vec::new(), Vec::new());
        if directory.keys().is_some() {
            section(KEYS, &[], &mut out);
        }
        let names = directory.names().expect("a simulated directory lists its files");
        let manifest = names.iter().find(|name| name.starts_with("manifest")).expect("there is a manifest");
        let manifest = read_sealed(directory, manifest, FORMAT)?;
        section(MANIFEST, &manifest, &mut out);
        all.extend_from_slice(&manifest);
        // Records that were dropped from the log become empty ones here.
        let is_there = |from: &u64| Log::read(directory, *from, &mut |_, _| Ok(())).is_ok();
        let from = (0..100).find(is_there).expect("there is a log");
        (0..from).for_each(|_| section(RECORD, &[], &mut out));
        Log::read(directory, from, &mut |_, record| {
            all.extend_from_slice(record);
            section(RECORD, record, &mut out);
            Ok(())
        })?;
        let keys = table_keys(directory, &all);
        for number in names.iter().filter_map(|name| segment_number(name)) {
            let segment = Segment::open(directory, number)?;
            for (number, part) in segment.parts() {
                let is_its =
                    |key: &&Arc<TableKey>| part.is_of_table() && segment.head(part, Some(*key)).is_ok();
                let key = keys.iter().find(is_its);
                let wrapped = key.map(|key| [key.tenant().wrapped().to_bytes(), key.wrapped().to_bytes()]);
                if directory.keys().is_some() {
                    section(KEYS, &wrapped.map_or(Vec::new(), |keys| keys.concat()), &mut out);
                }
                section(PART, &part_bytes(&segment, (number, part), key)?, &mut out);
            }
        }
        Ok(out)
    }

    fn part_bytes(
        segment: &Segment,
        (number, part): (u64, &Part),
        key: Option<&Arc<TableKey>>,
    ) -> Result<Vec<u8>> {
        let head = segment.head(part, key)?;
        let mut bytes = number.to_le_bytes().to_vec();
        bytes.extend_from_slice(&u16::try_from(head.len()).expect("a short head").to_le_bytes());
        bytes.extend_from_slice(&head);
        let mut data = vec![0; part.bytes as usize];
        segment.read(part, key, &mut data)?;
        bytes.extend_from_slice(&data);
        Ok(bytes)
    }
}
