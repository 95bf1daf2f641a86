//! Opening of sessions and pools, for the program `farpool` and for packages of other languages.

use crate::{
    CopyFiles, NearPool, Nearness, Pool, PoolUrl, QueryFiles, RemotePool, Result, Session, SessionOptions,
    WorkMemory,
};
use std::sync::Arc;

/// Opens a session over `pool`. It reads the files that statements name, and writes those of COPY.
///
/// # Errors
/// The pool's error if it cannot list its tables.
pub async fn open_session(
    options: SessionOptions,
    pool: Arc<dyn Pool>,
    files: Arc<QueryFiles>,
) -> Result<Session> {
    let session = Session::new(options);
    session.register_pool("farpool", pool).await?;
    session.set_file_opener(files);
    session.set_file_writer(Arc::new(CopyFiles));
    Ok(session)
}

/// Creates a client-side cache of up to `bytes_max` bytes for columns of the node at `url`, with request parameters
/// that suit the connection.
///
/// # Errors
/// The errors of [`NearPool::open`]; fails if the node does not answer.
pub async fn connect_near(
    url: &PoolUrl,
    remote: RemotePool,
    bytes_max: usize,
    work: Arc<WorkMemory>,
) -> Result<Arc<NearPool>> {
    let transfer = crate::transfer_over(url, &remote).await?;
    let near = NearPool::open(Arc::new(remote), bytes_max, work, Nearness::Auto)?;
    near.set_transfer(transfer);
    Ok(near)
}
