//! `cargo xtask timings`: builds the program from scratch and prints, as a table, the build time of each part. Run it
//! before and after a dependency or a crate is added; `docs/building.md` has the dated tables.

use crate::cargo;
use anyhow::{Context, Result};
use serde_json::Value;
use std::fs;
use std::time::Instant;

/// Parts of the build, with prefixes of their packages' names. The first match counts; the last part contains the rest.
const PARTS: [(&str, &[&str]); 5] = [
    ("farpool", &["farpool"]),
    ("DataFusion and its parser", &["datafusion", "sqlparser", "recursive", "object_store"]),
    (
        "Arrow, Parquet and their codecs",
        &[
            "arrow",
            "parquet",
            "brotli",
            "snap",
            "zstd",
            "lz4",
            "flate2",
            "zlib",
            "flatbuffers",
            "lexical",
            "csv",
        ],
    ),
    ("TLS", &["aws-lc", "rustls", "untrusted"]),
    ("the rest", &[""]),
];

/// Build costs of a part.
#[derive(Clone, Copy, Default)]
struct Cost {
    units: usize,
    seconds: f64,
}

/// Builds into a fresh folder and prints the table.
///
/// # Errors
/// Fails if the build fails, or the format of cargo's report has changed.
#[expect(clippy::disallowed_methods, reason = "a measurement takes the time")]
pub fn run() -> Result<()> {
    let folder = cargo::root().join("target/timings");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    let start = Instant::now();
    let arguments = ["build"].into_iter().chain(cargo::WORKSPACE).chain(["--bin", "farpool", "--timings"]);
    cargo::run_with(arguments, &[("CARGO_TARGET_DIR", &folder.to_string_lossy())])?;
    let elapsed = start.elapsed().as_secs();
    let report = folder.join("cargo-timings/cargo-timing.html");
    let report = fs::read_to_string(&report).with_context(|| format!("cannot read {}", report.display()))?;
    print!("{}", table(&units(&report)?));
    let processors = std::thread::available_parallelism()?;
    println!("\n{} min {} s on {processors} processors.", elapsed / 60, elapsed % 60);
    Ok(())
}

/// Returns the units of cargo's report: the package, and the seconds of compiling it or running its build script.
fn units(report: &str) -> Result<Vec<(String, f64)>> {
    let data = report.split_once("const UNIT_DATA = ").and_then(|(_, rest)| rest.split_once(";\n"));
    let (data, _) = data.context("cargo's report has no UNIT_DATA any more")?;
    let units: Vec<Value> = serde_json::from_str(data).context("cargo's report has another form")?;
    let unit = |unit: &Value| Some((unit["name"].as_str()?.to_string(), unit["duration"].as_f64()?));
    units.iter().map(unit).collect::<Option<_>>().context("a unit without name or duration")
}

fn table(units: &[(String, f64)]) -> String {
    let mut costs = [Cost::default(); PARTS.len()];
    for (name, seconds) in units {
        let fits = |(_, prefixes): &(&str, &[&str])| prefixes.iter().any(|prefix| name.starts_with(prefix));
        let cost = &mut costs[PARTS.iter().position(fits).unwrap_or(PARTS.len() - 1)];
        cost.units += 1;
        cost.seconds += seconds;
    }
    let line = |name: &str, cost: &Cost| format!("| {name} | {} | {:.0} |\n", cost.units, cost.seconds);
    let lines: String = PARTS.iter().zip(&costs).map(|((name, _), cost)| line(name, cost)).collect();
    let all = Cost { units: units.len(), seconds: costs.iter().map(|cost| cost.seconds).sum() };
    format!("| part | units | seconds |\n| --- | --- | --- |\n{lines}{}", line("all", &all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_counts_for_one_part() {
        let unit = |name: &str, duration: f64| format!(r#"{{"name":"{name}","duration":{duration}}}"#);
        let data = [unit("farpool-wire", 2.4), unit("arrow-csv", 1.0), unit("syn", 4.0), unit("syn", 3.0)];
        let report = format!("<script>const UNIT_DATA = [{}];\nconst X = 1;\n", data.join(","));
        let table = table(&units(&report).unwrap());
        let expected = [
            "| farpool | 1 | 2 |",
            "codecs | 1 | 1 |",
            "| TLS | 0 | 0 |",
            "| the rest | 2 | 7 |",
            "| all | 4 | 10 |",
        ];
        for line in expected {
            assert!(table.contains(line), "{table}");
        }
    }

    #[test]
    fn a_report_of_another_form_is_an_error() {
        for text in ["", "const UNIT_DATA = [1;\n", "const UNIT_DATA = [{\"name\":1}];\n"] {
            assert!(units(text).is_err(), "{text}");
        }
    }
}
