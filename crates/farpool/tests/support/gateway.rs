//! The way from a gateway to a node in this process, and a table to ask about.

use arrow::array::{
    Date32Array, Decimal128Array, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
};
use farpool::gateway::Door;
use farpool::node::Node;
use farpool::node::access::Proof;
use farpool::{EmbeddedPool, LoadMode, Pool, Result, TableName};
use futures::StreamExt;
use std::sync::Arc;

/// The way to a node in this process.
#[derive(Debug)]
pub struct Here(pub Arc<Node>);

#[async_trait::async_trait]
impl Door for Here {
    async fn open(&self, token: Option<&str>) -> Result<Arc<dyn Pool>> {
        Ok(EmbeddedPool::for_token(Arc::clone(&self.0), token)?)
    }

    fn proof(&self, user: &str) -> Result<Option<Proof>> {
        self.0.proof(user)
    }
}

/// Loads the table `items`.
pub async fn load_items(pool: &EmbeddedPool) {
    let rows = 20_000;
    let table = RecordBatch::try_from_iter_with_nullable([
        ("id", Arc::new(Int64Array::from_iter_values(0..rows)) as _, true),
        (
            "part",
            Arc::new(Int32Array::from_iter((0..rows).map(|n| (n % 7 > 0).then_some((n % 7) as i32)))) as _,
            true,
        ),
        (
            "price",
            Arc::new(
                Decimal128Array::from_iter_values((0..rows).map(|n| i128::from(n) * 25))
                    .with_precision_and_scale(12, 2)
                    .unwrap(),
            ) as _,
            true,
        ),
        ("name", Arc::new(StringArray::from_iter_values((0..rows).map(|n| format!("name {n}")))) as _, true),
        ("day", Arc::new(Date32Array::from_iter_values((0..rows).map(|n| (n % 1000) as i32))) as _, true),
        ("x", Arc::new(Float64Array::from_iter_values((0..rows).map(|n| n as f64 / 4.0))) as _, true),
    ])
    .unwrap();
    let name = TableName::new("items").unwrap();
    let batches = futures::stream::iter([Ok(table.clone())]).boxed();
    pool.load(&name, LoadMode::Create.into(), table.schema(), None, batches).await.unwrap();
}
