//! The client's side of the connection between a query engine and a pool: the requests that an engine can make of a
//! pool ([`Pool`]), and a pool at the other end of a socket ([`RemotePool`]).
//!
//! Invariant: an answer is complete or an error. A stream that ends without error has returned every batch of the
//! result; if the node goes away in the middle, the stream ends with an error of kind `Unavailable`.

#![forbid(unsafe_code)]

pub mod handle;
pub mod link;
pub mod pool;
pub mod receipt;
pub mod remote;
pub mod url;

pub use farpool_wire::ClientTls;
pub use farpool_wire::sealed::{Proof, PublicKey, TokenKey};
pub use farpool_wire::{ChunkImage, ChunkOutline, Outlines};
pub use handle::Handle;
pub use link::{LinkMeter, LinkSpeed};
pub use pool::{BatchStream, Execution, Pool, Takes};
pub use receipt::ReceiptHandle;
pub use remote::{ChunkStream, ClientOptions, Connector, RemoteBackup, RemotePool};
pub use url::PoolUrl;
