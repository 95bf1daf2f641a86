//! The programs of clients that are under way at a node: whose each is, how far it has come, and how to stop it.
//!
//! Invariant: a program is listed from the moment it was accepted until its last message is queued, however that
//! comes about. Nothing is called under the lock of the list.

use super::connection::Connection;
use farpool_model::{Error, QueryInfo, QueryState, TenantName};
use farpool_pipeline::Run;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// See the file's comment.
#[derive(Default)]
pub(crate) struct Queries {
    last: AtomicU64,
    open: Mutex<BTreeMap<u64, Arc<Query>>>,
}

/// Who a client is, for whoever looks at what it does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    /// What its token is called.
    pub token: Option<String>,
    /// What it says it is.
    pub client: String,
    /// Where it is.
    pub peer: String,
}

/// One program.
pub(crate) struct Query {
    pub tenant: TenantName,
    identity: Arc<Identity>,
    run: Arc<Run>,
    started_ns: u64,
    /// Where it answers. Does not keep the connection: who lists programs is not to end one.
    connection: Weak<Connection>,
    stream: u32,
    state: Mutex<QueryState>,
}

/// A program on the list, for as long as this lives.
pub(crate) struct Listed {
    queries: Arc<Queries>,
    id: u64,
    query: Arc<Query>,
}

impl Query {
    /// A program that waits for its turn.
    pub fn new(connection: &Arc<Connection>, stream: u32, run: &Arc<Run>) -> Self {
        let caller = &connection.caller;
        Query {
            tenant: caller.tenant().clone(),
            identity: caller.identity().clone(),
            run: run.clone(),
            started_ns: caller.clock().now_ns(),
            connection: Arc::downgrade(connection),
            stream,
            state: Mutex::new(QueryState::WaitingForTurn),
        }
    }

    /// Ends it with `error` in place of what was to come; false when it has ended.
    pub fn stop(&self, error: Error) -> bool {
        self.connection.upgrade().is_some_and(|connection| connection.give_up(self.stream, error))
    }

    fn info(&self, id: u64, now_ns: u64) -> QueryInfo {
        let receipt = self.run.receipt();
        let sent = self.connection.upgrade().map(|connection| {
            connection.outbox.with(|lanes| (lanes.bytes_total(self.stream), lanes.has_room(self.stream)))
        });
        let (bytes, has_room) = sent.unwrap_or((0, true));
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
    pub fn add(self: &Arc<Self>, query: Query) -> Listed {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let query = Arc::new(query);
        self.open.lock().insert(id, query.clone());
        Listed { queries: self.clone(), id, query }
    }

    /// What is under way of `tenant`, or of all tenants, in the order in which it was asked for.
    pub fn list(&self, tenant: Option<&TenantName>, now_ns: u64) -> Vec<QueryInfo> {
        let open: Vec<(u64, Arc<Query>)> = {
            let open = self.open.lock();
            let wanted = open.iter().filter(|(_, query)| tenant.is_none_or(|tenant| query.tenant == *tenant));
            wanted.map(|(id, query)| (*id, query.clone())).collect()
        };
        open.into_iter().map(|(id, query)| query.info(id, now_ns)).collect()
    }

    /// Takes a program off the list whose last message is queued, before it has noticed that itself.
    pub fn remove(&self, id: u64) {
        // What it holds of the run is let go when the lock is, not under it.
        let _removed = self.open.lock().remove(&id);
    }

    /// The program with this number, while it is under way.
    pub fn get(&self, id: u64) -> Option<Arc<Query>> {
        self.open.lock().get(&id).cloned()
    }
}

impl Listed {
    /// It now does this.
    pub fn set_state(&self, state: QueryState) {
        *self.query.state.lock() = state;
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.queries.remove(self.id);
    }
}
