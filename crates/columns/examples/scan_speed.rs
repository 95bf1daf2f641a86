//! Times predicates and unpacking on packed and plain columns, compared with the speed of reading memory, on
//! every instruction set that the processor has, on one thread.
//!
//! `cargo run --release -p farpool-columns --example scan_speed -- [MILLIONS OF ROWS]`

use arrow_array::{ArrayRef, Float64Array, Int64Array};
use arrow_schema::{DataType, Field, Schema};
use farpool_columns::{IntegerSet, RowGroup, encode_row_group};
use farpool_memory::{Pool, PoolConfig};
use farpool_model::cpu::Level;
use farpool_model::{CompareOp, TenantName, limits::BATCH_ROWS, limits::ROW_GROUP_ROWS};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

const WIDTHS: [u32; 6] = [3, 8, 12, 20, 33, 62];

fn columns(first: usize) -> Vec<ArrayRef> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ (first as u64 + 1);
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut packed = |width: u32| {
        let values = (0..ROW_GROUP_ROWS).map(|_| (next() >> (64 - width)) as i64);
        Arc::new(Int64Array::from_iter_values(values)) as ArrayRef
    };
    let mut columns: Vec<ArrayRef> = WIDTHS.map(&mut packed).to_vec();
    columns.push(packed(12));
    let floats = (0..ROW_GROUP_ROWS).map(|_| (next() >> 11) as f64);
    columns.push(Arc::new(Float64Array::from_iter_values(floats)));
    columns
}

#[expect(clippy::disallowed_methods, reason = "a measurement takes the time")]
fn now() -> Instant {
    Instant::now()
}

/// Sums the best time of each row group, since other processes may be using the machine.
fn time(name: &str, groups: &[RowGroup], bytes: impl Fn(&RowGroup) -> usize, mut run: impl FnMut(&RowGroup)) {
    let mut best = vec![f64::MAX; groups.len()];
    for _ in 0..7 {
        for (group, best) in groups.iter().zip(&mut best) {
            let start = now();
            run(group);
            *best = best.min(start.elapsed().as_secs_f64());
        }
    }
    let (seconds, rows) = (best.iter().sum::<f64>(), groups.len() * ROW_GROUP_ROWS);
    println!(
        "{name:28} {:7.3} ns/row {:7.2} GB/s read {:7.2} GB/s of 64-bit values",
        seconds * 1e9 / rows as f64,
        groups.iter().map(bytes).sum::<usize>() as f64 / seconds / 1e9,
        rows as f64 * 8.0 / seconds / 1e9,
    );
}

/// Calls `run` for each batch of a row group with bits that are all set.
fn batches(mut run: impl FnMut(usize, &mut [u64])) {
    let mut alive = [0; BATCH_ROWS / 64];
    for start in (0..ROW_GROUP_ROWS).step_by(BATCH_ROWS) {
        alive.fill(u64::MAX);
        run(start, &mut alive);
        black_box(&alive);
    }
}

fn main() {
    let millions: usize = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(16);
    let pool = Pool::new(PoolConfig { bytes_limit: 2 << 30 }).expect("memory");
    let tenant = TenantName::new("example").expect("a name");
    let field = |(i, c): (usize, &ArrayRef)| Field::new(format!("c{i}"), c.data_type().clone(), false);
    let schema = Arc::new(Schema::new(columns(0).iter().enumerate().map(field).collect::<Vec<_>>()));
    let encode = |group| encode_row_group(&pool, &tenant, &schema, &columns(group)).expect("encodes");
    let groups: Vec<RowGroup> = (0..millions * 1_000_000 / ROW_GROUP_ROWS).map(encode).collect();
    let plain = WIDTHS.len() + 1;
    assert_eq!(*groups[0].chunks[plain].data_type(), DataType::Float64);
    let bytes = |column: usize| move |group: &RowGroup| group.chunks[column].bytes_encoded();
    time("sum of plain values", &groups, bytes(plain), |group| {
        let values = group.chunks[plain].decode(0..ROW_GROUP_ROWS).expect("decodes");
        let values = arrow_array::cast::AsArray::as_primitive::<arrow_array::types::Float64Type>(&values);
        black_box(values.values().iter().fold(0, |sum: u64, v| sum.wrapping_add(v.to_bits())));
    });
    for level in Level::all() {
        println!("{level:?}");
        level.within(|| time_kernels(&groups));
    }
}

/// Times the kernels of scans on each block, on the level of CPU instructions that is in use.
fn time_kernels(groups: &[RowGroup]) {
    let plain = WIDTHS.len() + 1;
    let bytes = |column: usize| move |group: &RowGroup| group.chunks[column].bytes_encoded();
    for (column, width) in WIDTHS.into_iter().enumerate() {
        let (low, high) = (1 << (width - 2), 1 << (width - 1));
        time(&format!("{width} bits within"), groups, bytes(column), |group| {
            let integers = group.chunks[column].integers().expect("packed");
            batches(|start, alive| integers.retain_within(low, high, true, start, alive));
        });
    }
    time("plain floats <", groups, bytes(plain), |group| {
        let floats = group.chunks[plain].floats().expect("plain");
        batches(|start, alive| floats.retain_compared(CompareOp::Lt, 1e15, start, alive));
    });
    for (column, span) in [(0, 8), (1, 256), (2, 4096), (3, 1 << 20)] {
        let set = IntegerSet::new(0, span, |i| i % 7 == 0);
        time(&format!("{} bits in a set", WIDTHS[column]), groups, bytes(column), |group| {
            let integers = group.chunks[column].integers().expect("packed");
            batches(|start, alive| integers.retain_members(&set, true, start, alive));
        });
    }
    let both = |group: &RowGroup| group.chunks[2].bytes_encoded() + group.chunks[6].bytes_encoded();
    time("12 bits < 12 bits", groups, both, |group| {
        let right = group.chunks[6].integers().expect("packed");
        let left = group.chunks[2].integers().expect("packed");
        batches(|start, alive| left.retain_compared(CompareOp::Lt, &right, start, alive));
    });
    let mut out = Vec::new();
    for (column, width) in WIDTHS.into_iter().enumerate() {
        time(&format!("{width} bits unpacked to 64"), groups, bytes(column), |group| {
            let integers = group.chunks[column].integers().expect("packed");
            batches(|start, _| integers.unpack(start..start + BATCH_ROWS, &mut out));
        });
    }
    for every in [4, 16, 24, 32, 48, 64, 128, 512] {
        let rows: Vec<u32> = (0..ROW_GROUP_ROWS as u32).step_by(every).collect();
        time(&format!("20 bits, one row of {every}"), groups, bytes(3), |group| {
            group.chunks[3].integers().expect("packed").gather(&rows, &mut out);
        });
        let mut alive = vec![0; ROW_GROUP_ROWS / 64];
        time(&format!("20 bits within, one of {every}"), groups, bytes(3), |group| {
            alive.fill(0);
            rows.iter().for_each(|row| alive[*row as usize / 64] |= 1 << (row % 64));
            group.chunks[3].integers().expect("packed").retain_within(9, 1 << 18, true, 0, &mut alive);
            black_box(&alive);
        });
    }
}
