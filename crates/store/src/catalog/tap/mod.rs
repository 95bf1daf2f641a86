//! A tap: the profile of a table's rows, made from their row groups as soon as these are in the pool.
//!
//! A load goes as fast as its rows come and are encoded. Their profile is made behind it, in steps, by the
//! [`super::Background`] when nothing else is to be done, and by whoever waits for it. The profile of an append comes
//! behind that of the version which it extends.
//!
//! Invariants: a tap never keeps a load from going on; one that nobody owns any more stops within a column; what a
//! tap has settled on does not change.

mod awaited;
mod gathering;
mod memory;
mod observe;
mod part;
mod settling;
mod work;

use super::Background;
use arrow_schema::SchemaRef;
pub use awaited::AwaitedProfile;
use farpool_columns::{Encoder, RowGroup};
use farpool_memory::Account;
use farpool_model::{ColumnStates, Error, MomentsState, Result, Spread, TenantName};
pub use gathering::{Gathering, Stepped};
use std::sync::Arc;

/// What whoever has the rows owns: a load, and then the version of the table. See the file's comment.
#[derive(Debug)]
pub(super) struct Tap(Arc<Gathering>);

/// What was gathered of a version of a table, in the pool with its row groups.
#[derive(Debug)]
pub(super) struct Gathered {
    pub columns: Vec<ColumnStates>,
    pub moments: Option<MomentsState>,
    /// About how many distinct values each column has.
    pub distinct: Vec<Option<u64>>,
    /// How the values of each column are spread.
    pub spreads: Vec<Option<Arc<Spread>>>,
}

/// What was gathered, or why there is nothing.
type Outcome = Result<Arc<Gathered>>;

impl Tap {
    /// A tap on rows of `schema`, which is canonical, of a table of `tenant`; `number` says which comes first in the
    /// background. What is gathered is reserved from `account`.
    pub fn new(
        number: u64,
        tenant: TenantName,
        schema: SchemaRef,
        background: Arc<dyn Background>,
        account: Option<Account>,
    ) -> Arc<Tap> {
        Arc::new(Tap(Arc::new(Gathering::new(number, tenant, schema, background, account))))
    }

    /// Has the rows of a row group added to the profile.
    pub fn add(&self, group: Arc<RowGroup>) {
        self.0.add(group);
    }

    /// Says that no more rows come, and that they are behind those of `base`. `encoder` takes the profile to the pool.
    pub fn complete(&self, base: Option<Arc<Tap>>, encoder: Encoder) {
        if let Some(base) = &base {
            base.0.set_next(self.0.clone());
        }
        self.0.complete(base, encoder);
    }

    /// What was gathered; `None` as long as that is not all.
    pub fn settled(&self) -> Option<Outcome> {
        self.0.settled()
    }

    /// Whether nothing could be gathered, or can be: of it, or of one that it waits for.
    pub fn has_failed(&self) -> bool {
        let fails = |tap: &Tap| tap.settled().map_or_else(|| tap.0.has_failed(), |outcome| outcome.is_err());
        fails(self) || std::iter::successors(self.0.base(), |tap| tap.0.base()).any(|tap| fails(&tap))
    }

    /// Rows that are in the profile, or in one before it that goes into it.
    pub fn rows_seen(&self) -> u64 {
        let (mut rows, mut before) = self.0.rows_seen();
        while let Some(tap) = before {
            let (more, next) = tap.0.rows_seen();
            rows += more;
            before = next;
        }
        rows
    }

    /// How many taps, each behind the next, are not settled: this one and those before it.
    pub fn unsettled(&self) -> usize {
        usize::from(self.settled().is_none()) + self.before().len()
    }

    /// Those that are to be settled before this one, each behind the next.
    fn before(&self) -> Vec<Arc<Tap>> {
        let unsettled = |tap: &Tap| tap.0.base().filter(|base| base.settled().is_none());
        std::iter::successors(unsettled(self), |tap| unsettled(tap)).collect()
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// A defect in the statistics fails the profile, and nothing else.
fn defect() -> Error {
    Error::internal("a defect stopped the profile of a table")
}
