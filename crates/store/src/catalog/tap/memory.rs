//! The memory of a profile in the making: what its parts hold outside the pool, reserved from the tenant's account
//! before a part begins with a row group, and what it holds then until it is settled.
//!
//! Where there is not enough, a profile that has begun goes on with the parts that it has. One that has not lacks memory:
//! in the background it is tried again later, and takes no place in line before those that somebody waits for; whoever
//! waits for it waits for the memory, and gives it to the profile.

use farpool_columns::RowGroup;
use farpool_memory::{Account, Reservation};
use farpool_model::limits;
use farpool_statistics::Profile;

/// The part of the memory for work that one part of a profile waits for, where it may come to take more: it takes what
/// it needs then.
const PART: usize = 2;

/// The part of the memory for work up to which further parts are begun beside the first one.
const FURTHER_PART: usize = 64;

/// Bytes that a part holds; `None` where there is no account of them.
pub(super) type Held = Option<Reservation>;

/// See the file's comment.
#[derive(Debug, Default)]
pub(super) struct PartMemory {
    account: Option<Account>,
    /// The most bytes that the states of a part take.
    states_bytes: usize,
    /// What was not to be had.
    lacking: Option<usize>,
    /// A thread waits for it.
    is_awaited: bool,
    /// From somebody who has waited for it.
    given: Held,
}

impl PartMemory {
    /// That of a profile whose states take up to `states_bytes`, from `account`.
    pub fn new(account: Option<Account>, states_bytes: usize) -> PartMemory {
        PartMemory { account, states_bytes, ..PartMemory::default() }
    }

    /// How many bytes were not to be had, until they are.
    pub fn lacking(&self) -> Option<usize> {
        self.lacking
    }

    /// What the calling thread is to wait for, unless another one does.
    pub fn wait_wanted(&mut self) -> Option<(Account, usize)> {
        let wanted = self.account.clone().zip(self.lacking).filter(|_| !self.is_awaited);
        self.is_awaited |= wanted.is_some();
        wanted
    }

    /// The thread that waited does so no longer.
    pub fn has_waited(&mut self) {
        self.is_awaited = false;
    }

    /// Has the next one try again.
    pub fn try_again(&mut self) {
        self.lacking = None;
    }

    /// Takes memory from somebody who has waited for it; gives it back if it is not lacking any more.
    pub fn give(&mut self, memory: Reservation) -> Held {
        if self.lacking.take().is_none() {
            return Some(memory);
        }
        self.given.replace(memory)
    }

    /// What a part takes that begins with `group`, beside what it holds. `None` when it is not to be had now.
    pub fn for_group(&mut self, group: &RowGroup, held: &Held) -> Option<Held> {
        let held = held.as_ref().map_or(0, Reservation::bytes);
        self.reserve((with_written(self.states_bytes) + in_hand(group)).saturating_sub(held))
    }

    /// Reserves for one part beyond those that exist, if that is a small part of the account's limit.
    pub fn for_further_part(&mut self, group: &RowGroup) -> Option<Held> {
        let Some(account) = &self.account else { return Some(None) };
        let bytes = with_written(self.states_bytes) + in_hand(group);
        let is_little = bytes <= account.memory().limit() / FURTHER_PART;
        is_little.then(|| account.try_reserve(bytes).ok()).flatten().map(Some)
    }

    /// What a part without rows takes. `None` when it is not to be had now.
    pub fn for_no_rows(&mut self) -> Option<Held> {
        self.reserve(with_written(self.states_bytes))
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

/// Accounts for what `profile` really takes, and for its states as they are written in the end.
pub(super) fn settle(held: &mut Held, profile: &Profile) {
    if let Some(held) = held {
        held.set(with_written(profile.bytes_held()));
    }
}

/// The bytes of states, and half as many for what is written of them.
fn with_written(bytes: usize) -> usize {
    bytes + bytes / 2
}

/// Bytes of a column, decoded, and of what its values are counted in.
fn in_hand(group: &RowGroup) -> usize {
    let most = group.chunks.iter().map(|chunk| chunk.bytes_plain()).max().unwrap_or(0);
    2 * most.min(limits::ROW_GROUP_BYTES_MAX)
}
