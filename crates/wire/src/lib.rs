//! The wire protocol: encodes and decodes frames, messages, Substrait plans and Arrow batches. Sockets are arguments,
//! and nothing reads a clock.
//!
//! Invariant: any byte of a peer may be hostile. Every decoder here returns an error that says what was wrong, enforces
//! [`farpool_model::limits`] before it allocates or recurses, and never panics. `docs/wire.md` describes the protocol
//! for authors of other engines; a test keeps that page in agreement with this code.

#![forbid(unsafe_code)]

mod batch;
mod chunks;
pub mod flight;
pub mod flow;
pub mod frame;
pub mod frame_reader;
pub mod message;
pub mod preface;
pub mod proto;
pub mod request;
pub mod response;
pub mod sealed;
pub mod socket;
pub mod split;
pub mod substrait;
mod table;
pub mod verbs;

pub use batch::{EncodedBatch, bytes_to_decode, decode_batch, decode_schema, encode_batch, encode_schema};
pub use chunks::{ChunkImage, ChunkOutline, Outlines};
pub use flow::{Grants, Window};
pub use frame::{FRAME_HEADER_BYTES, FrameHeader};
pub use frame_reader::FrameReader;
pub use message::{Assembler, Message, Outgoing};
pub use preface::{DetectedProtocol, NO_ENCRYPTION, PREFACE, check_preface, opening, reply_to_stranger};
pub use request::Request;
pub use response::{Response, Sealing};
pub use socket::{ClientTls, Interest, ServerTls, Socket, Tls};
pub use split::split_frame;
pub use verbs::{FrameKind, NativeVerb, Role};

/// The oldest version of the protocol that this crate speaks.
pub const VERSION_MIN: u32 = 1;

/// The newest version of the protocol that this crate speaks.
pub const VERSION_MAX: u32 = 1;

/// Returns the newest version of the protocol that both sides speak. The arguments are the oldest and the newest
/// version of the other side.
///
/// # Errors
/// `Invalid` if no version is spoken by both sides.
pub fn negotiate(peer_min: u32, peer_max: u32) -> farpool_model::Result<u32> {
    let version = peer_max.min(VERSION_MAX);
    if version < peer_min.max(VERSION_MIN) || peer_min > peer_max {
        return Err(farpool_model::Error::invalid(format!(
            "no common version of the protocol: the peer speaks {peer_min} to {peer_max}, \
             this side {VERSION_MIN} to {VERSION_MAX}"
        ))
        .advise("upgrade the older of client and node"));
    }
    Ok(version)
}

#[cfg(test)]
mod tests;
