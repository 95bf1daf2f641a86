//! The running programs of a node's clients (pushed-down programs for one table each): whose they are, how far they
//! are, and how to stop them.
//!
//! Invariants: a program is in the list from the moment it is accepted until its last message to the client is queued,
//! however it ends. No other code is called while the lock of the list is held, because that code could lock the list
//! again.

use crate::Caller;
use farpool_model::{Error, QueryInfo, QueryState, TenantName};
use farpool_pipeline::Run;
use farpool_wire::sealed::{Digest, TokenKey};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The list of running programs, by id; ids are given in ascending order from 1 on.
#[derive(Default)]
pub(crate) struct Queries {
    last: AtomicU64,
    open: Mutex<BTreeMap<u64, Arc<Query>>>,
}

/// The identity of a client, to be shown in lists of programs and used for sealed (end-to-end encrypted) answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    /// Name of the client's access token; `None` if the client has none.
    pub token: Option<String>,
    /// Name that the client has given itself in its hello; not verified.
    pub client: String,
    /// Network address from which the client has connected.
    pub peer: String,
    /// Key derived from the client's token, with which the node authenticates sealed (encrypted) answers; not for
    /// display.
    pub token_key: Option<Arc<TokenKey>>,
    /// Digest of the client's token, which sealed (encrypted) answers are bound to; not for display.
    pub shown: Digest,
}

/// A running program of a client, or one that waits for its turn.
pub(crate) struct Query {
    pub tenant: TenantName,
    identity: Arc<Identity>,
    run: Arc<Run>,
    started_ns: u64,
    delivery: Box<dyn Delivery>,
    state: Mutex<QueryState>,
}

/// The path by which the result of a program reaches its client. An implementation must hold the connection by a weak
/// reference, so that listing programs neither keeps a connection open nor closes it.
pub(crate) trait Delivery: Send + Sync {
    /// Stops the program and sends `error` in place of the rest of its result. Returns false if the program has ended.
    fn stop(&self, error: Error) -> bool;

    /// Returns the number of bytes sent so far, and whether the client accepts more now; `None` if the connection has
    /// ended.
    fn progress(&self) -> Option<(u64, bool)>;
}

/// A guard that keeps the entry of a program ([`Query`]) in the list of running programs. The code that executes the
/// program holds it; dropping it removes the entry.
pub(crate) struct ListedQuery {
    queries: Arc<Queries>,
    id: u64,
    query: Arc<Query>,
}

impl Query {
    /// Creates the entry for a program of `caller`, in the state of waiting for its turn.
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

    /// Stops the program and sends `error` in place of the rest of its result. Returns false if the program has ended.
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
    /// Adds a program under a new id. It is listed until the result is dropped.
    pub fn add(self: &Arc<Self>, query: Query) -> ListedQuery {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let query = Arc::new(query);
        self.open.lock().insert(id, query.clone());
        ListedQuery { queries: self.clone(), id, query }
    }

    /// Returns descriptions of the programs of `tenant`, or of all tenants if `tenant` is `None`, in the order of their
    /// requests.
    pub fn list(&self, tenant: Option<&TenantName>, now_ns: u64) -> Vec<QueryInfo> {
        let open: Vec<(u64, Arc<Query>)> = {
            let open = self.open.lock();
            let wanted = open.iter().filter(|(_, query)| tenant.is_none_or(|tenant| query.tenant == *tenant));
            wanted.map(|(id, query)| (*id, query.clone())).collect()
        };
        open.into_iter().map(|(id, query)| query.info(id, now_ns)).collect()
    }

    /// Removes a program from the list, because its last message is queued. The program itself may not have ended yet.
    pub fn remove(&self, id: u64) {
        // Dropped after the lock is released, because dropping the run takes time.
        let _removed = self.open.lock().remove(&id);
    }

    /// Returns the running program with this id; `None` if it has ended.
    pub fn get(&self, id: u64) -> Option<Arc<Query>> {
        self.open.lock().get(&id).cloned()
    }
}

impl ListedQuery {
    /// Sets the state of the program, which lists of running programs show.
    pub fn set_state(&self, state: QueryState) {
        *self.query.state.lock() = state;
    }
}

impl Drop for ListedQuery {
    fn drop(&mut self) {
        self.queries.remove(self.id);
    }
}
