//! Bodies of messages, as protocol buffers, about the connection: the handshake, credit (flow control), sealed
//! (encrypted) requests and errors.

use bytes::Bytes;
use prost::Message;

/// The empty body of the messages `Cancel`, `Queries`, `LoadEnd` and `Status`, and of answers that only say that a
/// request was executed.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Empty {}

/// Body of the message `Hello`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Hello {
    #[prost(uint32, tag = "1")]
    pub version_min: u32,
    #[prost(uint32, tag = "2")]
    pub version_max: u32,
    #[prost(string, optional, tag = "3")]
    pub token: Option<String>,
    #[prost(string, tag = "4")]
    pub client: String,
    #[prost(uint64, optional, tag = "5")]
    pub timeout_ms: Option<u64>,
}

/// Body of the message `Welcome`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Welcome {
    #[prost(uint32, tag = "1")]
    pub version: u32,
    #[prost(string, tag = "2")]
    pub server: String,
    #[prost(string, tag = "3")]
    pub tenant: String,
    #[prost(fixed64, tag = "4")]
    pub instance: u64,
    #[prost(uint64, tag = "5")]
    pub newest: u64,
    #[prost(uint32, repeated, tag = "6")]
    pub suites: Vec<u32>,
    #[prost(bytes = "bytes", tag = "7")]
    pub node_key: Bytes,
    #[prost(bool, tag = "8")]
    pub lookups: bool,
    #[prost(bool, tag = "9")]
    pub having: bool,
}

/// Body of the message `Sealed`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Sealed {
    #[prost(uint32, tag = "1")]
    pub suite: u32,
    #[prost(bytes = "bytes", tag = "2")]
    pub key: Bytes,
    #[prost(uint32, tag = "3")]
    pub proof: u32,
    #[prost(bytes = "bytes", tag = "4")]
    pub proof_id: Bytes,
    #[prost(uint32, tag = "5")]
    pub kind: u32,
    #[prost(bytes = "bytes", tag = "6")]
    pub request: Bytes,
}

/// Body of the message `Credit`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Credit {
    #[prost(uint64, tag = "1")]
    pub bytes: u64,
}

/// Body of the message `Error`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Error {
    #[prost(uint32, tag = "1")]
    pub kind: u32,
    #[prost(string, tag = "2")]
    pub message: String,
    #[prost(string, optional, tag = "3")]
    pub advice: Option<String>,
    #[prost(uint64, optional, tag = "4")]
    pub retry_after_ms: Option<u64>,
}
