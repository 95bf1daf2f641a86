//! The definition of the benchmark suite `clients`, read from `bench/definitions/clients.toml` (the fields are
//! explained there).

use crate::tables::TableDefinition;
use serde::Deserialize;

/// The definition of the suite.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    pub threads: usize,
    pub rows: u64,
    pub window_s: f64,
    pub small_queries: usize,
    pub table: TableDefinition,
    pub small: Small,
    pub shares: Vec<Shares>,
    pub floods: Vec<Flood>,
    pub growing: Growing,
    pub inserts: Inserts,
    pub appends: Appends,
    pub changes: Changes,
}

/// The client whose small queries are measured, and its table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Small {
    pub table: String,
    pub rows: u64,
    pub sql: String,
}

/// A case of clients that share the node.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shares {
    pub name: String,
    pub sql: String,
    pub tenants: Vec<Tenant>,
    pub within: f64,
}

/// A tenant and its number of clients.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tenant {
    pub weight: u32,
    pub clients: usize,
}

/// Clients that are never idle, concurrent with the client of small queries.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flood {
    pub name: String,
    pub clients: usize,
    pub sql: String,
    pub at_most: f64,
}

/// A table that grows by single rows, and the limit of its memory.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Growing {
    pub times: f64,
    pub plus_mib: u64,
    pub table: TableDefinition,
}

/// Rows inserted on a schedule.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inserts {
    pub connections: usize,
    pub per_second: u64,
    pub alone_s: f64,
    pub beside_s: f64,
    pub sql: String,
}

/// Rows appended as fast as the node accepts them, and the scans that follow.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Appends {
    pub connections: usize,
    pub rows: u64,
    pub runs: usize,
    pub at_most: f64,
    pub scans: Vec<Scan>,
}

/// A statement that is timed over both tables.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scan {
    pub name: String,
    pub sql: String,
}

/// Statements that change a part of a table, and the check of their results.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Changes {
    pub scale: f64,
    pub runs: usize,
    pub sides: Vec<String>,
    pub sums: String,
    pub cases: Vec<Change>,
}

/// A statement that changes some rows.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    pub name: String,
    pub first: usize,
    pub condition: String,
    pub sql: String,
    pub after: String,
}

impl Growing {
    /// Returns the maximal bytes of the pool that the table may use if a load of the same rows uses `loaded`.
    pub fn bytes_at_most(&self, loaded: u64) -> u64 {
        (loaded as f64 * self.times) as u64 + (self.plus_mib << 20)
    }
}

impl Inserts {
    /// Returns the number of rows that are inserted in `seconds`.
    pub fn rows(&self, seconds: f64) -> u64 {
        (self.per_second as f64 * seconds) as u64
    }
}

impl Shares {
    /// Returns the expected share of the node of each client, tenant by tenant.
    pub fn expected(&self) -> Vec<f64> {
        let weights: u32 = self.tenants.iter().map(|tenant| tenant.weight).sum();
        let of = |tenant: &Tenant| {
            let part = f64::from(tenant.weight) / f64::from(weights) / tenant.clients as f64;
            std::iter::repeat_n(part, tenant.clients)
        };
        self.tenants.iter().flat_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Definition;
    use crate::places;

    #[test]
    fn shares_add_up() {
        let definition: Definition = places::definition("clients").expect("it can be read");
        for shares in &definition.shares {
            assert!((shares.expected().iter().sum::<f64>() - 1.0).abs() < 1e-9, "{}", shares.name);
            assert!(shares.sql.contains(&definition.table.name));
        }
        assert!(definition.small.sql.contains(&definition.small.table));
        let growing = &definition.growing;
        let scans = definition.appends.scans.iter().map(|scan| &scan.sql);
        assert!(scans.chain([&definition.inserts.sql]).all(|sql| sql.contains(&growing.table.name)));
        assert_eq!(growing.bytes_at_most(1 << 20), 18 << 20);
        // Every run changes a different hundredth of the table, so that no run changes rows twice.
        let mut hundredths = definition.changes.cases.iter().map(|case| case.first).collect::<Vec<_>>();
        hundredths.push(100);
        assert!(hundredths.windows(2).all(|next| next[0] + definition.changes.runs < next[1]));
    }
}
