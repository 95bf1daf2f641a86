//! A simulated query engine, which sends programs (queries over one table) to the node: the real client of
//! `farpool-transfer` over connections of the simulated network, which runs several errands (queries, loads and other
//! requests to a node) concurrently.
//!
//! Invariant: an errand ends with an answer that the model confirms, or with an error that the model, the trouble of
//! this world or a cut connection explains. It may also be aborted at any await point.

mod changes;
mod loads;
mod queries;

use crate::checks::{Checked, check_list, check_status, check_table};
use crate::client::token_of;
use crate::model::{RequestId, Span};
use crate::network::{Cuts, Dialing, Network};
use crate::query::{Change, Queries, Query};
use crate::random::Random;
use crate::rows::COLUMNS;
use crate::state::Shared;
use farpool_model::{Compression, Error, ErrorKind, LoadMode, Result, ResultForm, TableName};
use farpool_transfer::{ClientOptions, Pool, RemotePool};
use farpool_wire::Socket;
pub use loads::LoadSize;
use parking_lot::Mutex;
use queries::Held;
use std::fmt;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedSender;

/// The forms of results that an engine asks for.
const FORMS: [ResultForm; 5] = [
    ResultForm::Auto,
    ResultForm::Packed,
    ResultForm::Plain,
    ResultForm::Compressed(Compression::Lz4),
    ResultForm::Compressed(Compression::Zstd),
];

/// A simulated engine.
pub struct Engine {
    /// Number of the engine in the log.
    pub number: usize,
    /// Index of the engine's tenant.
    tenant: usize,
    tenant_name: String,
    pool: RemotePool,
    cuts: Arc<Cuts>,
    shared: Shared,
    /// Maximal number of appends in one errand.
    appends_max: usize,
    /// The prepared programs that the engine holds.
    held: Mutex<Vec<Held>>,
}

/// An errand: a task that a simulated engine carries out by requests to the node.
#[derive(Clone, Debug)]
pub enum Errand {
    /// Run a program.
    Execute(Query),
    /// Prepare a program, and hold it.
    Prepare(Query),
    /// Run a held program.
    Again,
    /// Release a held program.
    Release,
    /// List the tables.
    Tables,
    /// Describe a table.
    Table(String),
    /// Get the statistics of a table.
    Statistics(String),
    /// Get the status of the node.
    Status,
    /// Load rows.
    Load(String, LoadMode),
    /// Append a few rows repeatedly.
    Trickle(String),
    /// Change rows of a table.
    Change(Change),
    /// Drop a table.
    Drop(String),
}

impl Errand {
    /// Creates a random errand on `table`.
    pub fn random(random: &mut Random, table: String, queries: Queries) -> Self {
        match random.below(40) {
            0..12 => Errand::Execute(Query::random(random, table, queries)),
            12..16 => Errand::Prepare(Query::random(random, table, queries)),
            16..21 => Errand::Again,
            21 => Errand::Release,
            22 => Errand::Tables,
            23..25 => Errand::Table(table),
            25..27 => Errand::Statistics(table),
            27 => Errand::Status,
            28 => Errand::Drop(table),
            29..31 => Errand::Trickle(table),
            31..34 => Errand::Change(Change::random(random, table)),
            _ => {
                let modes = [LoadMode::Create, LoadMode::Create, LoadMode::Append, LoadMode::Replace];
                Errand::Load(table, random.pick(&modes))
            }
        }
    }
}

impl Errand {
    /// Creates a random errand, mostly an append to `table`.
    pub fn random_append(random: &mut Random, table: String) -> Self {
        match random.below(10) {
            0..7 => Errand::Trickle(table),
            7 => Errand::Load(table, LoadMode::Create),
            _ => Errand::random(random, table, Queries::Any),
        }
    }

    /// Creates a random errand, mostly a scan of `table`, which is large.
    pub fn random_scan(random: &mut Random, table: String, queries: Queries) -> Self {
        match random.below(40) {
            0..27 => Errand::Execute(Query::random(random, table, queries)),
            27..29 => Errand::Load(table, LoadMode::Append),
            29..31 => Errand::Change(Change::random(random, table)),
            _ => match Errand::random(random, table.clone(), queries) {
                // Loads take long over the network, and drops leave little to scan.
                Errand::Load(..) => Errand::Load(table, LoadMode::Create),
                Errand::Drop(_) if random.chance(70) => Errand::Table(table),
                other => other,
            },
        }
    }
}

/// A factory of simulated engines, with what their connections need.
pub struct Engines {
    /// The network that connections belong to.
    pub network: Arc<Network>,
    /// Channel through which the node accepts connections.
    pub sockets: UnboundedSender<Arc<dyn Socket>>,
    /// The state shared with all participants.
    pub shared: Shared,
    /// Maximal number of appends in one errand.
    pub appends_max: usize,
}

impl Engines {
    /// Connects an engine of `tenant`; returns `None` if it failed for a legitimate reason.
    pub async fn connect(
        &self,
        number: usize,
        tenant: usize,
        tenant_name: &str,
        form: usize,
    ) -> Checked<Option<Engine>> {
        let first = self.shared.lock().log.step;
        let cuts = Arc::new(Cuts::default());
        let (network, sockets) = (self.network.clone(), self.sockets.clone());
        let dialing = Arc::new(Dialing { network, sockets, cuts: cuts.clone() });
        let url = "farpool://simulated:1".parse().map_err(|error: Error| error.to_string())?;
        let options = ClientOptions { token: Some(token_of(tenant_name)), ..ClientOptions::default() };
        let pool = RemotePool::connect_through(dialing, &url, options).await;
        match pool {
            Ok(pool) => Ok(Some(Engine {
                number,
                tenant,
                tenant_name: tenant_name.to_string(),
                pool: pool.with_results(FORMS[form % FORMS.len()]).with_load_seed(number as u64),
                cuts,
                shared: self.shared.clone(),
                appends_max: self.appends_max,
                held: Mutex::default(),
            })),
            Err(error) if error.kind == ErrorKind::Unavailable && cuts.explain(first) => Ok(None),
            Err(error) if self.shared.lock().weather.explains(&error) => Ok(None),
            Err(error) => Err(format!("engine {number} cannot connect: {error}")),
        }
    }
}

