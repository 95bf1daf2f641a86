//! A log of changes that also keeps a copy of each appended record in memory, for tests and simulations that apply the
//! records a second time.

use crate::change_log::ChangeLog;
use crate::log::{Log, Observer, ReservePolicy};
use farpool_model::Result;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Copies in memory of the records that were appended to a log, by sequence number. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Records(Arc<Mutex<BTreeMap<u64, Vec<u8>>>>);

impl Records {
    /// Returns the record with this sequence number; `None` if none was appended.
    pub fn get(&self, number: u64) -> Option<Vec<u8>> {
        self.0.lock().get(&number).cloned()
    }

    /// Returns the number of records.
    pub fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// Removes the records from `number` on, which the log has lost in a crash. The log gives their sequence numbers to
    /// other records.
    pub fn forget_from(&self, number: u64) {
        self.0.lock().split_off(&number);
    }

    /// Returns `log` as a change log that also adds each appended record to these records.
    pub fn of(&self, log: Log) -> Box<dyn ChangeLog> {
        Box::new(RecordedLog { log, records: self.clone() })
    }
}

#[derive(Debug)]
struct RecordedLog {
    log: Log,
    records: Records,
}

impl ChangeLog for RecordedLog {
    fn observe(&self, observer: Box<dyn Observer>) {
        self.log.observe(observer);
    }

    fn try_append(&self, record: &[u8], reserve_policy: ReservePolicy) -> Result<Option<u64>> {
        let number = self.log.try_append(record, reserve_policy)?;
        number.map(|number| self.records.0.lock().insert(number, record.to_vec()));
        Ok(number)
    }

    fn room(&self) -> u64 {
        self.log.room()
    }

    fn make_room(&self, bytes: usize, reserve_policy: ReservePolicy) -> Result<()> {
        self.log.make_room(bytes, reserve_policy)
    }

    fn commit(&self, number: u64) -> Result<()> {
        self.log.commit(number)
    }

    fn next_record(&self) -> u64 {
        self.log.next_record()
    }

    fn bytes_written(&self) -> u64 {
        self.log.bytes_written()
    }

    fn write_next(&self) -> bool {
        self.log.write_next()
    }

    fn keep_marked(&self) {
        self.log.keep_marked();
    }

    fn records_marked(&self) -> Option<u64> {
        self.log.records_marked()
    }

    fn mark(&self) -> Result<()> {
        self.log.mark()
    }

    fn turn_over(&self) -> Result<()> {
        self.log.turn_over()
    }

    fn forget_before(&self, number: u64) -> Result<()> {
        self.log.forget_before(number)
    }

    fn stop(&self) {
        self.log.stop();
    }

    fn close(&self) -> Result<()> {
        self.log.close()
    }
}
