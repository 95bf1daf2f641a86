//! A pool in this process: loads a file, queries it, and prints costs from the receipt.
//!
//! `cargo run --release --example embedded -- FILE.parquet`

use farpool::{EmbeddedPool, LoadMode, Pool, Session, SessionOptions};

#[tokio::main]
async fn main() -> farpool::Result<()> {
    let file = std::env::args().nth(1).ok_or_else(|| farpool::Error::invalid("usage: embedded FILE"))?;

    let pool = EmbeddedPool::open(farpool::memory_bytes_default())?;
    let table = farpool::load_files(&*pool, "t", LoadMode::Create, &[&file]).await?;
    println!("{} rows, {} bytes plain, {} in the pool", table.rows, table.bytes_plain, table.bytes_encoded);

    let session = Session::new(SessionOptions::default());
    session.register_pool("farpool", pool.clone()).await?;
    let query = session.sql("select count(*) as rows from t").await?;
    for batch in query.collect().await? {
        println!("{batch:?}");
    }
    println!("scanned {} bytes", query.receipt().bytes_scanned);

    pool.drop_table(&table.name).await
}
