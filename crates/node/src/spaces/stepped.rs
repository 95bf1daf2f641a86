//! A host for sessions of simulations.

use super::LastCondition;
use crate::caller::Caller;
use farpool_kv::{Host, Keyspace, ReadEntry, Refusal, Space};
use farpool_model::Expr;
use std::sync::Arc;

/// The host of a session in simulations: evaluates conditions on columns and has no commands.
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
