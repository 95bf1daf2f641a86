//! The turns of connections on a thread that reads sockets: how much one connection may do before it yields to others.
//!
//! A client that sends without pause never makes the thread wait, and would occupy it. Turns are measured in bytes and
//! frames instead of time, so that the same bytes always make the same turns.

use farpool_wire::{FrameHeader, FrameKind};

/// Cost of a whole turn of a connection, in bytes. Reason for 256 KiB: one read of the socket, and at most 64 frames;
/// with shorter turns, the thread would switch between loads all the time.
const TURN_BYTES: usize = 256 << 10;

/// Cost of a frame in addition to its bytes. Reason for 4 KiB: handling the smallest frame takes about as long as
/// copying so many bytes.
const FRAME_BYTES: usize = 4 << 10;

/// The part of a connection's current turn that is not used up.
#[derive(Debug)]
pub(super) struct Turn {
    bytes_left: usize,
}

impl Turn {
    /// Creates a turn of which nothing is used up.
    pub fn new() -> Self {
        Turn { bytes_left: TURN_BYTES }
    }

    /// Subtracts the cost of a frame. A request that is answered on this thread uses up the turn, because its cost
    /// cannot be known from its bytes.
    pub fn took(&mut self, header: FrameHeader) {
        let cost = match header.kind {
            FrameKind::Cancel | FrameKind::Credit | FrameKind::Ping | FrameKind::Pong => FRAME_BYTES,
            FrameKind::LoadBatch | FrameKind::LoadEnd => FRAME_BYTES + header.length as usize,
            _ if header.more => FRAME_BYTES + header.length as usize,
            _ => TURN_BYTES,
        };
        self.bytes_left = self.bytes_left.saturating_sub(cost);
    }

    /// Returns whether the turn is used up.
    pub fn is_over(&self) -> bool {
        self.bytes_left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames_in_a_turn(kind: FrameKind, length: u32, more: bool) -> usize {
        let mut turn = Turn::new();
        let header = FrameHeader { length, kind, more, stream: 1 };
        let frames = (1..10_000).find(|_| {
            turn.took(header);
            turn.is_over()
        });
        frames.expect("a turn that ends")
    }

    #[test]
    fn turns_end_after_bounded_frames_and_bytes() {
        for kind in FrameKind::ALL {
            assert!((1..=64).contains(&frames_in_a_turn(*kind, 0, false)), "{kind:?}");
        }
        assert_eq!(frames_in_a_turn(FrameKind::Cancel, 0, false), 64);
        assert_eq!(frames_in_a_turn(FrameKind::Status, 0, false), 1);
        assert_eq!(frames_in_a_turn(FrameKind::Execute, 60 << 10, true), 4);
        assert_eq!(frames_in_a_turn(FrameKind::LoadBatch, 512 << 10, false), 1);
    }
}
