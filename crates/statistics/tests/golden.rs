//! Tests moments and ranks against the results of other implementations: numpy 2.4.6, scipy 1.17.1 and DuckDB
//! 2.0.0 over the three columns below, by `corrcoef`, `cov`, `spearmanr`, `kendalltau` and `SELECT corr(…),
//! regr_…(…)`.

use arrow_array::{ArrayRef, Decimal128Array, Float64Array, Int64Array};
use arrow_schema::DataType;
use farpool_model::NullHandling;
use farpool_statistics::{Form, Moments, kendall, spearman};
use std::sync::Arc;

const ROWS: i64 = 200;

fn x() -> Int64Array {
    Int64Array::from_iter_values((0..ROWS).map(|k| k * 7919 % 1009 - 500))
}

fn y() -> Float64Array {
    Float64Array::from_iter_values((0..ROWS).map(|k| (k * k * 31 % 997) as f64 / 8.0 + k as f64 / 4.0))
}

/// Returns a column in which every `every`-th value is NULL; a column without NULLs if `every` is 0.
fn z(every: i64) -> Int64Array {
    (0..ROWS).map(|k| (every == 0 || k % every != 0).then_some(k * 37 % 11)).collect()
}

fn moments(every: i64, nulls: NullHandling) -> Moments {
    let types = [DataType::Int64, DataType::Float64, DataType::Int64];
    let mut moments = Moments::new(&types, nulls).unwrap();
    let columns: [ArrayRef; 3] = [Arc::new(x()), Arc::new(y()), Arc::new(z(every))];
    moments.update(&columns).unwrap();
    moments
}

fn close(ours: f64, theirs: f64) {
    assert!((ours - theirs).abs() <= 1e-12 * theirs.abs(), "{ours} and {theirs}");
}

#[test]
fn numpy_agrees_on_correlations_and_covariances() {
    let moments = moments(0, NullHandling::Pairwise);
    let r = [
        (0, 1, 0.152_068_089_909_129_68),
        (0, 2, -0.118_495_725_844_291_45),
        (1, 2, 0.082_016_656_754_585_3),
    ];
    r.iter().for_each(|(i, j, r)| close(moments.correlation(*i, *j), *r));
    (0..3).for_each(|i| assert_eq!(moments.correlation(i, i), 1.0));
    close(moments.covariance(0, 1, Form::Sample), 1_767.514_629_396_985_8);
    close(moments.covariance(0, 2, Form::Sample), -110.468_040_201_005_02);
    close(moments.covariance(1, 2, Form::Population), 10.255_456_250_000_009);
    close(moments.variance(0, Form::Sample), 86_224.174_773_869_34);
    close(moments.variance(1, Form::Population), 1_558.991_999_609_375_9);
    close(moments.variance(2, Form::Sample), 10.079_497_487_437_187);
    close(moments.mean(1), 85.681_875);
    close(moments.cosine_similarity(0, 1), 0.084_736_583_084_569_38);
}

#[test]
fn duckdb_agrees_on_regressions_and_nulls() {
    let moments = moments(5, NullHandling::Pairwise);
    let line = moments.regression(1, 0);
    close(line.slope, 0.020_499_061_127_954_55);
    close(line.intercept, 85.542_276_393_718_64);
    close(line.r2, 0.023_124_703_968_611_098);
    close(line.sxx, 17_158_610.779_999_997);
    close(line.syy, 311_798.399_921_875_04);
    close(line.sxy, 351_735.411_249_999_8);
    close(line.avgx, 6.81);
    close(line.avgy, 85.681_875);
    let line = moments.regression(1, 2);
    assert_eq!(line.count, 160);
    close(line.slope, 0.950_636_321_357_065_8);
    close(line.sxx, 1_585.775_000_000_001);
    close(moments.correlation(1, 2), 0.076_181_278_848_628_05);
    close(moments.correlation(0, 2), -0.131_502_863_415_249_14);
    close(moments.covariance(1, 2, Form::Sample), 9.481_102_594_339_633);
    close(moments.variance(1, Form::Population).sqrt(), 39.484_072_733_310_775);
    close(moments.variance(2, Form::Sample), 9.973_427_672_955_982);
}

#[test]
fn listwise_rows_count_for_all_pairs_or_none() {
    let moments = moments(5, NullHandling::Listwise);
    assert_eq!((moments.count(0, 1), moments.count(0, 0)), (160, 160));
    close(moments.correlation(1, 2), 0.076_181_278_848_628_05);
}

#[test]
fn scipy_agrees_on_ranks() {
    let (x, y, z) = (x(), y(), z(0));
    close(spearman(&x, &y).unwrap(), 0.148_008_700_217_505_45);
    close(spearman(&x, &z).unwrap(), -0.119_616_224_290_820_47);
    close(spearman(&y, &z).unwrap(), 0.086_535_644_811_834_18);
    close(kendall(&x, &y).unwrap(), 0.097_688_442_211_055_27);
    close(kendall(&x, &z).unwrap(), -0.100_888_009_394_724_81);
    close(kendall(&y, &z).unwrap(), 0.062_614_705_153_265_9);
}

#[test]
fn decimals_have_their_point_in_means_and_not_in_correlations() {
    let decimals = |scale| {
        let values = Decimal128Array::from_iter_values((0..ROWS).map(|k| i128::from(k * 7919 % 1009 - 500)));
        Arc::new(values.with_precision_and_scale(38, scale).unwrap()) as ArrayRef
    };
    let columns = [decimals(2), decimals(0), Arc::new(y())];
    let types: Vec<DataType> = columns.iter().map(|column| column.data_type().clone()).collect();
    let mut moments = Moments::new(&types, NullHandling::Pairwise).unwrap();
    moments.update(&columns).unwrap();
    assert_eq!(moments.correlation(0, 1), 1.0);
    close(moments.correlation(0, 2), 0.152_068_089_909_129_68);
    close(moments.mean(0), 0.0681);
    close(moments.variance(0, Form::Sample), 8.622_417_477_386_934);
    close(moments.covariance(0, 2, Form::Sample), 17.675_146_293_969_858);
    close(moments.regression(2, 0).slope, 2.049_906_112_795_455);
}
