//! DataFusion's own SQL logic tests, with the tables in a pool, with and without push-down, and on encrypted tables
//! over a data directory.
//!
//! The files come from the published package (see `package.rs`); `testdata/slt/skip.toml` lists the records that are
//! not run or do not pass, with reasons. Statements that never apply are skipped here: EXPLAIN, because the plans
//! differ; external tables and COPY, because their files are not in the package, and every record that names such a
//! table. The text of an expected error is not compared. If a query has no ORDER BY, the order of its rows is not
//! compared.
//!
//! `FARPOOL_SLT=part-of-a-path` runs only some files.

mod engine;
mod format;
mod package;
mod script;
mod skip;
mod sqlite;

use engine::Setting;
use script::{Outcome, Script};
use skip::Skip;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_logic_tests_pass_in_every_setting() {
    let folder = package::test_files();
    let skip = Skip::read();
    let wanted = std::env::var("FARPOOL_SLT").ok();
    let files = package::files(&folder).into_iter().filter(|path| match &wanted {
        Some(part) => path.contains(part.as_str()),
        None => !skip.file(path),
    });
    let queue = std::sync::Mutex::new(files.collect::<Vec<_>>().into_iter());
    let next = || queue.lock().expect("no holder panics").next();
    let work = || async {
        let mut outcome = Outcome::default();
        while let Some(path) = next() {
            let script = Script::read(&folder, &path);
            let mut runs = Vec::new();
            for setting in [Setting::Pushed, Setting::Plain, Setting::Kept] {
                runs.push((setting, script.run(&skip, setting).await));
            }
            outcome.add(&path, runs);
        }
        outcome
    };
    let (mut outcome, other) = futures::future::join(work(), work()).await;
    outcome.merge(other);
    report(&outcome, wanted.is_none());
}

fn report(outcome: &Outcome, complete: bool) {
    println!(
        "{} files, {} records passed in every setting, {} left out, {} listed as failing",
        outcome.files,
        outcome.passed,
        outcome.left_out,
        outcome.known.len()
    );
    let failures: Vec<&str> = outcome.failures.iter().map(String::as_str).collect();
    assert!(failures.is_empty(), "{} records fail:\n\n{}", failures.len(), failures.join("\n\n"));
    let stale: BTreeSet<_> = outcome.passed_though_listed.difference(&outcome.known).collect();
    assert!(
        !complete || stale.is_empty(),
        "these records pass: take them off the list in testdata/slt/skip.toml: {stale:?}"
    );
    let moved = engine::TABLES_MOVED.load(Ordering::Relaxed);
    assert!(!complete || moved > 100, "only {moved} tables were in the pool");
}
