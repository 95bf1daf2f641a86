//! A pool and the SQL session over it.

use crate::arrow_stream;
use crate::batch::NativeBatch;
use crate::errors::{self, checked};
use crate::load::{Load, Progress};
use crate::parameters;
use crate::process::Owned;
use crate::query::NativeQuery;
use crate::runtime;
use arrow::array::RecordBatchReader;
use arrow::error::ArrowError;
use farpool::model::{OptionValue, limits};
use farpool::node::{CompressionPolicy, KeySource, MasterKey, Node};
use farpool::report::{Report, Source};
use farpool::{
    ClientOptions, ClientTls, EmbeddedPool, Error, LoadMode, LoadOptions, Pool, PoolUrl, Proof, PublicKey,
    QueryFiles, ReadOptions, RemotePool, Residency, Session, SessionOptions, Statement, StreamLoad,
    TableName, Tier, TokenKey, WorkMemory,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt, PyList, PyString, PyTuple};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The parts of an open pool.
#[derive(Clone)]
struct Opened {
    session: Session,
    pool: Arc<dyn Pool>,
    /// The node, if the pool is in this process.
    node: Option<Arc<Node>>,
}

/// A pool. It is closed when its parts have been taken.
#[pyclass(frozen, name = "Pool", module = "farpool._farpool", weakref)]
pub struct NativePool {
    opened: Mutex<Owned<Opened>>,
    url: String,
}

/// An amount of memory, in bytes or as text.
#[derive(FromPyObject)]
enum Size {
    Bytes(usize),
    Text(String),
}

impl Size {
    fn bytes(&self) -> farpool::Result<usize> {
        match self {
            Size::Bytes(bytes) => Ok(*bytes),
            Size::Text(text) => farpool::size::parse(text),
        }
    }
}

/// Returns the bytes of memory for files, and those for joins, sorts and groups.
fn sizes(memory: Option<&Size>, work: Option<&Size>) -> farpool::Result<(usize, usize)> {
    let given = memory.map(Size::bytes).transpose()?;
    // A limit for tables also limits the memory for work, unless that is given explicitly.
    let most = given.unwrap_or(usize::MAX).max(limits::WORK_BYTES_MIN);
    let work = work.map(Size::bytes).transpose()?;
    let work = work.unwrap_or_else(|| farpool::work_bytes_default().min(most));
    Ok((given.unwrap_or_else(farpool::memory_bytes_default), work))
}

#[pymethods]
impl NativePool {
    /// Connects to a node.
    #[staticmethod]
    #[pyo3(signature = (url, *, token, timeout, cache, memory, work_memory, results, tls_ca, encrypt_results, node_key))]
    #[expect(clippy::too_many_arguments, reason = "each has its name in Python")]
    fn connect(
        py: Python<'_>,
        url: &str,
        token: Option<String>,
        timeout: Option<f64>,
        cache: Option<Size>,
        memory: Option<Size>,
        work_memory: Option<Size>,
        results: &str,
        tls_ca: Option<Vec<u8>>,
        encrypt_results: bool,
        node_key: Option<&str>,
    ) -> PyResult<Self> {
        let prepared = || {
            let url: PoolUrl = url.parse()?;
            let timeout = timeout.map(seconds).transpose()?;
            let tls = tls_ca.as_deref().map(ClientTls::trusting).transpose()?;
            let sealed = if encrypt_results { Some(proof(&url, token.as_deref(), node_key)?) } else { None };
            let sizes = sizes(memory.as_ref(), work_memory.as_ref())?;
            let near = cache.as_ref().map(Size::bytes).transpose()?.filter(|bytes| *bytes > 0);
            Ok((
                url,
                ClientOptions { token: token.clone(), timeout, tls, sealed },
                sizes,
                near,
                results.parse()?,
            ))
        };
        let (url, client, (memory, work), near, results) = checked(py, prepared())?;
        runtime::wait(py, async move {
            let timeout = client.timeout;
            let work = WorkMemory::new(work);
            let remote = RemotePool::connect(&url, client).await?.with_results(results);
            let pool: Arc<dyn Pool> = match near {
                Some(bytes) => farpool::connect_near(&url, remote, bytes, work.clone()).await?,
                None => Arc::new(remote),
            };
            let options = SessionOptions { timeout, ..SessionOptions::default() };
            NativePool::over(pool, None, memory, work, options).await
        })
    }

