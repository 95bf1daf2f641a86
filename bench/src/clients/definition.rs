//! The suite as data: `bench/definitions/clients.toml`, which explains the fields.

use crate::tables::TableDefinition;
use serde::Deserialize;

/// The suite.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    pub threads: usize,
    pub rows: u64,
    pub window_s: f64,
    pub small_queries: usize,
    pub quick: Quick,
    pub table: TableDefinition,
    pub small: Small,
    pub shares: Vec<Shares>,
    pub floods: Vec<Flood>,
}

/// What `--quick` changes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    rows: u64,
    window_s: f64,
    small_queries: usize,
}

/// The client of small queries, and its table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Small {
    pub table: String,
    pub rows: u64,
    pub sql: String,
}

/// Clients that share the node.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shares {
    pub name: String,
    pub sql: String,
    pub tenants: Vec<Tenant>,
    pub within: f64,
}

/// A tenant and how many clients it has.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tenant {
    pub weight: u32,
    pub clients: usize,
}

/// Clients that always want more, beside the one of small queries.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flood {
    pub name: String,
    pub clients: usize,
    pub sql: String,
    pub at_most: f64,
}

impl Definition {
    /// What `--quick` runs.
    pub fn shrink_to_quick(&mut self) {
        let Quick { rows, window_s, small_queries } = self.quick;
        (self.rows, self.window_s, self.small_queries) = (rows, window_s, small_queries);
    }
}

impl Shares {
    /// The part of the node that each client is to get, tenant by tenant.
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
    }
}
