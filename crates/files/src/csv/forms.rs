//! Numbers, dates and times in other notations than the default: `1.234,56`, `31.12.2024`.
//!
//! A value in the notation that the options state is rewritten to the default notation, from which its type is guessed
//! and it is converted. A value that is not in the stated notation is not of that type, even if it is in the default
//! notation: `1.5` is not a number if a comma is the decimal separator.

use super::guess::Guess;
use arrow_array::StringArray;
use arrow_schema::DataType;
use chrono::format::{Item, StrftimeItems};
use chrono::{DateTime, NaiveDate, NaiveDateTime, Utc};
use farpool_model::{Error, ReadOptions, Result, brief};
use std::borrow::Cow;

/// Returns a value in the default notation; `None` if it is not in the stated notation.
type Rewrite<'a> = Box<dyn Fn(&str) -> Option<String> + 'a>;

/// Text from which no number, date or time can be parsed.
const NO_VALUE: &str = "no value";

/// The notations of numbers, dates and times that the options state.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(super) struct Forms {
    has_comma: bool,
    thousands: Option<u8>,
    date: Option<String>,
    timestamp: Option<String>,
}

impl Forms {
    /// Returns the notations that the options state.
    ///
    /// # Errors
    /// `Invalid` if a format is not valid for reading.
    pub(super) fn of(options: &ReadOptions) -> Result<Self> {
        let has_comma = options.decimal_separator == Some(b',');
        let point = if has_comma { b',' } else { b'.' };
        if let Some(thousands) = options.thousands
            && (thousands == point || thousands.is_ascii_alphanumeric() || b"+-".contains(&thousands))
        {
            let what = format!("{:?} cannot stand between thousands", char::from(thousands));
            return Err(Error::invalid(what)
                .advise("say what stands before fractions, too: decimal_separator = ',', thousands = '.'"));
        }
        Ok(Forms {
            has_comma,
            thousands: options.thousands,
            date: options.date_format.as_deref().map(|format| checked("dateformat", format)).transpose()?,
            timestamp: options
                .timestamp_format
                .as_deref()
                .map(|format| checked("timestampformat", format))
                .transpose()?,
        })
    }

    /// Rewrites a value from which a type is guessed.
    pub(super) fn guessed<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if *self == Forms::default() {
            return Cow::Borrowed(text);
        }
        let rewritten = self.timestamp(text).or_else(|| self.date(text)).or_else(|| self.number(text));
        if let Some(rewritten) = rewritten {
            return Cow::Owned(rewritten);
        }
        let mut usual = Guess::default();
        usual.see(text);
        let is_excluded = match usual.data_type() {
            DataType::Int64 | DataType::Float64 => self.has_numbers(),
            DataType::Date32 => self.date.is_some(),
            DataType::Timestamp(..) => self.timestamp.is_some(),
            _ => false,
        };
        Cow::Borrowed(if is_excluded { NO_VALUE } else { text })
    }

    /// Rewrites the values of a column of this type; `None` if none changes.
    pub(super) fn of_column(&self, texts: &StringArray, data_type: &DataType) -> Option<StringArray> {
        let is_number = data_type.is_numeric();
        let rewrite: Rewrite<'_> = match data_type {
            _ if is_number && self.has_numbers() => Box::new(|text| self.number(text)),
            DataType::Date32 if self.date.is_some() => Box::new(|text| self.date(text)),
            DataType::Timestamp(..) if self.timestamp.is_some() || self.date.is_some() => Box::new(|text| {
                let usual = self.timestamp.is_none().then(|| text.to_string());
                self.timestamp(text).or_else(|| self.date(text)).or(usual)
            }),
            _ => return None,
        };
        let rewritten = |text: &str| rewrite(text).unwrap_or_else(|| NO_VALUE.to_string());
        Some(texts.iter().map(|text| text.map(rewritten)).collect())
    }

    fn has_numbers(&self) -> bool {
        self.has_comma || self.thousands.is_some()
    }

    /// Rewrites a number to one with a decimal point and without thousands separators; `None` if the separators are not
    /// between groups of three digits.
    fn number(&self, text: &str) -> Option<String> {
        if !self.has_numbers() {
            return None;
        }
        let (sign, digits) = match text.as_bytes().first()? {
            b'-' => ("-", &text[1..]),
            b'+' => ("", &text[1..]),
            _ => ("", text),
        };
        let point = if self.has_comma { ',' } else { '.' };
        let (whole, fraction) = match digits.split_once(point) {
            Some((whole, fraction)) => (whole, Some(fraction)),
            None => (digits, None),
        };
        let groups: Vec<&str> = match self.thousands {
            Some(mark) => whole.split(char::from(mark)).collect(),
            None => vec![whole],
        };
        let is_grouped = groups.len() > 1;
        let is_whole = groups.iter().enumerate().all(|(i, group)| {
            let fits = if i == 0 { !is_grouped || (1..=3).contains(&group.len()) } else { group.len() == 3 };
            fits && group.bytes().all(|byte| byte.is_ascii_digit())
        });
        // An exponent may follow the decimal point and the fraction, as in the default notation.
        let has_fraction = |fraction: &str| {
            fraction.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'e' | b'E' | b'+' | b'-'))
        };
        let is_number =
            is_whole && fraction.is_none_or(has_fraction) && digits.bytes().any(|b| b.is_ascii_digit());
        let joined = || match fraction {
            Some(fraction) => format!("{sign}{}.{fraction}", groups.concat()),
            None => format!("{sign}{}", groups.concat()),
        };
        is_number.then(joined)
    }

    fn date(&self, text: &str) -> Option<String> {
        let date = NaiveDate::parse_from_str(text, self.date.as_deref()?).ok()?;
        Some(date.format("%Y-%m-%d").to_string())
    }

    fn timestamp(&self, text: &str) -> Option<String> {
        const USUAL: &str = "%Y-%m-%d %H:%M:%S%.f";
        let format = self.timestamp.as_deref()?;
        if format.contains("%z") {
            let instant = DateTime::parse_from_str(text, format).ok()?.with_timezone(&Utc);
            return Some(format!("{}Z", instant.naive_utc().format(USUAL)));
        }
        match NaiveDateTime::parse_from_str(text, format) {
            Ok(time) => Some(time.format(USUAL).to_string()),
            // The format has no time of day.
            Err(_) => {
                let date = NaiveDate::parse_from_str(text, format).ok()?;
                Some(date.format("%Y-%m-%d 00:00:00").to_string())
            }
        }
    }
}

