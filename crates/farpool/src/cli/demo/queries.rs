//! The queries of the demo: TPC-H Q1, Q6 and Q3, a LIKE, and a selection of wide rows.

/// A query and a description of what it demonstrates.
pub struct DemoQuery {
    /// A short title for the table of results.
    pub title: &'static str,
    /// A sentence about the purpose of the query.
    pub about: &'static str,
    /// The text of the query.
    pub sql: &'static str,
}

/// The queries, in the order in which they run.
pub const QUERIES: [DemoQuery; 5] = [
    DemoQuery {
        title: "TPC-H Q1, group",
        about: "eight aggregates over nearly every row: grouped in the pool, a few rows come back",
        sql: "select l_returnflag, l_linestatus, sum(l_quantity) as sum_qty, \
              sum(l_extendedprice) as sum_base_price, \
              sum(l_extendedprice * (1 - l_discount)) as sum_disc_price, \
              sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) as sum_charge, \
              avg(l_quantity) as avg_qty, avg(l_extendedprice) as avg_price, \
              avg(l_discount) as avg_disc, count(*) as count_order \
              from lineitem where l_shipdate <= date '1998-09-02' \
              group by l_returnflag, l_linestatus order by l_returnflag, l_linestatus",
    },
    DemoQuery {
        title: "TPC-H Q6, filter and sum",
        about: "three conditions on packed numbers, one sum",
        sql: "select sum(l_extendedprice * l_discount) as revenue from lineitem \
              where l_shipdate >= date '1994-01-01' and l_shipdate < date '1995-01-01' \
              and l_discount between 0.05 and 0.07 and l_quantity < 24",
    },
    DemoQuery {
        title: "LIKE on comments",
        about: "a pattern looked for in compressed text, before any of it moves",
        sql: "select o_orderpriority, count(*) as orders from orders \
              where o_comment like '%special%requests%' \
              group by o_orderpriority order by o_orderpriority",
    },
    DemoQuery {
        title: "wide rows, few of them",
        about: "all 16 columns of under one row in a hundred",
        sql: "select * from lineitem where l_shipdate between date '1995-03-01' and date '1995-03-14'",
    },
    DemoQuery {
        title: "TPC-H Q3, join",
        about: "filters run in the pool, the join of what is left runs here",
        sql: "select l_orderkey, sum(l_extendedprice * (1 - l_discount)) as revenue, o_orderdate, \
              o_shippriority from customer, orders, lineitem \
              where c_mktsegment = 'BUILDING' and c_custkey = o_custkey and l_orderkey = o_orderkey \
              and o_orderdate < date '1995-03-15' and l_shipdate > date '1995-03-15' \
              group by l_orderkey, o_orderdate, o_shippriority \
              order by revenue desc, o_orderdate, l_orderkey limit 10",
    },
];