    /// Opens a pool in this process.
    #[staticmethod]
    #[pyo3(signature = (*, memory, data_dir, work_memory, timeout, compression, master_key_file, encryption))]
    #[expect(clippy::too_many_arguments, reason = "each has its name in Python")]
    fn open(
        py: Python<'_>,
        memory: Option<Size>,
        data_dir: Option<PathBuf>,
        work_memory: Option<Size>,
        timeout: Option<f64>,
        compression: &str,
        master_key_file: Option<PathBuf>,
        encryption: &str,
    ) -> PyResult<Self> {
        let prepared = || {
            let timeout = timeout.map(seconds).transpose()?;
            let packing = CompressionPolicy::named(compression).ok_or_else(|| {
                Error::invalid(format!("there is no compression {compression:?}"))
                    .advise("write auto, none, lz4, zstd or deflate")
            })?;
            let key = master_key_file.map(|file| MasterKey::load(&KeySource::File(file))).transpose()?;
            if data_dir.is_none() && key.is_some() {
                return Err(Error::invalid("a master key is for files, and the pool has no data directory")
                    .advise("name it: data_dir=…"));
            }
            Ok((sizes(memory.as_ref(), work_memory.as_ref())?, timeout, packing, key, tier(encryption)?))
        };
        let ((memory, work), timeout, packing, key, tier) = checked(py, prepared())?;
        let opened = move || {
            let work = WorkMemory::new(work);
            let pool = match &data_dir {
                None => EmbeddedPool::open_within(memory, work.clone())?,
                Some(path) => {
                    let key = key.as_ref().map(|key| (key, tier));
                    EmbeddedPool::open_durable_with(memory, work.clone(), path, key, packing)?
                }
            };
            Ok((pool, work))
        };
        runtime::wait(py, async move {
            let (pool, work) = runtime::blocking(opened).await?;
            let node = pool.node().clone();
            let options = SessionOptions {
                timeout,
                advice_without_tables: "load one with load(), or name a file, as in FROM 'trips.parquet'",
                ..SessionOptions::default()
            };
            NativePool::over(pool, Some(node), memory, work, options).await
        })
    }

    #[getter]
    fn url(&self) -> &str {
        &self.url
    }

    /// Returns the table names in a statement that the session does not know. They may be Python variables of the
    /// caller.
    fn unknown_names(&self, py: Python<'_>, text: &str) -> PyResult<Vec<String>> {
        let (opened, statement) = (self.opened(py)?, Statement::from(text));
        runtime::wait(py, async move { opened.session.unknown_names(&statement).await })
    }

    /// Plans a statement. `line` is the line of the caller's text where it begins; parameters get their values, and
    /// data frames of the caller are tables by name.
    fn plan(
        &self,
        py: Python<'_>,
        text: &str,
        line: u64,
        values: Option<&Bound<'_, PyAny>>,
        tables: &Bound<'_, PyDict>,
    ) -> PyResult<NativeQuery> {
        let opened = self.opened(py)?;
        let mut statement = Statement::from(text).with_parameters(parameters::given(values)?);
        statement.line = line;
        for (name, rows) in tables.iter() {
            let rows = arrow_stream::imported(&rows)?;
            let name = name.extract::<String>()?;
            let named = format!("the data frame {name}");
            let schema = rows.schema();
            let batches = runtime::without_lock(py, || rows.collect::<Result<Vec<_>, _>>());
            let batches = batches.map_err(|error| unread(py, &error))?;
            let load = checked(py, StreamLoad::of_batches(&named, &schema, batches.into_iter().map(Ok)))?;
            let schema = load.schema().clone();
            let batches = checked(py, runtime::without_lock(py, || load.collect()))?;
            statement = statement.with_table(&name, schema, batches);
        }
        let query = runtime::wait(py, async move { opened.session.sql(statement).await })?;
        Ok(NativeQuery::new(query))
    }

    /// Plans a batch of statements, which run together.
    fn batch(&self, py: Python<'_>, texts: Vec<String>) -> PyResult<NativeBatch> {
        let opened = self.opened(py)?;
        let statements = texts.iter().map(|text| Statement::from(text.as_str()));
        Ok(NativeBatch::new(opened.session.batch(statements.collect::<Vec<_>>())))
    }

