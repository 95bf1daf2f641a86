//! The pool at the other end of a socket.

use crate::{BatchStream, Execution, Pool, PoolUrl};
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use farpool_model::{LoadMode, Prepared, Program, Result, Status, TableInfo, TableName};

/// A node reached over TCP.
#[derive(Debug)]
pub struct RemotePool {
    url: PoolUrl,
}

impl RemotePool {
    /// Connects to the node at `url`.
    pub async fn connect(_url: &PoolUrl, _token: Option<String>) -> Result<Self> {
        todo!()
    }
}

#[async_trait]
impl Pool for RemotePool {
    fn url(&self) -> String {
        self.url.to_string()
    }

    fn is_remote(&self) -> bool {
        true
    }

    async fn tables(&self) -> Result<Vec<TableInfo>> {
        todo!()
    }

    async fn table(&self, _name: &TableName) -> Result<TableInfo> {
        todo!()
    }

    async fn prepare(&self, _program: &Program) -> Result<Prepared> {
        todo!()
    }

    async fn execute(&self, _program: &Program, _streams_wanted: usize) -> Result<Execution> {
        todo!()
    }

    async fn load(
        &self,
        _name: &TableName,
        _mode: LoadMode,
        _schema: SchemaRef,
        _rows_hint: Option<u64>,
        _batches: BatchStream,
    ) -> Result<TableInfo> {
        todo!()
    }

    async fn drop_table(&self, _name: &TableName) -> Result<()> {
        todo!()
    }

    async fn status(&self) -> Result<Status> {
        todo!()
    }
}
