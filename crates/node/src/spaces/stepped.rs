//! The host of a session (a client's state in the key-value store) in simulations. A host executes the commands about
//! the connection and evaluates conditions; this one has no connection.

use super::LastCondition;
use crate::caller::Caller;
use farpool_kv::{Host, Keyspace, ReadEntry, Refusal, Space};
use farpool_model::Expr;
use std::sync::Arc;

/// A host that evaluates conditions on columns, lets the client write, and has no commands about the connection.
pub struct SteppedHost {
    caller: Caller,
    keys: Arc<Keyspace>,
    judge: LastCondition,
}

impl SteppedHost {
    /// Creates the host of a client that acts as `caller` on the keyspace `keys`.
    pub fn new(caller: Caller, keys: Arc<Keyspace>) -> Self {
        SteppedHost { caller, keys, judge: LastCondition::default() }
    }
}

impl Host for SteppedHost {
    fn may_write(&self) -> bool {
        true
    }

    fn judge(
        &mut self,
        condition: &Expr,
        space: Option<&Arc<Space>>,
        entries: &[ReadEntry<'_>],
        now: u64,
    ) -> Result<Vec<bool>, Refusal> {
        self.judge.judge((&self.caller, &self.keys), (condition, space), entries, now)
    }
}
