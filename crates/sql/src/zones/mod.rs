//! The function `timezone(zone, t)`, to which `t AT TIME ZONE zone` is rewritten. It converts an instant
//! (`timestamptz`) to the local time in the zone (`timestamp`), and a local time to the instant, as in PostgreSQL. The
//! zone may differ from row to row.
//!
//! Invariant: the only errors are an unknown zone, and a time that its type cannot hold.

mod zone;

use crate::error;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array};
use arrow_cast::cast;
use arrow_schema::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::prelude::SessionContext;
use farpool_model::{Error, sql_name};
use std::collections::HashMap;
use std::sync::Arc;
use zone::Zone;

/// The time zone of sessions, and of instants that are computed by this crate.
pub const UTC: &str = "UTC";

/// Registers the function in `context`.
pub fn register(context: &SessionContext) {
    // Types are checked here instead of by the signature, so that the error can name types as in SQL.
    let signature = Signature::any(2, Volatility::Immutable);
    context.register_udf(ScalarUDF::from(TimeZone { signature }));
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TimeZone {
    signature: Signature,
}

impl ScalarUDFImpl for TimeZone {
    fn name(&self) -> &str {
        "timezone"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [zone, time] => turned(zone, time),
            _ => Err(invalid("timezone takes a zone and a time", "write t AT TIME ZONE 'Europe/Berlin'")),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = arguments.number_rows;
        let to = arguments.return_type().clone();
        let [zone, time] = <[ColumnarValue; 2]>::try_from(arguments.args)
            .map_err(|_| invalid("timezone takes a zone and a time", "give both"))?;
        let zone = match zone {
            ColumnarValue::Scalar(zone) => Zones::One(zone_of(&zone)?),
            ColumnarValue::Array(zones) => Zones::Each(cast(&zones, &DataType::Utf8View)?),
        };
        match (&zone, time) {
            (Zones::One(_), ColumnarValue::Scalar(time)) => {
                let turned = zone.turned(&time.to_array()?, &to)?;
                ScalarValue::try_from_array(&turned, 0).map(ColumnarValue::Scalar)
            }
            (_, time) => zone.turned(&time.into_array(rows)?, &to).map(ColumnarValue::Array),
        }
    }
}

/// Returns the type of the result for a time of type `time`. Fails if the type `zone` is not a string, or the other is
/// no time.
fn turned(zone: &DataType, time: &DataType) -> Result<DataType> {
    use DataType::{LargeUtf8, Null, Timestamp, Utf8, Utf8View};
    if !matches!(zone, Utf8 | LargeUtf8 | Utf8View | Null)
        && !matches!(zone, DataType::Dictionary(_, values) if values.is_string())
    {
        let what = format!("a time zone is a text, not {}", sql_name(zone));
        return Err(invalid(&what, "write t AT TIME ZONE 'Europe/Berlin', or '+02:00'"));
    }
    match time {
        Timestamp(unit, None) => Ok(Timestamp(*unit, Some(UTC.into()))),
        Timestamp(unit, Some(_)) => Ok(Timestamp(*unit, None)),
        Null => Ok(Timestamp(TimeUnit::Microsecond, None)),
        // Refused because it is ambiguous: PostgreSQL reads a date as an instant, DuckDB as a time without a zone.
        other => Err(invalid(
            &format!("AT TIME ZONE takes TIMESTAMP or TIMESTAMP WITH TIME ZONE, not {}", sql_name(other)),
            "cast it: t::timestamp for what a clock in the zone shows, t::timestamptz for an instant",
        )),
    }
}

fn invalid(what: &str, advice: &str) -> datafusion::error::DataFusionError {
    error::wrap(Error::invalid(what).advise(advice))
}

fn zone_of(zone: &ScalarValue) -> Result<Option<Zone>> {
    match zone.try_as_str() {
        Some(Some(name)) => Zone::named(name).map(Some).map_err(error::wrap),
        Some(None) | None => Ok(None),
    }
}

/// The time zones of the rows: one for all rows, or a name for each row.
enum Zones {
    One(Option<Zone>),
    /// The name of a time zone for each row.
    Each(ArrayRef),
}

impl Zones {
    /// Converts `times` from instants to local times or back; the result has the type `to`.
    fn turned(&self, times: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
        let DataType::Timestamp(unit, zone) = to else {
            return Err(invalid("AT TIME ZONE gives a timestamp", "this is a defect"));
        };
        let turn = Turn { to_clock: zone.is_none(), per_second: per_second(*unit) };
        // A cast to integers and back keeps the numbers and ignores time zones.
        let times = cast(times, &DataType::Int64)?;
        let times = times.as_primitive::<Int64Type>();
        let turned: Int64Array = match self {
            Zones::One(None) => Int64Array::new_null(times.len()),
            Zones::One(Some(zone)) => times.try_unary(|time| turn.apply(time, zone))?,
            Zones::Each(names) => each(times, names, &turn)?,
        };
        Ok(cast(&(Arc::new(turned) as ArrayRef), to)?)
    }
}

fn each(times: &Int64Array, names: &ArrayRef, turn: &Turn) -> Result<Int64Array> {
    let mut known: HashMap<&str, Zone> = HashMap::new();
    let mut turned = Int64Array::builder(times.len());
    for (time, name) in times.iter().zip(names.as_string_view()) {
        let (Some(time), Some(name)) = (time, name) else {
            turned.append_null();
            continue;
        };
        let zone = match known.get(name) {
            Some(zone) => *zone,
            None => *known.entry(name).or_insert(Zone::named(name).map_err(error::wrap)?),
        };
        turned.append_value(turn.apply(time, &zone)?);
    }
    Ok(turned.finish())
}

/// A conversion between instants and local times.
struct Turn {
    /// Whether an instant is converted to a local time; otherwise a local time is converted to an instant.
    to_clock: bool,
    /// Units per second of the timestamps.
    per_second: i64,
}

impl Turn {
    fn apply(&self, time: i64, zone: &Zone) -> Result<i64> {
        // Offsets from UTC change at whole seconds, so that fractions can be left out.
        let seconds = time.div_euclid(self.per_second);
        let turned = match self.to_clock {
            true => zone.ahead_at(seconds).and_then(|ahead| time.checked_add(ahead * self.per_second)),
            false => zone.ahead_on_clock(seconds).and_then(|ahead| time.checked_sub(ahead * self.per_second)),
        };
        turned.ok_or_else(|| {
            let what = format!("a timestamp does not hold what AT TIME ZONE makes of {time} since 1970");
            invalid(&what, "leave out times at the ends of what timestamps hold")
        })
    }
}

fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}
