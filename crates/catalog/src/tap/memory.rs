//! The working memory of a profile (statistics of a table's rows) that is being computed, possibly as several
//! partial profiles. Memory is reserved from the tenant's account before a partial profile begins with a row group,
//! and held until the profile is complete or has failed.
//!
//! If memory is short, a profile that has begun continues with the partial profiles that it has. A profile that has not
//! begun is retried later in the background, without a place in the queue for memory, so that requests come first. A
//! caller that waits for the profile waits for the memory, too, and passes it to the profile.

use arrow_schema::SchemaRef;
use farpool_columns::RowGroup;
use farpool_memory::{Account, Reservation};
use farpool_model::limits;
use farpool_statistics::Profile;
use std::cell::OnceCell;

/// Divisor of the account's limit: a partial profile waits for at most half of the limit, even if it may need more
/// later, which it then reserves.
const PART: usize = 2;

/// Divisor of the account's limit: additional partial profiles are begun only if each takes at most 1/64 of the limit.
const FURTHER_PART: usize = 64;

/// Memory that a partial profile holds; `None` if memory is not accounted for.
pub(super) type Held = Option<Reservation>;

/// The memory account of one profile.
#[derive(Debug, Default)]
pub(super) struct PartMemory {
    account: Option<Account>,
    schema: Option<SchemaRef>,
    /// Upper bound of the bytes of the states of one partial profile. Computed at first use, because recovery creates
    /// thousands of profiles.
    states_bytes: OnceCell<usize>,
    /// Bytes of the last reservation that failed; `None` after one that succeeded.
    lacking: Option<usize>,
    /// Whether a thread waits for the bytes in `lacking`.
    is_awaited: bool,
    /// Memory that a waiter has reserved and passed on, and that is not used yet.
    given: Held,
}

impl PartMemory {
    /// Creates the memory account of the profile of a table of `schema`.
    pub fn new(account: Option<Account>, schema: SchemaRef) -> PartMemory {
        PartMemory { account, schema: Some(schema), ..PartMemory::default() }
    }

    fn states_bytes(&self) -> usize {
        // An unsupported schema fails later, when the profile is begun.
        let most = || self.schema.as_ref().and_then(|schema| Profile::bytes_most(schema).ok()).unwrap_or(0);
        *self.states_bytes.get_or_init(most)
    }

    /// Returns the bytes that could not be reserved; `None` if the last reservation succeeded.
    pub fn lacking(&self) -> Option<usize> {
        self.lacking
    }

    /// Returns the account and the bytes that the calling thread should wait for; `None` if nothing is lacking or
    /// another thread waits for it.
    pub fn wait_wanted(&mut self) -> Option<(Account, usize)> {
        let wanted = self.account.clone().zip(self.lacking).filter(|_| !self.is_awaited);
        self.is_awaited |= wanted.is_some();
        wanted
    }

    /// Records that the thread that waited for memory no longer waits.
    pub fn has_waited(&mut self) {
        self.is_awaited = false;
    }

    /// Forgets the failed reservation, so that the next step tries to reserve again.
    pub fn try_again(&mut self) {
        self.lacking = None;
    }

    /// Takes memory that a waiter has reserved. Returns it if no memory is lacking any more.
    pub fn give(&mut self, memory: Reservation) -> Held {
        if self.lacking.take().is_none() {
            return Some(memory);
        }
        self.given.replace(memory)
    }

    /// Reserves the memory that a partial profile needs in addition to `held` for adding `group`. Returns `None` if
    /// memory is short.
    pub fn for_group(&mut self, group: &RowGroup, held: &Held) -> Option<Held> {
        let held = held.as_ref().map_or(0, Reservation::bytes);
        self.reserve((with_written(self.states_bytes()) + in_hand(group)).saturating_sub(held))
    }

    /// Reserves memory for an additional partial profile that begins with `group`, if that is a small fraction of the
    /// account's limit. Returns `None` if it is not, or if memory is short.
    pub fn for_further_part(&mut self, group: &RowGroup) -> Option<Held> {
        let Some(account) = &self.account else { return Some(None) };
        let bytes = with_written(self.states_bytes()) + in_hand(group);
        let is_little = bytes <= account.memory().limit() / FURTHER_PART;
        is_little.then(|| account.try_reserve(bytes).ok()).flatten().map(Some)
    }

    /// Reserves the memory of a partial profile without rows. Returns `None` if memory is short.
    pub fn for_no_rows(&mut self) -> Option<Held> {
        self.reserve(with_written(self.states_bytes()))
    }

    fn reserve(&mut self, bytes: usize) -> Option<Held> {
        let Some(account) = &self.account else { return Some(None) };
        let bytes = bytes.min(account.memory().limit() / PART);
        let mut held = self.given.take().unwrap_or_else(|| account.empty());
        if held.try_grow(bytes.saturating_sub(held.bytes())).is_err() {
            self.lacking = Some(bytes);
            self.given = (held.bytes() > 0).then_some(held);
            return None;
        }
        self.lacking = None;
        Some(Some(held))
    }
}

/// Changes the reservation to the actual size of `profile` and of its encoded states.
pub(super) fn settle(held: &mut Held, profile: &Profile) {
    if let Some(held) = held {
        held.set(with_written(profile.bytes_held()));
    }
}

/// Returns the bytes of states in memory plus those of their encoded form, which has half as many.
fn with_written(bytes: usize) -> usize {
    bytes + bytes / 2
}

/// Returns an upper bound of the bytes that one step takes: one decoded column of the row group, and the tables in
/// which its values are counted.
fn in_hand(group: &RowGroup) -> usize {
    let most = group.chunks.iter().map(|chunk| chunk.bytes_plain()).max().unwrap_or(0);
    2 * most.min(limits::ROW_GROUP_BYTES_MAX)
}
