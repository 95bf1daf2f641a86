//! The table `lineorder`: orders of one to seven rows, which share what belongs to the order.

use super::columns::{numbers, texts};
use super::data::Sizes;
use crate::random::{Random, hash};
use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use std::ops::Range;
use tpchgen::distribution::Distributions;

/// Seed of the table's rows.
const ORDERS: u64 = 0x5503;

/// A row, with prices in cents.
#[derive(Clone)]
struct Line {
    order_key: i32,
    number: i32,
    customer: i32,
    part: i32,
    supplier: i32,
    order_date: i32,
    priority: &'static str,
    quantity: i32,
    extended_price: i32,
    order_total: i32,
    discount: i32,
    revenue: i32,
    supply_cost: i32,
    tax: i32,
    commit_date: i32,
    ship_mode: &'static str,
}

/// Generates the rows of some orders, given by their numbers from 0; `days` are the keys of all days.
pub fn batch(orders: Range<u64>, sizes: Sizes, days: &[i32]) -> Result<RecordBatch, ArrowError> {
    let mut lines = Vec::with_capacity(4 * (orders.end - orders.start) as usize);
    orders.for_each(|order| add_order(&mut lines, order, sizes, days));
    RecordBatch::try_from_iter([
        ("lo_orderkey", numbers(&lines, |line| line.order_key)),
        ("lo_linenumber", numbers(&lines, |line| line.number)),
        ("lo_custkey", numbers(&lines, |line| line.customer)),
        ("lo_partkey", numbers(&lines, |line| line.part)),
        ("lo_suppkey", numbers(&lines, |line| line.supplier)),
        ("lo_orderdate", numbers(&lines, |line| line.order_date)),
        ("lo_orderpriority", texts(&lines, |line| line.priority)),
        ("lo_shippriority", texts(&lines, |_| "0")),
        ("lo_quantity", numbers(&lines, |line| line.quantity)),
        ("lo_extendedprice", numbers(&lines, |line| line.extended_price)),
        ("lo_ordtotalprice", numbers(&lines, |line| line.order_total)),
        ("lo_discount", numbers(&lines, |line| line.discount)),
        ("lo_revenue", numbers(&lines, |line| line.revenue)),
        ("lo_supplycost", numbers(&lines, |line| line.supply_cost)),
        ("lo_tax", numbers(&lines, |line| line.tax)),
        ("lo_commitdate", numbers(&lines, |line| line.commit_date)),
        ("lo_shipmode", texts(&lines, |line| line.ship_mode)),
    ])
}

/// Adds the rows of an order.
fn add_order(lines: &mut Vec<Line>, order: u64, sizes: Sizes, days: &[i32]) {
    let (words, random) = (Distributions::static_default(), &mut Random(hash(hash(ORDERS) ^ order)));
    let one_of = |random: &mut Random, rows: u64| random.between(1..=rows as i32);
    let last_day = days.len() as i32 - 1;
    let (count, customer) = (random.between(1..=7), one_of(random, sizes.customers));
    let day = random.between(0..=last_day);
    let priority = random.pick(words.order_priority().get_values());
    let first = lines.len();
    for number in 1..=count {
        let (part, supplier) = (one_of(random, sizes.parts), one_of(random, sizes.suppliers));
        let (quantity, discount, tax) =
            (random.between(1..=50), random.between(0..=10), random.between(0..=8));
        let extended_price = price(part) * quantity;
        lines.push(Line {
            order_key: order_key(order),
            number,
            customer,
            part,
            supplier,
            order_date: days[day as usize],
            priority,
            quantity,
            extended_price,
            order_total: 0,
            discount,
            revenue: percent(extended_price, 100 - discount),
            supply_cost: price(part) * 6 / 10,
            tax,
            commit_date: days[(day + random.between(30..=90)).min(last_day) as usize],
            ship_mode: random.pick(words.ship_modes().get_values()),
        });
    }
    let order_total = lines[first..].iter().map(|line| percent(line.revenue, 100 + line.tax)).sum();
    lines[first..].iter_mut().for_each(|line| line.order_total = order_total);
}

/// Returns the key of an order, given by its number from 0. As in TPC-H, eight of 32 keys are used.
fn order_key(order: u64) -> i32 {
    let number = order + 1;
    ((number >> 3 << 5) | (number & 7)) as i32
}

/// Returns the price of a part in cents, as in TPC-H.
fn price(part: i32) -> i32 {
    90_000 + part / 10 % 20_001 + part % 1_000 * 100
}

/// Returns some percent of an amount. Products are less than 2^31: 108 percent of 50 parts at 2,099 each.
fn percent(amount: i32, percent: i32) -> i32 {
    amount * percent / 100
}
