//! Connects the list of running programs with the stream on which a program's result is sent, so that a listed program
//! can be stopped, and its progress shown.

use super::connection::Connection;
use crate::queries::Delivery;
use farpool_model::Error;
use std::sync::{Arc, Weak};

/// The stream on which the result of a program is sent.
pub(super) struct StreamDelivery {
    connection: Weak<Connection>,
    stream: u32,
}

impl StreamDelivery {
    /// Creates the delivery of a result on `stream` of a connection, which it refers to weakly.
    pub fn new(connection: &Arc<Connection>, stream: u32) -> Self {
        StreamDelivery { connection: Arc::downgrade(connection), stream }
    }
}

impl Delivery for StreamDelivery {
    fn stop(&self, error: Error) -> bool {
        self.connection.upgrade().is_some_and(|connection| connection.give_up(self.stream, error))
    }

    fn progress(&self) -> Option<(u64, bool)> {
        let connection = self.connection.upgrade()?;
        Some(connection.outbox.with(|lanes| (lanes.bytes_total(self.stream), lanes.has_room(self.stream))))
    }
}
