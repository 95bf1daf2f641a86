//! The tables of the suite `doors`, which are made in farpool's node and in PostgreSQL from the same rows.

use super::definition::Definition;
use crate::dbms::{Postgres, Served};
use crate::tables;
use anyhow::Result;
use arrow::array::{Int32Array, RecordBatch, StringArray};
use arrow::error::ArrowError;
use std::iter;
use std::path::PathBuf;
use std::sync::Arc;

/// Rows of `pgbench_accounts` for each one of `pgbench_branches`, as pgbench has it.
const ACCOUNTS_OF_BRANCH: u32 = 100_000;

/// Characters of the column that fills the rows of `pgbench_accounts`.
const FILLER: usize = 84;

/// Returns the value of an account; the same as in `bench/rivals/doors_driver.py` and `bench/rivals/jdbc/Doors.java`.
pub fn value_of(account: u32) -> i64 {
    i64::from(account) * 7919 % 100_003
}

/// Makes all tables; returns the file of the large one.
pub async fn make(definition: &Definition, served: &Served, postgres: Option<&Postgres>) -> Result<PathBuf> {
    let (table, small) = (&definition.table.name, &definition.small);
    let file = tables::file(&definition.table, definition.rows)?;
    let schema = tables::read(&file)?.schema();
    served.create_table(table, schema.clone(), tables::read(&file)?).await?;
    let accounts = accounts(small.accounts)?;
    let branches = branches(small.accounts.div_ceil(ACCOUNTS_OF_BRANCH))?;
    let others = [("pgbench_accounts", accounts), ("pgbench_branches", branches)];
    for (name, batch) in &others {
        served.create_table(name, batch.schema(), one(batch)).await?;
    }
    if let Some(postgres) = postgres {
        postgres.create_table(table, &schema, tables::read(&file)?)?;
        for (name, batch) in &others {
            postgres.create_table(name, &batch.schema(), one(batch))?;
        }
        let mut session = postgres.connect()?;
        session.run(&format!("CREATE UNIQUE INDEX ON {table} (id)"))?;
        session.run("CREATE UNIQUE INDEX ON pgbench_accounts (aid)")?;
        session.run("VACUUM (ANALYZE, FREEZE)")?;
    }
    Ok(file)
}

fn one(batch: &RecordBatch) -> impl Iterator<Item = Result<RecordBatch, ArrowError>> + Send + use<> {
    iter::once(Ok(batch.clone()))
}

fn accounts(count: u32) -> Result<RecordBatch> {
    let numbers = |of: &dyn Fn(u32) -> i64| -> Result<Int32Array> {
        let values = (1..=count).map(|account| i32::try_from(of(account)));
        Ok(values.collect::<Result<Vec<i32>, _>>()?.into())
    };
    let filler = " ".repeat(FILLER);
    let fillers = StringArray::from_iter_values((0..count).map(|_| &filler));
    Ok(RecordBatch::try_from_iter([
        ("aid", Arc::new(numbers(&|account| i64::from(account))?) as _),
        ("bid", Arc::new(numbers(&|account| i64::from((account - 1) / ACCOUNTS_OF_BRANCH + 1))?) as _),
        ("abalance", Arc::new(numbers(&value_of)?) as _),
        ("filler", Arc::new(fillers) as _),
    ])?)
}

fn branches(count: u32) -> Result<RecordBatch> {
    let count = i32::try_from(count)?;
    Ok(RecordBatch::try_from_iter([
        ("bid", Arc::new(Int32Array::from_iter_values(1..=count)) as _),
        ("bbalance", Arc::new(Int32Array::from_iter_values((1..=count).map(|_| 0))) as _),
    ])?)
}
