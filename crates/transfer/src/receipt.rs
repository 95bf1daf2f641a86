//! The slot for the receipt (execution statistics) of a program that may still be running.

use farpool_model::Receipt;
use parking_lot::Mutex;
use std::sync::Arc;

/// A slot for the execution statistics of a program (see [`Receipt`]). It is empty until the program has ended. Clones
/// share the slot.
#[derive(Clone, Debug, Default)]
pub struct ReceiptHandle(Arc<Mutex<Option<Receipt>>>);

impl ReceiptHandle {
    /// Creates an empty slot.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the receipt (execution statistics, see [`Receipt`]), or `None` while it is not available: at the latest
    /// it is there when the last result stream has ended without error. Does not block.
    pub fn get(&self) -> Option<Receipt> {
        self.0.lock().clone()
    }

    /// Stores the execution statistics; for implementations of [`crate::Pool`].
    pub fn set(&self, receipt: Receipt) {
        *self.0.lock() = Some(receipt);
    }
}
