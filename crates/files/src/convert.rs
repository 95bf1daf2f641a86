//! Conversion of text columns to typed columns.

use super::csv::guess::{has_zone, hyphenated};
use arrow_array::{Array, ArrayRef, StringArray};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::DataType;

/// Origin of the type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// Guessed from other values. A timestamp with a time zone does not fit a column that was guessed without one, and
    /// vice versa.
    Guessed,
    /// Set by the user. A timestamp without a zone is taken as UTC, and one with a zone is converted.
    Said,
}

/// Reason why a column cannot be converted.
#[derive(Debug)]
pub(super) enum Misfit {
    /// The value in this row cannot be parsed.
    Row(usize),
    /// Text cannot be converted to this type at all.
    Type,
}

/// Converts `texts` to `data_type`; a column of type Null, which has no values, becomes strings.
pub(super) fn convert(texts: &StringArray, data_type: &DataType, origin: Origin) -> Result<ArrayRef, Misfit> {
    let converted = converted(texts, data_type, origin)?;
    let misfit = misfits(texts, &*converted).next();
    match misfit {
        Some(row) => Err(Misfit::Row(row)),
        None => Ok(converted),
    }
}

/// Converts `texts`; values that cannot be converted become NULL.
pub(super) fn converted(
    texts: &StringArray,
    data_type: &DataType,
    origin: Origin,
) -> Result<ArrayRef, Misfit> {
    if let (Origin::Guessed, DataType::Timestamp(_, zone)) = (origin, data_type) {
        let fits = |text: &str| has_zone(text) == zone.is_some();
        if !texts.iter().flatten().all(fits) {
            let fitting = texts.iter().map(|text| text.filter(|text| fits(text))).collect();
            return converted(&fitting, data_type, Origin::Said);
        }
    }
    let data_type = if data_type == &DataType::Null { &DataType::Utf8View } else { data_type };
    let options = CastOptions { safe: true, ..CastOptions::default() };
    let cast = |texts: &StringArray| cast_with_options(texts, data_type, &options).map_err(|_| Misfit::Type);
    let is_instant = matches!(data_type, DataType::Date32 | DataType::Timestamp(..));
    let has_slash = |text: &str| text.as_bytes().get(4) == Some(&b'/');
    if is_instant && texts.iter().flatten().any(has_slash) {
        return cast(&texts.iter().map(|text| text.map(hyphenated)).collect());
    }
    cast(texts)
}

/// Returns the rows whose text became NULL in the conversion.
pub(super) fn misfits<'a>(texts: &'a StringArray, values: &'a dyn Array) -> impl Iterator<Item = usize> + 'a {
    let rows = if values.null_count() == texts.null_count() { 0 } else { texts.len() };
    (0..rows).filter(|&row| values.is_null(row) && texts.is_valid(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int64Type, TimestampMicrosecondType};
    use arrow_schema::TimeUnit;

    #[test]
    fn what_does_not_fit_is_found() {
        let texts = StringArray::from(vec![Some("1"), None, Some("x"), Some("4")]);
        assert!(matches!(convert(&texts, &DataType::Int64, Origin::Guessed), Err(Misfit::Row(2))));
        let values = converted(&texts, &DataType::Int64, Origin::Guessed).unwrap();
        assert_eq!(
            values.as_primitive::<Int64Type>().iter().collect::<Vec<_>>(),
            [Some(1), None, None, Some(4)]
        );
    }

    #[test]
    fn dates_with_slashes_are_dates() {
        let texts = StringArray::from(vec!["2015/01/01 01:00:00", "2015-01-01 01:00:00"]);
        let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
        let values = convert(&texts, &micros, Origin::Guessed).unwrap();
        let values = values.as_primitive::<TimestampMicrosecondType>();
        assert_eq!(values.value(0), 1_420_074_000_000_000);
        assert_eq!(values.value(0), values.value(1));
    }

    #[test]
    fn a_zone_fits_where_the_others_have_one_or_somebody_said_so() {
        let texts = StringArray::from(vec!["2024-05-31T12:00:00+02:00", "2024-05-31 12:00:00"]);
        let of = |zone: Option<&str>, origin| {
            let data_type = DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
            let values = converted(&texts, &data_type, origin).unwrap();
            values.as_primitive::<TimestampMicrosecondType>().iter().collect::<Vec<_>>()
        };
        let noon = 1_717_156_800_000_000;
        let before = Some(noon - 2 * 3_600_000_000);
        assert_eq!(of(Some("UTC"), Origin::Guessed), [before, None]);
        assert_eq!(of(None, Origin::Guessed), [None, Some(noon)]);
        assert_eq!(of(Some("UTC"), Origin::Said), [before, Some(noon)]);
        assert_eq!(of(None, Origin::Said), [before, Some(noon)]);
    }
}
