//! A directory in memory that simulates loss of power, full disks and failing devices, for tests and the simulation.
//!
//! After a crash each sector that was written since the last sync of its file has the old bytes, the new ones, or a mix
//! of both, and each creation, rename and removal since the last sync of the directory is kept or undone, all drawn
//! from a seed. A failed sync loses the writes that it was to make durable, although reads still return them.

use crate::files::{Directory, File};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

/// Unit in which the simulated device writes.
const SECTOR_BYTES: usize = 512;

/// Faults that a [`SimulatedDirectory`] injects.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Number of writes and syncs until one fails with an I/O error; `None` for no failure.
    pub fails_after: Option<u64>,
    /// Total space of all files in bytes, including reserved space.
    pub capacity: Option<u64>,
    /// Number of reads until one fails with an I/O error; later reads succeed again.
    pub read_fails_after: Option<u64>,
}

/// A directory in memory that simulates loss of power and failing devices. Clones of the `Arc` share it.
#[derive(Debug)]
pub struct SimulatedDirectory {
    state: Arc<Mutex<SimulatedState>>,
}

#[derive(Debug, Default)]
struct SimulatedState {
    /// Contents of the files, by file number. A file keeps its number when it is renamed.
    files: BTreeMap<u64, Contents>,
    /// Files by name, as calls see them. The next field has the names as of the last sync of the directory.
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    files_made: u64,
    faults: Faults,
    /// Number of crashes so far. Handles that were opened before the last crash fail.
    life: u64,
}

#[derive(Clone, Debug, Default)]
struct Contents {
    /// Contents of the file as reads return them. The next field is the contents on the device, which survive a loss of
    /// power.
    bytes: Vec<u8>,
    durable: Vec<u8>,
    /// Indices of the sectors that the next sync writes.
    dirty: BTreeSet<usize>,
    /// Sectors of failed syncs, which no later sync writes.
    lost: BTreeSet<usize>,
    bytes_read: usize,
}

impl SimulatedDirectory {
    /// Creates an empty directory.
    pub fn new() -> Arc<SimulatedDirectory> {
        Arc::new(SimulatedDirectory { state: Arc::default() })
    }

    /// Sets the faults from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.state.lock().faults = faults;
    }

    /// Returns the faults that are still to come.
    pub fn faults(&self) -> Faults {
        self.state.lock().faults
    }

    /// Simulates a loss of power and a restart. `seed` determines which writes and names survive. Handles opened before
    /// the call fail from now on.
    pub fn crash(&self, seed: u64) {
        let mut random = Random(seed);
        let mut state = self.state.lock();
        let SimulatedState { files, names, durable_names, life, faults, .. } = &mut *state;
        *life += 1;
        (faults.fails_after, faults.read_fails_after) = (None, None);
        let mut kept = durable_names.clone();
        for name in names.keys().chain(durable_names.keys()) {
            if random.below(2) == 0 {
                match names.get(name) {
                    Some(file) => kept.insert(name.clone(), *file),
                    None => kept.remove(name),
                };
            }
        }
        files.values_mut().for_each(|file| file.crash(&mut random));
        files.retain(|number, _| kept.values().any(|kept| kept == number));
        *names = kept.clone();
        *durable_names = kept;
    }

    /// Returns the bytes read so far from files whose names begin with `prefix`.
    pub fn bytes_read(&self, prefix: &str) -> usize {
        let state = self.state.lock();
        let files = state.names.iter().filter(|(name, _)| name.starts_with(prefix));
        files.filter_map(|(_, number)| state.files.get(number)).map(|file| file.bytes_read).sum()
    }

    /// Inverts the bits of `mask` in one byte of a file, on the device and in the cache.
    ///
    /// # Panics
    /// If there is no such byte.
    pub fn flip(&self, name: &str, offset: usize, mask: u8) {
        let mut state = self.state.lock();
        let number = state.names[name];
        let file = state.files.get_mut(&number).expect("a name is one of a file");
        file.bytes[offset] ^= mask;
        file.durable[offset] ^= mask;
    }
}

impl Contents {
    fn crash(&mut self, random: &mut Random) {
        let bytes = if random.below(2) == 0 { self.bytes.len() } else { self.durable.len() };
        grow(&mut self.durable, bytes);
        let dirty = std::mem::take(&mut self.dirty);
        for sector in &dirty {
            let bytes = match random.below(4) {
                0 => 0,
                1 => random.below(SECTOR_BYTES as u64) as usize,
                _ => SECTOR_BYTES,
            };
            self.write_back(*sector, bytes);
        }
        self.bytes.resize(self.durable.len(), 0);
        // For all other sectors, reads return the contents of the device.
        for sector in dirty.into_iter().chain(std::mem::take(&mut self.lost)) {
            let start = sector * SECTOR_BYTES;
            let end = (start + SECTOR_BYTES).min(self.bytes.len());
            if start < end {
                self.bytes[start..end].copy_from_slice(&self.durable[start..end]);
            }
        }
    }