impl Engine {
    /// Runs an errand.
    ///
    /// # Errors
    /// Fails if the node, or its client, did something wrong.
    pub async fn run(&self, errand: Errand, mut random: Random, size: LoadSize) -> Checked {
        let first = self.shared.lock().log.step;
        let told = match &errand {
            Errand::Execute(query) => self.execute(query, &mut random, first).await,
            Errand::Prepare(query) => self.prepare(query, first).await,
            Errand::Again => self.run_held(&mut random, first).await,
            Errand::Release => {
                self.held.lock().pop();
                Ok("done".to_string())
            }
            Errand::Tables => self.tables(first).await,
            Errand::Table(table) => self.table(table, first).await,
            Errand::Statistics(table) => self.statistics(table, &mut random, first).await,
            Errand::Status => self.status(first).await,
            Errand::Load(table, mode) => self.load(table, *mode, random, size, first).await,
            Errand::Trickle(table) => self.trickle(table, &mut random, first).await,
            Errand::Change(change) => self.change(change, first).await,
            Errand::Drop(table) => self.drop_table(table, first).await,
        };
        let told =
            told.map_err(|wrong| format!("engine {}, {errand:?} since event {first}: {wrong}", self.number))?;
        self.shared
            .lock()
            .log
            .event(format!("engine {}: {errand:?} since event {first}: {told}", self.number));
        Ok(())
    }

    /// Returns the index of the engine's tenant.
    pub fn tenant(&self) -> usize {
        self.tenant
    }

    async fn tables(&self, first: u64) -> Checked<String> {
        let tables = match self.pool.tables().await {
            Ok(tables) => tables,
            Err(error) => return self.explained(&error, "", first),
        };
        let state = self.shared.lock();
        check_list(&tables, &state.models[self.tenant], state.span_since(first))?;
        Ok(format!("{} tables", tables.len()))
    }

    async fn table(&self, table: &str, first: u64) -> Checked<String> {
        let info = match self.pool.table(&name(table)).await {
            Ok(info) => info,
            Err(error) => return self.explained(&error, table, first),
        };
        let state = self.shared.lock();
        check_table(&info, &state.models[self.tenant], state.span_since(first))?;
        Ok(format!("{} of {} rows", info.version, info.rows))
    }

    async fn statistics(&self, table: &str, random: &mut Random, first: u64) -> Checked<String> {
        let columns = random.chance(50).then(|| vec![random.below(COLUMNS.len())]);
        let statistics = match self.pool.statistics(&name(table), columns.as_deref()).await {
            Ok(statistics) => statistics,
            // The states of a profile are stored in the pool, which may lack memory for them.
            Err(error) if columns.is_none() && error.kind == ErrorKind::OverLimit => {
                return Ok("no room".to_string());
            }
            Err(error) => return self.explained(&error, table, first),
        };
        let is_whole = statistics.columns.iter().all(|column| column.sketch.is_some());
        if columns.is_none() && (!is_whole || statistics.table.rows_profiled.is_some()) {
            return Err("the statistics are not those of a whole table".to_string());
        }
        let state = self.shared.lock();
        check_table(&statistics.table, &state.models[self.tenant], state.span_since(first))?;
        Ok(format!("of {}", statistics.table.version))
    }

    async fn status(&self, first: u64) -> Checked<String> {
        match self.pool.status().await {
            Ok(status) => check_status(&status, &self.tenant_name).map(|()| "done".into()),
            Err(error) => self.explained(&error, "", first),
        }
    }

    async fn drop_table(&self, table: &str, first: u64) -> Checked<String> {
        let id = self.shared.lock().models[self.tenant].drop_begins(first, table);
        let outcome = self.pool.drop_table(&name(table)).await;
        if self.is_known(&outcome) {
            self.is_over(id);
        }
        if let Err(error) = outcome {
            return self.explained(&error, table, first);
        }
        let state = self.shared.lock();
        match state.models[self.tenant].was_there_within(table, state.span_since(first)) {
            true => Ok("dropped".into()),
            false => Err("there was no such table".into()),
        }
    }

    /// Returns whether the client knows the outcome of a request that changes something: it does not if its connection
    /// broke.
    fn is_known<T>(&self, outcome: &Result<T>) -> bool {
        outcome.as_ref().err().is_none_or(|error| error.kind != ErrorKind::Unavailable)
    }

    /// Records that the client knows the outcome of its request.
    fn is_over(&self, id: RequestId) {
        let mut state = self.shared.lock();
        let step = state.log.step;
        state.models[self.tenant].is_over(step, id);
    }

    fn span(&self, first: u64) -> Span {
        self.shared.lock().span_since(first)
    }

    /// Checks whether a request over `table` may have failed with this error.
    fn explained(&self, error: &Error, table: &str, first: u64) -> Checked<String> {
        let was_cut = error.kind == ErrorKind::Unavailable && self.cuts.explain(first);
        let state = self.shared.lock();
        if !was_cut {
            state.explains(error, self.tenant, table, state.span_since(first))?;
        }
        Ok(format!("{:?}", error.kind))
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("number", &self.number).finish_non_exhaustive()
    }
}

fn name(table: &str) -> TableName {
    TableName::new(table).expect("tables of the simulation have valid names")
}