    /// Loads files, or an object with `__arrow_c_stream__`, as a table. Returns its description as JSON, the number of
    /// rows that were read, and a note about columns that were left out. `tell` is called with the bytes read, the
    /// total bytes (0 if unknown) and the rows read.
    #[pyo3(signature = (table, source, *, mode, columns, options, nested_as_json, encryption, pin, keep, tell))]
    #[expect(clippy::too_many_arguments, reason = "each has its name in Python")]
    fn load(
        &self,
        py: Python<'_>,
        table: &str,
        source: &Bound<'_, PyAny>,
        mode: &str,
        columns: Option<Vec<String>>,
        options: &Bound<'_, PyDict>,
        nested_as_json: bool,
        encryption: Option<&str>,
        pin: bool,
        keep: bool,
        tell: Option<Bound<'_, PyAny>>,
    ) -> PyResult<(String, u64, Option<String>)> {
        let opened = self.opened(py)?;
        let read = read_options(options)?;
        let mode = match mode {
            "create" => LoadMode::Create,
            "append" => LoadMode::Append,
            "replace" => LoadMode::Replace,
            other => {
                let error = Error::invalid(format!("there is no way {other:?} to load a table"));
                return Err(errors::raised(
                    py,
                    &error.advise("write mode=\"create\", \"append\" or \"replace\""),
                ));
            }
        };
        let residency = match (pin, keep) {
            (true, _) => Residency::Pinned,
            (false, true) => Residency::Cached,
            (false, false) => Residency::Passing,
        };
        let encryption = checked(py, encryption.map(tier).transpose())?;
        let name = checked(py, TableName::parse(table))?;
        let load =
            Load { name, columns, nested_as_json, options: LoadOptions { mode, encryption, residency } };
        let progress = Progress::default();
        let told = progress.clone();
        let tell = |_: Python<'_>| tell.as_ref().map_or(Ok(()), |tell| told.tell(tell));
        // A pyarrow table is also a list of columns.
        let is_frame = source.hasattr("__arrow_c_stream__")?;
        match source.extract::<Vec<String>>() {
            Ok(files) if !is_frame => {
                let work = async move { load.files(&*opened.pool, files, read, &progress).await };
                runtime::wait_telling(py, work, tell)
            }
            _ => {
                if read != ReadOptions::default() {
                    let error = Error::invalid("options of files were given with rows that are in memory");
                    return Err(errors::raised(py, &error.advise("leave them out")));
                }
                let rows = arrow_stream::imported(source)?;
                runtime::wait_telling(
                    py,
                    async move { load.rows(&*opened.pool, rows, &progress).await },
                    tell,
                )
            }
        }
    }

    /// Returns the profile of a table, as JSON and as an HTML page. `tell` is called as by `load`, with the number of
    /// profiled rows.
    fn profile(
        &self,
        py: Python<'_>,
        name: &str,
        columns: Option<Vec<String>>,
        tell: Option<Bound<'_, PyAny>>,
    ) -> PyResult<(String, String)> {
        let (pool, name) = (self.opened(py)?.pool, checked(py, TableName::parse(name))?);
        let rows = Arc::new(AtomicU64::new(0));
        let profiled = rows.clone();
        let work = async move {
            let found = farpool::profile_table(&*pool, &name, columns.as_deref(), &profiled).await?;
            let (columns, info) = (Some(found.columns.as_slice()), Some(&found.info));
            let report = Report::new(name.as_str(), Source::Pool, &found.profile, columns, info);
            Ok((report.to_json(), report.to_html()))
        };
        runtime::wait_telling(py, work, |_| {
            let rows = rows.load(Ordering::Relaxed);
            tell.as_ref().map_or(Ok(()), |tell| tell.call1((0, 0, rows)).map(drop))
        })
    }

    /// Returns the tables, views and schemas, as JSON: an array of three arrays.
    fn list(&self, py: Python<'_>) -> PyResult<String> {
        let pool = self.opened(py)?.pool;
        let listing = runtime::wait(py, async move { pool.list(None).await })?;
        let tables: Vec<_> = listing.tables.iter().map(farpool::table_json).collect();
        let views: Vec<_> = listing.views.iter().map(TableName::written).collect();
        Ok(serde_json::json!([tables, views, listing.schemas]).to_string())
    }

    /// Describes a table, as JSON.
    fn table(&self, py: Python<'_>, name: &str) -> PyResult<String> {
        let (pool, name) = (self.opened(py)?.pool, checked(py, TableName::parse(name))?);
        let table = runtime::wait(py, async move { pool.table(&name).await })?;
        Ok(farpool::table_json(&table).to_string())
    }

    fn drop(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let (pool, name) = (self.opened(py)?.pool, checked(py, TableName::parse(name))?);
        runtime::wait(py, async move { pool.drop_table(&name).await })
    }

    fn status(&self, py: Python<'_>) -> PyResult<String> {
        let pool = self.opened(py)?.pool;
        as_json(py, &runtime::wait(py, async move { pool.status().await })?)
    }

