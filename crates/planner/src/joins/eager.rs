//! Estimates whether it pays to group the rows of a table at the pool before the engine joins them (eager aggregation).

use crate::cost::joined::KEYS_SENT_MAX;
use crate::cost::{CHEAPER_BY, GROUPS_CACHED, Place, Rates};

/// Assumed bytes of a row or of a group: a join key and a value.
const ROW_BYTES: f64 = 16.0;

/// Estimated rows of a join, of which one side comes from a pool.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// Rows of the pool's side.
    pub side: f64,
    /// Groups of them.
    pub groups: f64,
    /// Rows of the other side.
    pub other: f64,
    /// Rows of the join, without early groups.
    pub joined: f64,
    /// Whether rows of the pool's side without a match are dropped.
    pub drops: bool,
}

/// Returns whether the pool should group the rows of its side before the engine joins them and groups again.
pub fn pays(rows: Rows, place: Place, rates: &Rates) -> bool {
    let (workers, threads) = place.speeds();
    // Keys of few rows thin out the scan of the pool's side in any case.
    let is_thin = rows.drops && rows.other <= KEYS_SENT_MAX;
    let share = if is_thin { (rows.joined / rows.side.max(1.0)).min(1.0) } else { 1.0 };
    let (scanned, groups) = (rows.side * share, rows.groups * share);
    let seconds = |sent: f64, joined: f64| {
        let engine = sent * ROW_BYTES / rates.decode_bytes
            + sent / rates.engine_probe_rows
            + joined / rates.engine_spread_rows;
        place.link.map_or(0.0, |link| sent * ROW_BYTES / link.bytes_per_s.max(1.0)) + engine / threads
    };
    let rate = if groups <= GROUPS_CACHED { rates.pool_group_rows } else { rates.pool_spread_rows };
    let joined = rows.joined * rows.groups / rows.side.max(1.0);
    let eager = scanned / rate / workers + seconds(groups, joined);
    eager < CHEAPER_BY * seconds(scanned, rows.joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pays_with(rows: Rows) -> bool {
        pays(rows, Place { link: None, workers: 2, threads: 2 }, &Rates::default())
    }

    #[test]
    fn it_pays_if_there_are_few_groups_and_most_rows_match() {
        let rows = Rows { side: 1e7, groups: 1e4, other: 1e4, joined: 1e7, drops: true };
        assert!(pays_with(rows));
        assert!(!pays_with(Rows { groups: 9e6, ..rows }), "as many groups as rows");
        assert!(pays_with(Rows { groups: 1e6, ..rows }));
        // Half as many groups do not make up for grouping in vain what the join drops afterwards.
        let outer = Rows { groups: 5e6, other: 2e6, joined: 1e4, ..rows };
        assert!(!pays_with(outer));
    }
}
