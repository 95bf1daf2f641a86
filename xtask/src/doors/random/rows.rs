//! The tables of random statements, with rows from a seed: `m` has values of everyday sizes, `t` the least and greatest
//! values of each type as well, and `u` joins both by `k`.

use super::Random;
use std::fmt::Write;

/// The columns of `m` and `t`, with their types.
pub const COLUMNS: [(&str, &str); 15] = [
    ("id", "int4"),
    ("b", "bool"),
    ("i2", "int2"),
    ("i4", "int4"),
    ("i8", "int8"),
    ("f4", "float4"),
    ("f8", "float8"),
    ("n", "numeric(12, 2)"),
    ("w", "numeric(30, 6)"),
    ("s", "text"),
    ("c", "text"),
    ("y", "bytea"),
    ("d", "date"),
    ("ts", "timestamp"),
    ("tz", "timestamptz"),
];

/// The columns of `u`.
pub const COLUMNS_OF_U: [(&str, &str); 5] =
    [("id", "int4"), ("k", "int4"), ("s", "text"), ("n", "numeric(8, 3)"), ("d", "date")];

/// Number of rows of each table.
pub const ROWS: usize = 40;

const TEXTS: [&str; 16] = [
    "", "a", "b", "ab", "abc", "Abc", "ä", "a,b", " a ", "10", "x%y", "a\\\\b", "O'Brien", "zz", "aa", "bcd",
];
const MORE_TEXTS: [&str; 10] =
    ["世界", "-0.5", "1e3", "2024-02-29", "  ", "\\tb", "Zürich ẞ", "2147483648", "e\u{301}", "true"];
const BYTES: [&str; 5] = ["\\\\x", "\\\\x00", "\\\\x61", "\\\\xff00", "\\\\x616263"];

/// Returns the statements that make the tables, and those that fill them.
pub fn tables(random: &mut Random) -> (String, String) {
    let (mut created, mut filled) = (String::new(), String::new());
    let tables = [("m", &COLUMNS[..], false), ("t", &COLUMNS[..], true), ("u", &COLUMNS_OF_U[..], false)];
    for (name, columns, has_extremes) in tables {
        let list: Vec<String> = columns.iter().map(|(name, of)| format!("{name} {of}")).collect();
        let _ = writeln!(created, "CREATE TABLE {name} ({});", list.join(", "));
        let _ = writeln!(filled, "COPY {name} FROM STDIN;");
        for id in 1..=ROWS {
            let cells = columns.iter().map(|(column, of)| match *column {
                "id" => id.to_string(),
                _ if random.below(8) == 0 => "\\N".to_string(),
                "k" => random.between(-5, 25).to_string(),
                "c" => ["a", "b", "c"][random.below(3)].to_string(),
                _ if has_extremes && random.below(2) == 0 => extreme(random, of),
                _ => value(random, of),
            });
            let _ = writeln!(filled, "{}", cells.collect::<Vec<_>>().join("\t"));
        }
        let _ = writeln!(filled, "\\.");
    }
    (created, filled)
}

fn value(random: &mut Random, of: &str) -> String {
    let day = |random: &mut Random| {
        let (year, month) = (random.between(1995, 2030), random.between(1, 12));
        format!("{year}-{month:02}-{:02}", random.between(1, 28))
    };
    let clock = |random: &mut Random| {
        let (hour, minute, second) = (random.below(24), random.below(60), random.below(60));
        let micros = [0, 500_000, 123_456][random.below(3)];
        format!("{hour:02}:{minute:02}:{second:02}.{micros:06}")
    };
    match of {
        "bool" => ["t", "f"][random.below(2)].to_string(),
        "int2" => random.between(-20, 20).to_string(),
        "int4" => random.between(-50, 50).to_string(),
        "int8" => random.between(-100_000, 100_000).to_string(),
        "float4" => format!("{}", random.between(-40, 40) as f64 / 4.0),
        "float8" => format!("{}", random.between(-800, 800) as f64 / 8.0),
        "text" => TEXTS[random.below(TEXTS.len())].to_string(),
        "bytea" => BYTES[random.below(BYTES.len())].to_string(),
        "date" => day(random),
        "timestamp" => format!("{} {}", day(random), clock(random)),
        "timestamptz" => format!("{} {}+00", day(random), clock(random)),
        _ => format!("{}.{:02}", random.between(-500, 500), random.below(100)),
    }
}

fn extreme(random: &mut Random, of: &str) -> String {
    let values: &[&str] = match of {
        "int2" => &["-32768", "32767", "0", "1", "-1"],
        "int4" => &["-2147483648", "2147483647", "0", "1", "-1"],
        "int8" => &["-9223372036854775808", "9223372036854775807", "0", "9007199254740993", "-1"],
        "float4" => &["NaN", "Infinity", "-Infinity", "-0", "3.4028235e+38", "1.2e-38", "16777217"],
        "float8" => &[
            "NaN",
            "Infinity",
            "-Infinity",
            "-0",
            "1.7976931348623157e+308",
            "5e-324",
            "0.1",
            "1e15",
            "0.5",
            "2.5",
        ],
        "numeric(12, 2)" => &["9999999999.99", "-9999999999.99", "0.00", "0.01", "-0.01", "0.50", "2.50"],
        "numeric(30, 6)" => {
            &["999999999999999999999999.999999", "-999999999999999999999999.999999", "0.000001", "0.5", "1.5"]
        }
        "text" => &MORE_TEXTS,
        "date" => &["0001-01-01", "9999-12-31", "1970-01-01", "2000-02-29", "1582-10-10", "2024-12-30"],
        "timestamp" => &[
            "0001-01-01 00:00:00",
            "9999-12-31 23:59:59.999999",
            "1969-12-31 23:59:59.999999",
            "2024-03-31 02:30:00",
        ],
        "timestamptz" => &[
            "0001-01-01 00:00:00+00",
            "9999-12-31 23:59:59+00",
            "1969-12-31 23:59:59.5+00",
            "2024-10-27 01:30:00+02",
        ],
        _ => return value(random, of),
    };
    values[random.below(values.len())].to_string()
}
