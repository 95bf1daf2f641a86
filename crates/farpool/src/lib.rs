//! Farpool: a compressed memory pool that runs the first operators of a query next to the data.
//!
//! A pool is either in this process ([`EmbeddedPool`]) or a remote node ([`connect`]); both are a [`Pool`], and both
//! answer SQL through a [`Session`]. The [`Receipt`] of a query contains its costs.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> farpool::Result<()> {
//! use farpool::{EmbeddedPool, LoadMode, Session, SessionOptions};
//! # let folder = tempfile::tempdir().unwrap();
//! # let file = folder.path().join("trips.csv");
//! # std::fs::write(&file, "city,fare\nOslo,12\nRome,7\nOslo,9\n").unwrap();
//!
//! let pool = EmbeddedPool::open(256 << 20)?;
//! farpool::load_files(&*pool, "trips", LoadMode::Create, &[&file]).await?;
//!
//! let session = Session::new(SessionOptions::default());
//! session.register_pool("farpool", pool).await?;
//! let query = session.sql("select count(*) from trips where city = 'Oslo'").await?;
//! let rows = query.collect().await?;
//! assert_eq!(rows[0].num_rows(), 1);
//! println!("{} bytes were scanned", query.receipt().bytes_scanned);
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod backup;
mod calibration;
#[cfg(feature = "cloud")]
mod cloud;
#[cfg(not(feature = "cloud"))]
#[path = "cloud/absent.rs"]
mod cloud;
// The replacement in programs without the feature is also compiled with the tests.
#[cfg(all(test, feature = "cloud"))]
#[path = "cloud/absent.rs"]
#[expect(dead_code, reason = "used without the feature")]
mod cloud_absent;
mod copy;
mod described;
mod embedded;
mod files;
pub mod literals;
mod machine;
mod morsels;
mod near;
mod nested;
mod opened;
mod ordered;
mod profile;
mod query_files;
pub mod report;
mod scan;
pub mod size;
mod stdin;
mod terminal_text;

pub use calibration::{
    CalibratedLink, calibrated_rates, calibration_file, keep_link, keep_rates, link_file, machine_name,
    transfer_over,
};
pub use copy::{CopyFiles, csv_header, csv_lines, textual};
pub use described::table_json;
pub use embedded::EmbeddedPool;
pub use farpool_datafusion::{
    Batch, CopyTarget, FileAccess, FileOpener, FileWriter, Interrupt, Parameters, Piece, PieceKind,
    PoolTable, Query, Rates, Session, SessionOptions, Statement, is_whole_sql, split_statements, sql_pieces,
};
pub use farpool_gateway as gateway;
pub use farpool_memory::WorkMemory;
pub use farpool_model as model;
pub use farpool_model::{
    Error, ErrorKind, FileSpec, LoadMode, LoadOptions, Program, QueryInfo, ReadOptions, Receipt, Residency,
    Result, ResultForm, Status, TableInfo, TableName, TenantName, Tier,
};
pub use farpool_node as node;
pub use farpool_sql::{check_json, json_float, json_writer};
pub use farpool_statistics as statistics;
pub use farpool_transfer::{
    BatchStream, ClientOptions, ClientTls, Connector, Execution, Pool, PoolUrl, Proof, PublicKey, RemotePool,
    TokenKey,
};
pub use files::{FileLoad, StreamLoad, held_columns, load_files, stream_blocking};
pub use machine::{memory_bytes, memory_bytes_default, processors, user_folder, work_bytes_default};
pub use near::{NearPool, Nearness, Transfer};
pub use opened::{connect_near, open_session};
pub use profile::{Profiling, TableProfile, column_positions, profile_table};
pub use query_files::QueryFiles;
pub use terminal_text::{EscapeStyle, TerminalText, is_obeyed};

use std::sync::Arc;

/// Connects to the node at `url` (`farpool://host:port`, or `farpools://host:port` if it has a certificate that the
/// system trusts), with `token` if there is one.
///
/// # Errors
/// `Invalid` for a text that is not an address, `Unavailable` if no node answers there or its certificate is not
/// trusted, `Denied` if it does not accept the token.
///
/// ```no_run
/// # async fn example() -> farpool::Result<()> {
/// let pool = farpool::connect("farpool://127.0.0.1:9797", None).await?;
/// for table in pool.tables().await? {
///     println!("{}: {} rows", table.name, table.rows);
/// }
/// # Ok(())
/// # }
/// ```
pub async fn connect(url: &str, token: Option<&str>) -> Result<Arc<dyn Pool>> {
    let options = ClientOptions { token: token.map(str::to_string), ..ClientOptions::default() };
    connect_for(url, options, ResultForm::default()).await
}

/// Connects to the node at `url` with all options of a client, and requests results in the form `results`.
///
/// # Errors
/// The errors of [`connect`].
pub async fn connect_for(url: &str, options: ClientOptions, results: ResultForm) -> Result<Arc<dyn Pool>> {
    let url: PoolUrl = url.parse()?;
    let pool = RemotePool::connect(&url, options).await?;
    Ok(Arc::new(pool.with_results(results)))
}