    fn write(&mut self, bytes: &[u8], offset: usize) {
        let end = offset + bytes.len();
        self.bytes[offset..end].copy_from_slice(bytes);
        self.dirty.extend(offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES));
    }

    fn sync(&mut self) {
        grow(&mut self.durable, self.bytes.len());
        std::mem::take(&mut self.dirty).into_iter().for_each(|sector| self.write_back(sector, SECTOR_BYTES));
    }

    /// Copies the first `bytes` bytes of a sector from the cached contents to the device, as far as the file reaches.
    fn write_back(&mut self, sector: usize, bytes: usize) {
        let start = sector * SECTOR_BYTES;
        let end = (start + bytes).min(self.bytes.len()).min(self.durable.len());
        if start < end {
            self.durable[start..end].copy_from_slice(&self.bytes[start..end]);
        }
    }
}

impl SimulatedState {
    /// Counts a write or sync, and fails if a fault is due.
    fn write(&mut self) -> io::Result<()> {
        match &mut self.faults.fails_after {
            Some(0) => Err(io::Error::other("simulated failure of the device")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Counts a read, and fails if a fault is due.
    fn read(&mut self) -> io::Result<()> {
        let after = self.faults.read_fails_after.take();
        self.faults.read_fails_after = after.and_then(|after| after.checked_sub(1));
        if after == Some(0) { Err(io::Error::other("simulated failure of a read")) } else { Ok(()) }
    }

    fn grow(&mut self, number: u64, bytes: usize) -> io::Result<()> {
        let used: usize = self.files.values().map(|file| file.bytes.len()).sum();
        let file = self.files.get_mut(&number).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let more = bytes.saturating_sub(file.bytes.len());
        if self.faults.capacity.is_some_and(|capacity| (used + more) as u64 > capacity) && more > 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let bytes = bytes.max(file.bytes.len());
        grow(&mut file.bytes, bytes);
        Ok(())
    }
}

/// Extends a file. Space reserved for a new file takes no physical memory until it is written.
fn grow(file: &mut Vec<u8>, bytes: usize) {
    match file.is_empty() {
        true => *file = vec![0; bytes],
        false => file.resize(bytes, 0),
    }
}

impl Directory for SimulatedDirectory {
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let mut state = self.state.lock();
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let number = state.files_made;
        state.files_made += 1;
        state.files.insert(number, Contents::default());
        state.names.insert(name.to_string(), number);
        Ok(Arc::new(SimulatedFile { state: self.state.clone(), number, life: state.life }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let state = self.state.lock();
        let number = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(SimulatedFile { state: self.state.clone(), number, life: state.life }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        let number = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.to_string(), number);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.names.remove(name).map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.state.lock().names.keys().cloned().collect())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.write()?;
        state.durable_names = state.names.clone();
        // Frees the space of files that have no name any more.
        let SimulatedState { files, names, .. } = &mut *state;
        files.retain(|number, _| names.values().any(|named| named == number));
        Ok(())
    }

    fn describe(&self) -> String {
        "a simulated directory".to_string()
    }
}

#[derive(Debug)]
struct SimulatedFile {
    state: Arc<Mutex<SimulatedState>>,
    number: u64,
    life: u64,
}

impl SimulatedFile {
    fn with<T>(&self, act: impl FnOnce(&mut SimulatedState) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.state.lock();
        if state.life != self.life {
            return Err(io::Error::other("the machine lost power since the file was opened"));
        }
        act(&mut state)
    }

    fn contents<'a>(&self, state: &'a mut SimulatedState) -> io::Result<&'a mut Contents> {
        state.files.get_mut(&self.number).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl File for SimulatedFile {
    fn bytes(&self) -> io::Result<u64> {
        self.with(|state| Ok(self.contents(state)?.bytes.len() as u64))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.with(|state| {
            state.read()?;
            let contents = self.contents(state)?;
            let range = offset as usize..offset as usize + buffer.len();
            buffer.copy_from_slice(contents.bytes.get(range).ok_or(io::ErrorKind::UnexpectedEof)?);
            contents.bytes_read += buffer.len();
            Ok(())
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.with(|state| {
            state.write()?;
            let offset = offset as usize;
            state.grow(self.number, offset + bytes.len())?;
            self.contents(state)?.write(bytes, offset);
            Ok(())
        })
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.with(|state| state.grow(self.number, bytes as usize))
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|state| {
            let synced = state.write();
            let contents = self.contents(state)?;
            match &synced {
                Ok(()) => contents.sync(),
                Err(_) => contents.lost.append(&mut contents.dirty),
            }
            synced
        })
    }
}

/// SplitMix64 (G. Steele et al., *Fast Splittable Pseudorandom Number Generators*, OOPSLA 2014).
pub(crate) struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number less than `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