/// Converts a format of `strptime` to one of `chrono`, whose `%f` counts nanoseconds and whose `%.f` is a fraction with
/// its point.
fn checked(option: &str, format: &str) -> Result<String> {
    let ours =
        [".%f", ".%g", ".%n"].iter().fold(format.to_string(), |format, part| format.replace(part, "%.f"));
    let is_other = ["%f", "%g", "%n"].iter().any(|part| ours.contains(part));
    match !is_other && StrftimeItems::new(&ours).all(|item| item != Item::Error) {
        true => Ok(ours),
        false => {
            Err(Error::invalid(format!("option {option}: {:?} is no form of a date or time", brief(format)))
                .advise("write it as strptime has it: '%d.%m.%Y', '%Y-%m-%d %H:%M:%S.%f'"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farpool_model::{FileFormat, OptionValue};

    fn forms(set: &[(&str, &str)]) -> Result<Forms> {
        let mut options = ReadOptions::for_format(FileFormat::Csv);
        set.iter().try_for_each(|(name, value)| options.set(name, &OptionValue::Text(value.to_string())))?;
        Forms::of(&options)
    }

    #[test]
    fn values_are_rewritten_to_the_usual_form() {
        type Pairs<'a> = &'a [(&'a str, &'a str)];
        let cases: &[(Pairs<'_>, Pairs<'_>)] = &[
            (
                &[("decimal_separator", ",")],
                &[
                    ("1,5", "1.5"),
                    ("-0,25", "-0.25"),
                    ("7", "7"),
                    ("1.5", NO_VALUE),
                    ("1,2,3", "1,2,3"),
                    ("x", "x"),
                ],
            ),
            (
                &[("decimal_separator", ","), ("thousands", ".")],
                &[("1.234,5", "1234.5"), ("1.234.567", "1234567"), ("12.34", NO_VALUE), ("1234,5", "1234.5")],
            ),
            (&[("thousands", ",")], &[("1,234", "1234"), ("-12,345.5", "-12345.5"), ("1,23", "1,23")]),
            (
                &[("dateformat", "%d.%m.%Y")],
                &[
                    ("31.12.2024", "2024-12-31"),
                    ("32.12.2024", "32.12.2024"),
                    ("2024-12-31", NO_VALUE),
                    ("1.5", "1.5"),
                ],
            ),
            (
                &[("timestampformat", "%d/%m/%Y %H:%M:%S.%f")],
                &[("31/12/2024 23:59:58.5", "2024-12-31 23:59:58.500"), ("2024-12-31 00:00:00", NO_VALUE)],
            ),
            (&[("timestampformat", "%Y%m%dT%H%M%S%z")], &[("20241231T120000+0200", "2024-12-31 10:00:00Z")]),
        ];
        for (set, values) in cases {
            let forms = forms(set).unwrap();
            for (text, expected) in *values {
                assert_eq!(forms.guessed(text), *expected, "{set:?}: {text}");
            }
        }
    }

    #[test]
    fn what_cannot_be_read_with_is_an_error() {
        for set in [
            &[("thousands", ".")][..],
            &[("decimal_separator", ","), ("thousands", ",")],
            &[("thousands", "1")],
            &[("dateformat", "%!")],
            &[("timestampformat", "%f")],
            &[("decimal_separator", ";")],
        ] {
            assert!(forms(set).is_err(), "{set:?}");
        }
    }
}
