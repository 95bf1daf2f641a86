//! Row counts, domains, hierarchies and filter factors of the generated tables, asked of a pool that has loaded them.

use super::data::{Sizes, TABLES, rows};
use crate::answers::Cell;
use crate::{node, places, pools, suite};
use anyhow::{Context, Result, bail};
use farpool::model::TenantName;
use farpool::{EmbeddedPool, LoadMode, Session};
use std::sync::Arc;

/// The published filter factors: the share of `lineorder` that a query selects.
const FACTORS: [(&str, f64); 13] = [
    ("1.1", 1.0 / 7.0 * 0.5 * 3.0 / 11.0),
    ("1.2", 1.0 / 84.0 * 0.2 * 3.0 / 11.0),
    ("1.3", 1.0 / 364.0 * 0.1 * 3.0 / 11.0),
    ("2.1", 1.0 / 25.0 / 5.0),
    ("2.2", 1.0 / 125.0 / 5.0),
    ("2.3", 1.0 / 1000.0 / 5.0),
    ("3.1", 1.0 / 5.0 / 5.0 * 6.0 / 7.0),
    ("3.2", 1.0 / 25.0 / 25.0 * 6.0 / 7.0),
    ("3.3", 1.0 / 125.0 / 125.0 * 6.0 / 7.0),
    ("3.4", 1.0 / 125.0 / 125.0 / 84.0),
    ("4.1", 1.0 / 5.0 / 5.0 * 2.0 / 5.0),
    ("4.2", 1.0 / 5.0 / 5.0 * 2.0 / 5.0 * 2.0 / 7.0),
    ("4.3", 1.0 / 5.0 / 25.0 / 25.0 * 2.0 / 7.0),
];

/// Conditions that no row meets, after the tables in which they are looked for.
const VIOLATIONS: [&str; 13] = [
    "lineorder WHERE lo_linenumber NOT BETWEEN 1 AND 7 OR lo_quantity NOT BETWEEN 1 AND 50",
    "lineorder WHERE lo_discount NOT BETWEEN 0 AND 10 OR lo_tax NOT BETWEEN 0 AND 8",
    "lineorder WHERE lo_revenue <> lo_extendedprice * (100 - lo_discount) / 100",
    "lineorder WHERE lo_supplycost <> lo_extendedprice / lo_quantity * 6 / 10",
    "lineorder WHERE lo_commitdate < lo_orderdate OR lo_orderkey % 32 >= 8",
    "(SELECT max(lo_ordtotalprice) AS most, min(lo_ordtotalprice) AS least, max(lo_linenumber) AS lines, count(*) AS rows,
        sum(lo_revenue * (100 + lo_tax) / 100) AS total, count(DISTINCT lo_custkey) AS customers,
        count(DISTINCT lo_orderdate) AS dates, count(DISTINCT lo_orderpriority) AS priorities
      FROM lineorder GROUP BY lo_orderkey) AS orders
     WHERE most <> total OR least <> total OR lines <> rows OR customers <> 1 OR dates <> 1 OR priorities <> 1",
    "lineorder LEFT JOIN date ON lo_orderdate = d_datekey WHERE d_datekey IS NULL",
    "lineorder LEFT JOIN date ON lo_commitdate = d_datekey WHERE d_datekey IS NULL",
    "lineorder LEFT JOIN customer ON lo_custkey = c_custkey WHERE c_custkey IS NULL",
    "lineorder LEFT JOIN supplier ON lo_suppkey = s_suppkey WHERE s_suppkey IS NULL",
    "lineorder LEFT JOIN part ON lo_partkey = p_partkey WHERE p_partkey IS NULL",
    "part WHERE NOT starts_with(p_category, p_mfgr) OR NOT starts_with(p_brand1, p_category)
        OR NOT starts_with(p_name, p_color) OR p_size NOT BETWEEN 1 AND 50",
    "customer WHERE length(c_city) <> 10 OR trim(left(c_city, 9)) <> trim(left(c_nation, 9))",
];

/// Numbers of different values.
const DOMAINS: [(&str, &str, i128); 18] = [
    ("part", "p_mfgr", 5),
    ("part", "p_category", 25),
    ("part", "p_brand1", 1000),
    ("part", "p_color", 92),
    ("part", "p_type", 150),
    ("part", "p_container", 40),
    ("customer", "c_region", 5),
    ("customer", "c_nation", 25),
    ("customer", "c_region || c_nation", 25),
    ("customer", "c_city", 250),
    ("customer", "c_mktsegment", 5),
    ("supplier", "s_city", 250),
    ("lineorder", "lo_discount", 11),
    ("lineorder", "lo_orderpriority", 5),
    ("lineorder", "lo_shipmode", 7),
    ("date", "d_year", 7),
    ("date", "d_yearmonth", 84),
    ("date", "d_weeknuminyear", 53),
];

