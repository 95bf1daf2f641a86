//! A remote node: connects, loads a file, queries it with push-down, and prints the bytes that crossed the network.
//!
//! `farpool serve`, then `cargo run --release --example remote -- farpool://127.0.0.1:9797 FILE.parquet`

use farpool::{LoadMode, Session, SessionOptions};

#[tokio::main]
async fn main() -> farpool::Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(url), Some(file)) = (args.next(), args.next()) else {
        return Err(farpool::Error::invalid("usage: remote URL FILE"));
    };

    let pool = farpool::connect(&url, None).await?;
    let table = farpool::load_files(&*pool, "t", LoadMode::Replace, &[&file]).await?;
    println!("{} rows in {}", table.rows, pool.url());

    let session = Session::new(SessionOptions::default());
    session.register_pool("farpool", pool.clone()).await?;
    let query = session.sql("select count(*) as rows from t").await?;
    for batch in query.collect().await? {
        println!("{batch:?}");
    }
    let receipt = query.receipt();
    println!("scanned {} bytes, {} crossed the network", receipt.bytes_scanned, receipt.bytes_on_wire);

    pool.drop_table(&table.name).await
}
