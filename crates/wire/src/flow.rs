//! Credit-based flow control for each stream and direction: a sender of batches pauses until the receiver has consumed
//! enough of those it has sent. Therefore a slow client slows down only its own query.
//!
//! Rules: a stream starts with [`limits::STREAM_WINDOW_BYTES`] of credit. Only messages with batches (of rows) need
//! credit. A sender may begin a batch while its credit is above zero, and then subtracts the whole batch: credit may
//! become negative once, so that a batch larger than the window needs no special case. The receiver returns credit, in
//! `Credit` messages, for the bytes that it has consumed.
//!
//! Example: with a window of 100 bytes, a batch of 250 may be sent, and leaves a credit of -150. The next batch waits
//! until the receiver has returned more than 150.

use farpool_model::{Error, Result, cast, limits};

/// The sender's side of flow control: how many bytes it may still send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    credit: i64,
}

/// The receiver's side of flow control: when to return credit, and how much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    taken: u64,
}

impl Default for Window {
    fn default() -> Self {
        Window { credit: limits::STREAM_WINDOW_BYTES as i64 }
    }
}

impl Window {
    /// Returns the window of a new stream.
    pub fn new() -> Self {
        Window::default()
    }

    /// Returns whether another batch may be sent now.
    pub fn is_open(&self) -> bool {
        self.credit > 0
    }

    /// Subtracts a batch of `bytes_on_wire` bytes that was sent.
    pub fn sent(&mut self, bytes_on_wire: u64) {
        self.credit = self.credit.saturating_sub_unsigned(bytes_on_wire);
    }

    /// Adds credit that the receiver has returned.
    ///
    /// # Errors
    /// `Corrupt` if the credit exceeds [`limits::CREDIT_BYTES_MAX`].
    pub fn granted(&mut self, bytes: u64) -> Result<()> {
        match self.credit.checked_add_unsigned(bytes) {
            Some(credit)
                if bytes <= limits::CREDIT_BYTES_MAX && credit <= limits::CREDIT_BYTES_MAX as i64 =>
            {
                self.credit = credit;
                Ok(())
            }
            _ => {
                let most = limits::CREDIT_BYTES_MAX;
                Err(Error::corrupt(format!("credit for {bytes} bytes is beyond the limit of {most}")))
            }
        }
    }
}

impl Grants {
    /// Creates the receiver's side for a new stream.
    pub fn new() -> Self {
        Grants::default()
    }

    /// Counts a batch of `bytes_on_wire` bytes that the reader of the stream has taken. Returns the credit to return to
    /// the sender if it amounts to half a window by now; otherwise `None`, and the credit accumulates.
    pub fn taken(&mut self, bytes_on_wire: u64) -> Option<u64> {
        self.taken = self.taken.saturating_add(bytes_on_wire);
        (self.taken >= cast::u64_from(limits::STREAM_WINDOW_BYTES / 2))
            .then(|| std::mem::take(&mut self.taken))
    }
}
