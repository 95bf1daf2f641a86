//! Checks the page's structure, and that no content of a table is interpreted as markup. `tests/profile.rs` opens the
//! page in a browser if there is one.

use super::*;
use crate::report::{Bin, Correlation, Frequent, Quantile, Quantiles};
use serde_json::{Value, json};

const NASTY: &str = "<script>alert(\"1\")</script>&'\u{202e}\n";

fn column(name: &str, histogram: bool) -> Column {
    let bin = |i: u64| Bin { low: json!(i), high: json!(i + 1), count: i * i };
    Column {
        name: name.to_string(),
        data_type: "int64".to_string(),
        nulls: 3,
        min: json!(NASTY),
        max: json!(12345.678),
        sum: Some(1.0),
        mean: Some(2.5),
        stddev: Some(0.5),
        distinct: Some(Distinct { value: 1000, low: 990, high: 1010, confidence: 0.95, exact: false }),
        second_moment: None,
        skew: Some(1.5),
        counts_trusted: Some(true),
        top: vec![Frequent { value: json!(NASTY), count: 5, low: 4, high: 6 }],
        quantiles: Some(Quantiles {
            p25: Quantile { value: json!(1), low: json!(1), high: json!(1), confidence: 1.0 },
            p50: Quantile { value: json!(2), low: json!(NASTY), high: json!(3), confidence: 0.95 },
            p75: Quantile { value: Value::Null, low: Value::Null, high: Value::Null, confidence: 0.95 },
        }),
        histogram: if histogram { (0..32).map(bin).collect() } else { Vec::new() },
    }
}

fn report(columns: usize) -> Report {
    let names: Vec<String> = (0..columns).map(|i| format!("{NASTY}{i}")).collect();
    let row =
        |i: usize| (0..columns).map(move |j| if i == 1 { None } else { Some((i + j) as f64 / 150.0 - 0.3) });
    Report {
        name: NASTY.to_string(),
        source: Source::File,
        rows: 100,
        columns: names.iter().enumerate().map(|(i, name)| column(name, i % 2 == 0)).collect(),
        correlation: (columns > 1).then(|| Correlation {
            matrix: (0..columns).map(|i| row(i).collect()).collect(),
            columns: names,
        }),
    }
}

/// Asserts that tags are properly nested.
fn assert_well_formed(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    for tag in page.split('<').skip(1).map(|rest| rest.split('>').next().unwrap()) {
        let name = tag.split([' ', '\n', '/']).find(|part| !part.is_empty()).unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "closed by </{name}>");
        } else if !tag.ends_with('/') && !["!DOCTYPE", "meta"].contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "never closed: {open:?}");
}

#[test]
fn pages_of_any_width_are_well_formed_and_escaped() {
    for columns in [1, 2, 60] {
        let page = render(&report(columns));
        assert_well_formed(&page);
        assert!(!page.contains("<script") && !page.contains('\u{202e}') && page.contains("&lt;script&gt;"));
        assert!(!page.contains("http") && !page.contains("url("), "nothing comes from elsewhere");
        assert_eq!(page.matches("<article").count(), columns);
        let cells = if columns > 1 { columns * columns } else { 0 };
        assert_eq!(page.matches("class=\"cell\"").count(), cells);
    }
}

#[test]
fn an_empty_table_has_a_page() {
    let mut empty = report(1);
    empty.rows = 0;
    empty.columns[0].top.clear();
    empty.columns[0].histogram.clear();
    assert_well_formed(&render(&empty));
}

#[test]
fn labels_fit_their_place_and_dates_stay_whole() {
    for name in [
        "DALLAS/FORT WORTH INTERNATIONAL",
        "SOUTHWEST AIRLINES",
        "wwwwwwwwwwwwwwwwwwwwwwww",
        "東京都千代田区霞が関一丁目",
    ] {
        let label = cut_to(name, 118.0);
        assert!(label.ends_with('…') && width_of(&label) <= 118.0, "{label}");
    }
    assert_eq!(cut_to("Seattle Tacoma", 118.0), "Seattle Tacoma");
    let mut report = report(1);
    let quartile =
        || Quantile { value: json!("1994-05-02"), low: json!("1"), high: json!("2"), confidence: 0.95 };
    report.columns[0].quantiles = Some(Quantiles { p25: quartile(), p50: quartile(), p75: quartile() });
    let page = render(&report);
    assert!(
        page.contains("<div class=\"long\"><dt>lower quartile</dt>"),
        "beside a long name there is no room"
    );
    assert!(page.contains("<div><dt>NULL</dt>"));
}