/// Loads all tables into a pool.
async fn loaded(sizes: Sizes) -> Result<Arc<Session>> {
    let pool = EmbeddedPool::over(node::start(2)?, TenantName::default());
    for table in TABLES {
        let batches = rows(table, sizes)?.collect::<Result<Vec<_>, _>>()?;
        pools::load(&*pool, table, LoadMode::Create, batches).await?;
    }
    pools::session(pool, true, 2).await
}

/// Runs a query whose result is one number.
async fn number(session: &Session, sql: &str) -> Result<i128> {
    let answer = pools::run(session, sql).await.with_context(|| sql.to_string())?.answer()?;
    match answer.rows.as_slice() {
        [row] => match row.as_slice() {
            [Cell::Exact { unscaled, scale: 0 }] => Ok(*unscaled),
            other => bail!("{sql} is {other:?}"),
        },
        rows => bail!("{sql} has {} rows", rows.len()),
    }
}

fn block_on<T>(work: impl Future<Output = Result<T>>) -> T {
    let done = suite::runtime(2).and_then(|runtime| runtime.block_on(work));
    done.unwrap_or_else(|error| panic!("{error:#}"))
}

#[test]
fn sizes_are_those_of_the_definition() {
    let sizes = |scale| Sizes::of(scale).expect("the scale is allowed");
    let one = Sizes { suppliers: 2_000, customers: 30_000, parts: 200_000, orders: 1_500_000 };
    assert_eq!(sizes(1.0), one);
    assert_eq!((sizes(2.0).parts, sizes(10.0).parts, sizes(0.1).parts), (400_000, 800_000, 20_000));
    assert!(Sizes::of(0.0).is_err() && Sizes::of(f64::NAN).is_err() && Sizes::of(301.0).is_err());
}

#[test]
fn tables_have_the_published_domains() {
    // Enough customers and suppliers for all cities, and parts for all brands.
    let sizes = Sizes { suppliers: 4_000, customers: 4_000, parts: 20_000, orders: 15_000 };
    block_on(async {
        let session = loaded(sizes).await?;
        let count = async |from: &str| number(&session, &format!("SELECT count(*) FROM {from}")).await;
        assert_eq!(count("date").await?, 2_556);
        assert_eq!(count("part").await?, 20_000);
        let lines = count("lineorder").await?;
        assert!((59_000..61_000).contains(&lines), "{lines} rows of lineorder");
        for violation in VIOLATIONS {
            assert_eq!(count(violation).await?, 0, "{violation}");
        }
        for (table, value, expected) in DOMAINS {
            let sql = format!("SELECT count(DISTINCT {value}) FROM {table}");
            assert_eq!(number(&session, &sql).await?, expected, "{sql}");
        }
        Ok(())
    });
}

/// Dimensions are larger than at this scale, so that cities and brands have about their share of them.
#[test]
fn queries_select_the_published_shares() {
    let sizes = Sizes { suppliers: 100_000, customers: 100_000, parts: 400_000, orders: 250_000 };
    block_on(async {
        let session = loaded(sizes).await?;
        let lines = number(&session, "SELECT count(*) FROM lineorder").await? as f64;
        for (query, factor) in FACTORS {
            let sql = places::query("ssb", query)?;
            let from = sql.find("FROM").context("a query has FROM")?;
            let end = sql.find("GROUP BY").unwrap_or(sql.len());
            let selected = number(&session, &format!("SELECT count(*) {}", &sql[from..end])).await? as f64;
            // Dimensions are drawn as well: up to a tenth more or less, beside four standard deviations.
            let expected = factor * lines;
            let tolerance = expected / 10.0 + 4.0 * expected.sqrt();
            println!("q{query}: {selected} rows, {expected:.1} expected");
            assert!((selected - expected).abs() <= tolerance, "q{query}: {selected}, not {expected:.1}");
        }
        // Few rows meet all conditions of Q3.4: Q3.3 has those on cities, and the month is looked at alone. It has some
        // 3,000 orders, whose number varies by 2 % (a standard deviation).
        let month =
            "SELECT count(*) FROM lineorder, date WHERE lo_orderdate = d_datekey AND d_yearmonth = 'Dec1997'";
        let share = number(&session, month).await? as f64 / lines * 84.0;
        assert!((0.9..1.1).contains(&share), "{share} of a month");
        Ok(())
    });
}

#[test]
fn rows_do_not_depend_on_batches() {
    let sizes = Sizes::of(0.001).expect("the scale is allowed");
    let days = super::dates::keys();
    let batch = |orders| super::lineorder::batch(orders, sizes, &days).expect("it is generated");
    let (whole, parts) = (batch(0..1500), [batch(0..7), batch(7..1500)]);
    assert_eq!(whole, arrow::compute::concat_batches(&whole.schema(), &parts).expect("schemas agree"));
    let streamed = rows("lineorder", sizes).expect("it is there").next().expect("a batch");
    assert_eq!(streamed.expect("it is generated"), whole);
}
