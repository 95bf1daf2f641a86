//! Tests of conversions between instants and local times, wherever they are evaluated.

use super::{Fake, rows, session};
use arrow_array::{
    ArrayRef, Int64Array, RecordBatch, StringViewArray, TimestampMicrosecondArray, TimestampNanosecondArray,
};
use std::sync::Arc;

/// Creates rows of instants `t`, times without a time zone `u`, and time zones, in which some of the times are skipped
/// or repeated by a clock change.
fn table() -> RecordBatch {
    let instants =
        [1_719_835_200_000_000, 1_710_053_999_000_000, 1_710_054_000_000_000, 1_730_611_800_000_000];
    let instants = instants.into_iter().chain([1_730_615_400_250_000]).map(Some).chain([None]);
    let shown = [1_719_835_200, 1_710_037_800, 1_711_852_200, 1_730_597_400, 1_729_996_200_i64];
    let shown = shown.into_iter().map(|seconds| Some(seconds * 1_000_000_000)).chain([None]);
    let zones = [
        Some("America/New_York"),
        Some("Asia/Tokyo"),
        Some("Europe/Berlin"),
        None,
        Some("Europe/Berlin"),
        Some("UTC"),
    ];
    let columns: [(&str, ArrayRef); 4] = [
        ("i", Arc::new(Int64Array::from_iter_values(1..=6))),
        ("t", Arc::new(TimestampMicrosecondArray::from_iter(instants).with_timezone("UTC"))),
        ("u", Arc::new(TimestampNanosecondArray::from_iter(shown))),
        ("zone", Arc::new(StringViewArray::from_iter(zones))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
}

/// Queries with DuckDB's results.
const CASES: &[(&str, &[&str])] = &[
    (
        "i, t at time zone 'America/New_York' from z order by i",
        &[
            "1|2024-07-01T08:00:00",
            "2|2024-03-10T01:59:59",
            "3|2024-03-10T03:00:00",
            "4|2024-11-03T01:30:00",
            "5|2024-11-03T01:30:00.250",
            "6|NULL",
        ],
    ),
    (
        "i, u at time zone 'America/New_York' from z order by i",
        &[
            "1|2024-07-01T16:00:00Z",
            "2|2024-03-10T07:30:00Z",
            "3|2024-03-31T06:30:00Z",
            "4|2024-11-03T06:30:00Z",
            "5|2024-10-27T06:30:00Z",
            "6|NULL",
        ],
    ),
    (
        "i, u at time zone 'Europe/Berlin' from z order by i",
        &[
            "1|2024-07-01T10:00:00Z",
            "2|2024-03-10T01:30:00Z",
            "3|2024-03-31T01:30:00Z",
            "4|2024-11-03T00:30:00Z",
            "5|2024-10-27T01:30:00Z",
            "6|NULL",
        ],
    ),
    (
        "i, t at time zone zone from z order by i",
        &[
            "1|2024-07-01T08:00:00",
            "2|2024-03-10T15:59:59",
            "3|2024-03-10T08:00:00",
            "4|NULL",
            "5|2024-11-03T07:30:00.250",
            "6|NULL",
        ],
    ),
    (
        "i, u at time zone zone from z order by i",
        &[
            "1|2024-07-01T16:00:00Z",
            "2|2024-03-09T17:30:00Z",
            "3|2024-03-31T01:30:00Z",
            "4|NULL",
            "5|2024-10-27T01:30:00Z",
            "6|NULL",
        ],
    ),
    (
        "i, extract(hour from t at time zone 'America/New_York') from z order by i",
        &["1|8", "2|1", "3|3", "4|1", "5|1", "6|NULL"],
    ),
    (
        "extract(hour from t at time zone 'America/New_York') as h, count(*) from z group by h order by h",
        &["1|3", "3|1", "8|1", "NULL|1"],
    ),
    (
        "i, date_trunc('day', t at time zone 'America/New_York') from z order by i",
        &[
            "1|2024-07-01T00:00:00",
            "2|2024-03-10T00:00:00",
            "3|2024-03-10T00:00:00",
            "4|2024-11-03T00:00:00",
            "5|2024-11-03T00:00:00",
            "6|NULL",
        ],
    ),
    (
        "i, (t at time zone 'Asia/Tokyo')::date from z order by i",
        &["1|2024-07-01", "2|2024-03-10", "3|2024-03-10", "4|2024-11-03", "5|2024-11-03", "6|NULL"],
    ),
    (
        "i, t::timestamp from z order by i",
        &[
            "1|2024-07-01T12:00:00",
            "2|2024-03-10T06:59:59",
            "3|2024-03-10T07:00:00",
            "4|2024-11-03T05:30:00",
            "5|2024-11-03T06:30:00.250",
            "6|NULL",
        ],
    ),
    (
        "i, t::date from z order by i",
        &["1|2024-07-01", "2|2024-03-10", "3|2024-03-10", "4|2024-11-03", "5|2024-11-03", "6|NULL"],
    ),
    (
        "i from z where t at time zone 'America/New_York' >= timestamp '2024-11-03 01:30:00' order by i",
        &["4", "5"],
    ),
    ("i from z where t >= timestamptz '2024-11-03 01:30:00-05:00' order by i", &["5"]),
    ("i from z where u at time zone 'America/New_York' > t order by i", &["1", "2", "3", "4"]),
    ("i from z where t = timestamptz '2024-07-01 14:00:00+02' order by i", &["1"]),
    ("count(distinct t at time zone 'America/New_York'), count(distinct t) from z", &["5|5"]),
    ("a.i, b.i from z a join z b on a.t at time zone 'America/New_York' = b.u order by 1, 2", &["4|4"]),
    (
        "i, row_number() over (order by t at time zone 'America/New_York', i) from z order by i",
        &["1|3", "2|1", "3|2", "4|4", "5|5", "6|6"],
    ),
    ("min(t), max(u at time zone 'America/New_York') from z", &["2024-03-10T06:59:59Z|2024-11-03T06:30:00Z"]),
    (
        "t at time zone 'America/New_York' at time zone 'America/New_York' = t, count(*) from z group by 1 order by 1",
        &["false|1", "true|4", "NULL|1"],
    ),
    (
        "timezone('America/New_York', t) = t at time zone 'America/New_York' as same, count(*) from z group by 1 order by 1",
        &["true|5", "NULL|1"],
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_show_what_they_show_elsewhere() {
    for (name, pushdown) in [("pushed", true), ("not pushed", false)] {
        let pool = Arc::new(Fake::default().with("z", vec![table()]).await);
        let session = session(&pool, pushdown).await;
        for (sql, expected) in CASES {
            let sql = format!("select {sql}");
            let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
            assert_eq!(rows(&session, &sql).await.as_ref(), Ok(&expected), "{name}: {sql}");
        }
    }
}

#[tokio::test]
async fn constants_and_types_are_those_of_postgresql() {
    let session = session(&Arc::new(Fake::default()), true).await;
    for (sql, expected) in [
        ("timestamptz '2024-07-01 12:00:00+00' at time zone 'America/New_York'", "2024-07-01T08:00:00"),
        ("timestamp '2024-07-01 12:00:00' at time zone '+02:00'", "2024-07-01T10:00:00Z"),
        ("timestamp '2024-07-01 12:00:00' at time zone 'europe/berlin'", "2024-07-01T10:00:00Z"),
        ("(timestamp '2024-07-01 12:00' + interval '1 day') at time zone 'UTC' is null", "false"),
        ("null at time zone 'UTC'", "NULL"),
        ("timestamp '2024-07-01' at time zone null", "NULL"),
        ("typeof(timestamptz '2024-07-01' at time zone 'UTC')", "TIMESTAMP"),
        ("typeof(timestamp '2024-07-01' at time zone 'UTC')", "TIMESTAMP WITH TIME ZONE"),
        ("typeof(timestamptz '2024-07-01')", "TIMESTAMP WITH TIME ZONE"),
        ("typeof(now())", "TIMESTAMP"),
        ("typeof(now() at time zone 'UTC')", "TIMESTAMP"),
        ("to_timestamp(0) at time zone 'Asia/Tokyo'", "1970-01-01T09:00:00"),
        (
            "timezone('Asia/Tokyo', date_trunc('day', to_timestamp(0) + interval '1 hour'))",
            "1970-01-01T09:00:00",
        ),
        ("current_timestamp at time zone 'America/New_York' < now()", "true"),
        ("typeof(strptime('2024-07-01', '%Y-%m-%d'))", "TIMESTAMP"),
        ("timestamptz '2024-07-01 12:00:00+02:00'", "2024-07-01T10:00:00Z"),
        ("timestamptz '2024-07-01 12:00:00'", "2024-07-01T12:00:00Z"),
        ("(timestamptz '2024-07-01 00:30:00+02:00')::date", "2024-06-30"),
        ("timestamptz '2024-07-01 12:00:00+02:00' = timestamp '2024-07-01 10:00:00'", "true"),
    ] {
        assert_eq!(rows(&session, &format!("select {sql}")).await, Ok(vec![expected.to_string()]), "{sql}");
    }
    for (sql, message, advice) in [
        (
            "select now() at time zone 'Amerika/New_York'",
            "there is no time zone \"Amerika/New_York\"",
            "America/New_York",
        ),
        (
            "select now() at time zone z from (values ('Mars')) v(z)",
            "there is no time zone \"Mars\"",
            "'Europe/Berlin'",
        ),
        ("select date '2024-07-01' at time zone 'UTC'", "not DATE", "t::timestamp "),
        ("select '2024-07-01' at time zone 'UTC'", "not VARCHAR", "t::timestamptz"),
        ("select now() at time zone 5", "a time zone is a text, not BIGINT", "'Europe/Berlin'"),
        ("set time zone 'Europe/Berlin'", "the time zone of a session is UTC", "AT TIME ZONE"),
        ("set timezone = 'Europe/Berlin'", "the time zone of a session is UTC", "AT TIME ZONE"),
        (
            "set datafusion.execution.time_zone = '+02:00'",
            "the time zone of a session is UTC",
            "AT TIME ZONE",
        ),
        ("reset datafusion.execution.time_zone", "the time zone of a session is UTC", "AT TIME ZONE"),
    ] {
        let error = rows(&session, sql).await.unwrap_err();
        assert!(error.message.contains(message), "{sql}: {error:?}");
        assert!(error.advice.as_ref().is_some_and(|found| found.contains(advice)), "{sql}: {error:?}");
    }
}
