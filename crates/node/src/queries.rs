//! The clients' programs in progress at a node: who runs each, its progress, and how to stop it.
//!
//! Invariant: a program is listed from the moment it was accepted until its last message is queued, however
//! it ends. Nothing is called under the lock of the list.

use crate::Caller;
use farpool_model::{Error, QueryInfo, QueryState, TenantName};
use farpool_pipeline::Run;
use farpool_wire::sealed::{Digest, TokenKey};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The list of programs in progress.
#[derive(Default)]
pub(crate) struct Queries {
    last: AtomicU64,
    open: Mutex<BTreeMap<u64, Arc<Query>>>,
}

/// The identity of a client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    /// Name of its token.
    pub token: Option<String>,
    /// Name that the client gave of itself.
    pub client: String,
    /// Network address of the client.
    pub peer: String,
    /// Key derived from its token, by which answers prove to come from this node; not for display.
    pub token_key: Option<Arc<TokenKey>>,
    /// Digest of its token, to which sealed answers are bound; not for display.
    pub shown: Digest,
}

/// A program in progress.
pub(crate) struct Query {
    pub tenant: TenantName,
    identity: Arc<Identity>,
    run: Arc<Run>,
    started_ns: u64,
    delivery: Box<dyn Delivery>,
    state: Mutex<QueryState>,
}

/// The way of a result to its client. Holds the connection weakly: listing programs must not keep a connection open or end
/// it.
pub(crate) trait Delivery: Send + Sync {
    /// Stops the program and sends `error` in place of the rest of its result; false when it has ended.
    fn stop(&self, error: Error) -> bool;

    /// Returns the bytes sent so far, and whether the client takes more; `None` when the connection has ended.
    fn progress(&self) -> Option<(u64, bool)>;
}

/// An entry of the list, removed on drop.
pub(crate) struct ListedQuery {
    queries: Arc<Queries>,
    id: u64,
    query: Arc<Query>,
}

impl Query {
    /// Creates the entry of a program of `caller` that waits for its turn.
    pub fn new(caller: &Caller, run: &Arc<Run>, delivery: impl Delivery + 'static) -> Self {
        Query {
            tenant: caller.tenant().clone(),
            identity: caller.identity().clone(),
            run: run.clone(),
            started_ns: caller.clock().now_ns(),
            delivery: Box::new(delivery),
            state: Mutex::new(QueryState::WaitingForTurn),
        }
    }

    /// Stops the program and sends `error` in place of the rest of its result; false when it has ended.
    pub fn stop(&self, error: Error) -> bool {
        self.delivery.stop(error)
    }

    fn info(&self, id: u64, now_ns: u64) -> QueryInfo {
        let receipt = self.run.receipt();
        let (bytes, has_room) = self.delivery.progress().unwrap_or((0, true));
        let state = match *self.state.lock() {
            QueryState::Running if !has_room => QueryState::WaitingForReader,
            state => state,
        };
        QueryInfo {
            id,
            tenant: self.tenant.as_str().to_string(),
            token: self.identity.token.clone().unwrap_or_default(),
            client: self.identity.client.clone(),
            peer: self.identity.peer.clone(),
            table: self.run.prepared().effective.table.as_str().to_string(),
            state,
            elapsed_ns: now_ns.saturating_sub(self.started_ns),
            cpu_ns: receipt.cpu_ns,
            rows: receipt.rows_returned,
            bytes,
        }
    }
}

impl Queries {
    /// Adds a program.
    pub fn add(self: &Arc<Self>, query: Query) -> ListedQuery {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let query = Arc::new(query);
        self.open.lock().insert(id, query.clone());
        ListedQuery { queries: self.clone(), id, query }
    }

    /// Lists the programs of `tenant`, or of all tenants, in the order of their requests.
    pub fn list(&self, tenant: Option<&TenantName>, now_ns: u64) -> Vec<QueryInfo> {
        let open: Vec<(u64, Arc<Query>)> = {
            let open = self.open.lock();
            let wanted = open.iter().filter(|(_, query)| tenant.is_none_or(|tenant| query.tenant == *tenant));
            wanted.map(|(id, query)| (*id, query.clone())).collect()
        };
        open.into_iter().map(|(id, query)| query.info(id, now_ns)).collect()
    }

    /// Removes a program from the list: its last message is queued, though it may not have noticed yet.
    pub fn remove(&self, id: u64) {
        // The entry, which holds the run, is dropped after the lock is released.
        let _removed = self.open.lock().remove(&id);
    }

    /// Returns the program with this number, while it is in progress.
    pub fn get(&self, id: u64) -> Option<Arc<Query>> {
        self.open.lock().get(&id).cloned()
    }
}

impl ListedQuery {
    /// Sets the displayed state of the program.
    pub fn set_state(&self, state: QueryState) {
        *self.query.state.lock() = state;
    }
}

impl Drop for ListedQuery {
    fn drop(&mut self) {
        self.queries.remove(self.id);
    }
}
