//! The receipt of a program that may still be running.

use farpool_model::Receipt;
use parking_lot::Mutex;
use std::sync::Arc;

/// A slot for the receipt of a program, filled once the program has ended. Clones share the slot.
#[derive(Clone, Debug, Default)]
pub struct ReceiptHandle(Arc<Mutex<Option<Receipt>>>);

impl ReceiptHandle {
    /// Creates a handle without a receipt.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the receipt, once the last stream of the execution has ended without error.
    pub fn get(&self) -> Option<Receipt> {
        self.0.lock().clone()
    }

    /// Stores the receipt; for implementations of [`crate::Pool`].
    pub fn set(&self, receipt: Receipt) {
        *self.0.lock() = Some(receipt);
    }
}