    /// Closes the pool. Work in this process is ended, and a node with a data directory stops cleanly. Blocks until
    /// then.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let taken = self.lock().take();
        let taken = checked(py, taken)?;
        runtime::without_lock(py, || {
            let Some(opened) = taken else { return };
            let _entered = runtime::entered();
            if let Some(node) = &opened.node {
                node.shutdown();
            }
            drop(opened);
        });
        Ok(())
    }

    fn is_closed(&self, py: Python<'_>) -> PyResult<bool> {
        let is_closed = self.lock().get().map(|opened| opened.is_none());
        checked(py, is_closed)
    }
}

impl NativePool {
    async fn over(
        pool: Arc<dyn Pool>,
        node: Option<Arc<Node>>,
        memory: usize,
        work: Arc<WorkMemory>,
        options: SessionOptions,
    ) -> farpool::Result<Self> {
        let files = Arc::new(QueryFiles::new(memory).with_work_memory(work.clone()));
        let options = SessionOptions { rates: farpool::calibrated_rates(), work: Some(work), ..options };
        let session = farpool::open_session(options, pool.clone(), files).await?;
        let url = pool.url();
        Ok(NativePool { opened: Mutex::new(Owned::new(Opened { session, pool, node })), url })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Owned<Opened>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self, py: Python<'_>) -> PyResult<Opened> {
        let opened = self.lock().get().map(|opened| opened.cloned());
        checked(py, opened)?.ok_or_else(|| {
            errors::raised(py, &Error::invalid("the pool is closed").advise("open or connect it again"))
        })
    }
}

fn tier(name: &str) -> farpool::Result<Tier> {
    name.parse().map_err(Error::invalid)
}

/// Converts a number of seconds to a duration.
fn seconds(given: f64) -> farpool::Result<Duration> {
    let time = Duration::try_from_secs_f64(given).ok().filter(|time| !time.is_zero());
    time.ok_or_else(|| {
        Error::invalid(format!("{given} is no time")).advise("give seconds, such as 30 or 0.5")
    })
}

/// Returns the proof of identity that the node at `url` must give, so that its answers can be encrypted.
fn proof(url: &PoolUrl, token: Option<&str>, node_key: Option<&str>) -> farpool::Result<Proof> {
    match (node_key, token) {
        (Some(key), _) => PublicKey::from_hex(key.trim()).map(Proof::NodeKey).ok_or_else(|| {
            Error::invalid("node_key is no public key").advise("it has 64 hexadecimal digits")
        }),
        (None, Some(token)) if url.is_encrypted() => Ok(Proof::Token(Arc::new(TokenKey::of(token)?))),
        (None, _) => {
            let what =
                "encrypt_results needs to know who the node is: anybody between could answer in its place";
            Err(Error::invalid(what).advise(
                "give node_key, which 'farpool serve' prints, or connect to farpools:// with a token",
            ))
        }
    }
}

/// Converts options for reading files from keyword arguments with their names in SQL, such as `nullstr="NA"`.
fn read_options(given: &Bound<'_, PyDict>) -> PyResult<ReadOptions> {
    let mut options = ReadOptions::default();
    for (name, value) in given.iter() {
        let name: String = name.extract()?;
        checked(given.py(), options.set(&name, &option(&value)?))?;
    }
    Ok(options)
}

fn option(value: &Bound<'_, PyAny>) -> PyResult<OptionValue> {
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(OptionValue::Flag(flag.is_true()));
    }
    if value.is_instance_of::<PyInt>() {
        return Ok(OptionValue::Number(value.extract()?));
    }
    if value.is_instance_of::<PyString>() {
        return Ok(OptionValue::Text(value.extract()?));
    }
    if let Ok(map) = value.cast::<PyDict>() {
        let pairs = map.iter().map(|(key, value)| Ok((key.extract()?, option(&value)?)));
        return Ok(OptionValue::Map(pairs.collect::<PyResult<_>>()?));
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let values = value.try_iter()?.map(|value| option(&value?));
        return Ok(OptionValue::List(values.collect::<PyResult<_>>()?));
    }
    Err(PyTypeError::new_err(format!(
        "an option is a text, a number, True or False, a list or a dictionary, not {value}"
    )))
}

/// Returns the error for a data frame whose rows could not be read. If the caller's Python code raised an exception,
/// returns that one.
pub fn unread(py: Python<'_>, error: &ArrowError) -> PyErr {
    match PyErr::take(py) {
        Some(raised) => raised,
        None => errors::raised(py, &Error::invalid(format!("the rows could not be read: {error}"))),
    }
}

fn as_json(py: Python<'_>, value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|error| errors::raised(py, &Error::internal(error.to_string())))
}
