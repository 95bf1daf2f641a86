//! Accepting connections, for every protocol: sources of connections, and the limit of connections that are not
//! authenticated yet.

mod listener;
mod unauthenticated;

pub use listener::{Listener, accept};
pub use unauthenticated::{Slot, Unauthenticated};
