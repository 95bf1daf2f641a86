//! Tests of `date_trunc` of times beyond the range of nanoseconds.

use crate::{Session, SessionOptions};
use arrow_array::cast::AsArray;

#[tokio::test]
async fn times_of_any_year_are_truncated() {
    let session = Session::new(SessionOptions::default());
    for (part, time, expected) in [
        ("year", "TIMESTAMP '1500-05-05 01:02:03'", "1500-01-01 00:00:00"),
        ("quarter", "TIMESTAMP '0001-05-05 01:02:03'", "0001-04-01 00:00:00"),
        ("month", "TIMESTAMP '9999-12-31 23:59:59.5'", "9999-12-01 00:00:00"),
        ("week", "TIMESTAMP '2263-01-03 00:00:00'", "2262-12-29 00:00:00"),
        ("day", "TIMESTAMP '9999-12-31 23:59:59'", "9999-12-31 00:00:00"),
        ("second", "TIMESTAMP '1066-10-14 09:00:00.25'", "1066-10-14 09:00:00"),
        ("month", "DATE '0001-01-31'", "0001-01-01 00:00:00"),
        ("year", "DATE '9999-12-31'", "9999-01-01 00:00:00"),
        ("year", "TIMESTAMP '2024-05-05 01:02:03'", "2024-01-01 00:00:00"),
    ] {
        let alone = format!("SELECT date_trunc('{part}', {time}) = TIMESTAMP '{expected}'");
        let others = format!("(VALUES ({time}), (NULL), ({time} + INTERVAL '0 days')) v(t)");
        let column =
            format!("SELECT bool_and(date_trunc('{part}', t) = TIMESTAMP '{expected}') FROM {others}");
        for text in [alone, column] {
            let rows = session.sql(&*text).await.unwrap().collect().await.unwrap();
            assert!(rows[0].column(0).as_boolean().value(0), "{text}");
        }
    }
    let last = "SELECT date_trunc('hour', arrow_cast(9223372036854775807, 'Timestamp(Second, None)'))";
    let made = match session.sql(last).await {
        Ok(query) => query.collect().await.map(drop),
        Err(error) => Err(error),
    };
    assert!(made.is_err_and(|error| error.message.contains("out of range")));
}
