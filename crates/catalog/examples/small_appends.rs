//! Measures the cost of small appends: memory and time of 400 inserts of two rows, and of one-row inserts
//! compared with one load of the same rows. `cargo run --release --example small_appends -- 20000`

#![expect(clippy::disallowed_methods, reason = "it measures time, and has a thread for the background")]

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use farpool_catalog::{Background, Catalog, Chore, HelperThreads, StepOutcome};
use farpool_columns::Table;
use farpool_memory::{Pool, PoolConfig};
use farpool_model::{LoadMode, Result, TableName, TenantName};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

/// A [`Background`] of one thread, which works on the submitted chores.
#[derive(Debug)]
struct Thread(std::sync::mpsc::Sender<Chore>);

impl Thread {
    fn start() -> Thread {
        let (sender, chores) = std::sync::mpsc::channel::<Chore>();
        std::thread::spawn(move || {
            for chore in chores {
                while chore.step(&|| true) == StepOutcome::Worked {}
                chore.leave();
            }
        });
        Thread(sender)
    }
}

impl Background for Thread {
    fn submit(&self, chore: Chore) {
        // Sending fails only once the program ends; the chore is then not needed.
        drop(self.0.send(chore));
    }

    fn rows_came(&self) {}
}

#[derive(Debug)]
struct Alone;

impl HelperThreads for Alone {
    fn threads_max(&self) -> usize {
        1
    }

    fn run(&self, _threads: usize, work: &(dyn Fn() + Sync)) -> Result<()> {
        work();
        Ok(())
    }
}

fn main() {
    let appends = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(20_000);
    let rows_of_load = std::env::args().nth(2).and_then(|count| count.parse().ok()).unwrap_or(10_000_000);
    let catalog = catalog();
    load(&catalog, "small", LoadMode::Create, 0..2);
    let start = Instant::now();
    (0..400).for_each(|i| load(&catalog, "small", LoadMode::Append, 2 * i..2 * i + 2));
    println!("400 inserts of two rows: {:.1} MiB, {:.0} ms", mib(&catalog), ms(start));

    let catalog = self::catalog();
    load(&catalog, "appended", LoadMode::Create, 0..0);
    let start = Instant::now();
    let mut hundred = start;
    for i in 0..appends {
        if i % (appends / 10).max(1) == 0 {
            hundred = Instant::now();
        }
        load(&catalog, "appended", LoadMode::Append, i..i + 1);
        if i % (appends / 10).max(1) == 99 {
            println!("append {i}: {:.0} us", ms(hundred) * 10.0);
        }
    }
    println!("{appends} appends of one row: {:.1} MiB, {:.0} ms", mib(&catalog), ms(start));
    std::thread::sleep(std::time::Duration::from_millis(500));
    println!("a while later: {:.1} MiB", mib(&catalog));
    let whole = self::catalog();
    load(&whole, "whole", LoadMode::Create, 0..appends);
    println!("one load of as many: {:.1} MiB", mib(&whole));
    let (appended, whole) = (table(&catalog, "appended"), table(&whole, "whole"));
    for (name, table) in [("appends", &appended), ("one load", &whole)] {
        let best = (0..20).map(|_| scan(table)).fold(f64::MAX, f64::min);
        println!("decoding all after {name}: {best:.2} ms, {} row groups", table.row_groups.len());
    }

    let catalog = self::catalog();
    for _ in 0..3 {
        let start = Instant::now();
        load(&catalog, "large", LoadMode::Replace, 0..rows_of_load);
        println!("load of {rows_of_load} rows: {:.0} ms", ms(start));
    }
}

fn catalog() -> Arc<Catalog> {
    let pool = Pool::new(PoolConfig { bytes_limit: 16 << 30 }).expect("memory");
    Arc::new(Catalog::new(pool, Arc::new(Alone), Arc::new(Thread::start())))
}

fn rows(rows: std::ops::Range<i64>) -> RecordBatch {
    let columns: [(&str, ArrayRef); 3] = [
        ("id", Arc::new(Int64Array::from_iter_values(rows.clone()))),
        (
            "text",
            Arc::new(StringArray::from_iter_values(rows.clone().map(|i| format!("customer {}", i % 999)))),
        ),
        ("price", Arc::new(Float64Array::from_iter_values(rows.map(|i| i as f64 / 7.0)))),
    ];
    RecordBatch::try_from_iter(columns).expect("columns of one length")
}

fn load(catalog: &Arc<Catalog>, table: &str, mode: LoadMode, all: std::ops::Range<i64>) {
    let name = TableName::new(table).expect("a name");
    let schema = rows(0..0).schema();
    let mut load =
        catalog.begin_load(&TenantName::default(), &name, &schema, mode.into(), None).expect("begins");
    let mut start = all.start;
    while start < all.end {
        let end = all.end.min(start + 100_000);
        load.push(&rows(start..end)).expect("fits");
        start = end;
    }
    load.commit().expect("fits");
}

fn table(catalog: &Catalog, name: &str) -> Arc<Table> {
    catalog.get(&TenantName::default(), &TableName::new(name).expect("a name")).expect("is there").1
}

fn scan(table: &Table) -> f64 {
    let start = Instant::now();
    for group in table.row_groups.iter() {
        for chunk in &group.chunks {
            black_box(chunk.decode(0..group.rows).expect("all rows"));
        }
    }
    ms(start)
}

fn mib(catalog: &Catalog) -> f64 {
    catalog.pool().usage().bytes_used as f64 / (1 << 20) as f64
}

fn ms(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}
