//! The receipt of a program that may still be running.

use farpool_model::Receipt;
use parking_lot::Mutex;
use std::sync::Arc;

/// Where the receipt of a program appears once it has ended. Clones share the place.
#[derive(Clone, Debug, Default)]
pub struct ReceiptHandle(Arc<Mutex<Option<Receipt>>>);

impl ReceiptHandle {
    /// A handle without a receipt yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The receipt, once the last stream of the execution has ended without error.
    pub fn get(&self) -> Option<Receipt> {
        self.0.lock().clone()
    }

    /// Puts the receipt in place; for implementations of [`crate::Pool`].
    pub fn set(&self, receipt: Receipt) {
        *self.0.lock() = Some(receipt);
    }
}
