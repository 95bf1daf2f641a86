//! The doors of the node, the same for every protocol: sources of connections, and the bound on connections that have not
//! been authenticated.

mod listener;
mod unauthenticated;

pub use listener::Listener;
pub(crate) use listener::accept;
pub(crate) use unauthenticated::{Slot, Unauthenticated};
