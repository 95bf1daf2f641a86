//! The supported functions, by their names in Substrait's standard extensions; `docs/wire.md` lists them.
//!
//! Names are matched without case, and without the signature that newer producers append (`equal:any_any`). A function
//! of an extension that is neither one of Substrait's standard ones nor farpool's is not supported. If a producer names
//! no extension, the standard one is assumed.

use super::proto;
use arrow_schema::DataType;
use farpool_model::aggregate::Extension;
use farpool_model::{Aggregate, ArithmeticOp, CompareOp, DatePart};

/// Prefix of the URNs of Substrait's standard extensions.
const STANDARD_URN: &str = "extension:io.substrait:";

pub(super) const COMPARISON: &str = "extension:io.substrait:functions_comparison";
pub(super) const BOOLEAN: &str = "extension:io.substrait:functions_boolean";
pub(super) const ARITHMETIC: &str = "extension:io.substrait:functions_arithmetic";
pub(super) const ARITHMETIC_DECIMAL: &str = "extension:io.substrait:functions_arithmetic_decimal";
pub(super) const DATETIME: &str = "extension:io.substrait:functions_datetime";
pub(super) const STRING: &str = "extension:io.substrait:functions_string";
pub(super) const AGGREGATE: &str = "extension:io.substrait:functions_aggregate_generic";
/// URN of farpool's extension, for functions that Substrait has no name for.
pub(super) const FARPOOL: &str = "extension:io.farpool:functions";

/// The option that tells what happens on overflow, and the value for "an error".
pub(super) const OVERFLOW: &str = "overflow";
pub(super) const ERROR: &str = "ERROR";
/// The option with the parameters (kinds and sizes) of a sketch.
pub(super) const PARAMETERS: &str = "parameters";
/// The option for moments that tells which rows count for a pair of columns if there are NULLs.
pub(super) const NULLS: &str = "nulls";

/// A supported scalar function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Function {
    Compare(CompareOp),
    And,
    Or,
    Not,
    IsNull,
    IsNotNull,
    Between,
    Like { case_insensitive: bool },
    Regex { case_insensitive: bool },
    StartsWith,
    EndsWith,
    Contains,
    Arithmetic(ArithmeticOp),
    Negate,
    Extract,
    InSet,
    InFilter,
    Opaque,
}

/// All scalar functions: name, extension, meaning. If a function has several names, the first is used for encoding.
pub(super) const SCALAR: &[(&str, &str, Function)] = &[
    ("equal", COMPARISON, Function::Compare(CompareOp::Eq)),
    ("not_equal", COMPARISON, Function::Compare(CompareOp::NotEq)),
    ("lt", COMPARISON, Function::Compare(CompareOp::Lt)),
    ("lte", COMPARISON, Function::Compare(CompareOp::LtEq)),
    ("gt", COMPARISON, Function::Compare(CompareOp::Gt)),
    ("gte", COMPARISON, Function::Compare(CompareOp::GtEq)),
    ("is_null", COMPARISON, Function::IsNull),
    ("is_not_null", COMPARISON, Function::IsNotNull),
    ("between", COMPARISON, Function::Between),
    ("and", BOOLEAN, Function::And),
    ("or", BOOLEAN, Function::Or),
    ("not", BOOLEAN, Function::Not),
    ("add", ARITHMETIC, Function::Arithmetic(ArithmeticOp::Add)),
    ("subtract", ARITHMETIC, Function::Arithmetic(ArithmeticOp::Subtract)),
    ("multiply", ARITHMETIC, Function::Arithmetic(ArithmeticOp::Multiply)),
    ("divide", ARITHMETIC, Function::Arithmetic(ArithmeticOp::Divide)),
    ("modulus", ARITHMETIC, Function::Arithmetic(ArithmeticOp::Modulo)),
    ("mod", ARITHMETIC, Function::Arithmetic(ArithmeticOp::Modulo)),
    ("negate", ARITHMETIC, Function::Negate),
    ("extract", DATETIME, Function::Extract),
    ("like", STRING, Function::Like { case_insensitive: false }),
    ("starts_with", STRING, Function::StartsWith),
    ("ends_with", STRING, Function::EndsWith),
    ("contains", STRING, Function::Contains),
    // DataFusion's own name. The standard has `like` with an option for case.
    ("ilike", FARPOOL, Function::Like { case_insensitive: true }),
    ("in_set", FARPOOL, Function::InSet),
    ("in_filter", FARPOOL, Function::InFilter),
    ("regexp_is_match", FARPOOL, Function::Regex { case_insensitive: false }),
    ("opaque", FARPOOL, Function::Opaque),
];

/// The parts of times by the arguments of `extract` that are no values: the component, and for some where it begins.
const COMPONENTS: &[(DatePart, &str, Option<&str>)] = &[
    (DatePart::Year, "YEAR", None),
    (DatePart::IsoYear, "ISO_YEAR", None),
    (DatePart::Quarter, "QUARTER", Some("ONE")),
    (DatePart::Month, "MONTH", Some("ONE")),
    (DatePart::Week, "ISO_WEEK", Some("ONE")),
    (DatePart::Day, "DAY", Some("ONE")),
    (DatePart::DayOfYear, "DAY_OF_YEAR", Some("ONE")),
    (DatePart::DayOfWeek, "SUNDAY_DAY_OF_WEEK", Some("ZERO")),
    (DatePart::IsoDayOfWeek, "MONDAY_DAY_OF_WEEK", Some("ONE")),
    (DatePart::Hour, "HOUR", None),
    (DatePart::Minute, "MINUTE", None),
    (DatePart::Second, "SECOND", None),
];

/// Returns the part of a time that these arguments of `extract` name; `None` if it is not supported.
pub(super) fn date_part(arguments: &[String]) -> Option<DatePart> {
    let (component, first) = match arguments {
        [component] => (component, None),
        [component, first] => (component, Some(first.as_str())),
        _ => return None,
    };
    let named = |(_, known, begins): &&(_, &str, Option<&str>)| known == component && *begins == first;
    COMPONENTS.iter().find(named).map(|(part, ..)| *part)
}

/// Returns the arguments of `extract` that name a part of a time.
pub(super) fn component(part: DatePart) -> impl Iterator<Item = &'static str> {
    let found = COMPONENTS.iter().filter(move |(known, ..)| *known == part);
    found.flat_map(|(_, component, first)| std::iter::once(*component).chain(*first))
}

/// Looks up a scalar function by name.
pub(super) fn scalar(name: &str) -> Option<Function> {
    SCALAR.iter().find(|(known, ..)| *known == name).map(|(.., function)| *function)
}

/// Returns the name and the extension by which a scalar function is encoded.
pub(super) fn scalar_name(function: Function) -> (&'static str, &'static str) {
    let found = SCALAR.iter().find(|(.., known)| *known == function);
    found.map(|(name, urn, _)| (*name, *urn)).expect("the table has every function")
}

/// Returns the extension by which an aggregate is encoded. Arithmetic on decimals has an extension of its own.
pub(super) fn extension_of(aggregate: &Aggregate) -> &'static str {
    match aggregate.function.description().extension {
        Extension::Arithmetic if matches!(aggregate.data_type, DataType::Decimal128(..)) => {
            ARITHMETIC_DECIMAL
        }
        extension => urn(extension),
    }
}

/// Returns the URN of an extension.
pub(super) fn urn(extension: Extension) -> &'static str {
    match extension {
        Extension::Generic => AGGREGATE,
        Extension::Arithmetic => ARITHMETIC,
        Extension::Boolean => BOOLEAN,
        Extension::Farpool => FARPOOL,
    }
}

/// Returns a function's name in lower case, without its signature.
pub(super) fn simple_name(name: &str) -> String {
    name.split(':').next().unwrap_or_default().to_ascii_lowercase()
}

/// Returns whether the URN is that of an extension whose names are in the tables above.
pub(super) fn is_known_extension(urn: &str) -> bool {
    urn.is_empty()
        || urn == "/"
        || urn == FARPOOL
        || urn.starts_with(STANDARD_URN)
        // The URIs that older versions used: .../extensions/functions_comparison.yaml
        || urn.rsplit('/').next().is_some_and(|f| f.starts_with("functions_") && f.ends_with(".yaml"))
}

/// Returns the option that requires something unsupported; `None` if there is no such option. An option without a
/// preference leaves the choice to the node.
pub(super) fn refused_option(options: &[proto::FunctionOption]) -> Option<String> {
    let refused = options.iter().find(|option| {
        let done: &[&str] = match option.name.to_ascii_lowercase().as_str() {
            OVERFLOW => &[ERROR],
            "rounding" => &["TIE_TO_EVEN"],
            "division_type" => &["TRUNCATE"],
            "on_division_by_zero" | "on_domain_error" => &[ERROR],
            "case_sensitivity" => &["CASE_SENSITIVE", "CASE_INSENSITIVE"],
            _ => &[],
        };
        !option.preference.iter().any(|p| done.iter().any(|d| p.eq_ignore_ascii_case(d)))
    })?;
    Some(format!("option {} = {}", refused.name, refused.preference.join(" or ")))
}

/// Returns whether the options ask for matching without case. The first preference that is known counts.
pub(super) fn wants_case_insensitive(options: &[proto::FunctionOption]) -> bool {
    let preferences = options
        .iter()
        .filter(|o| o.name.eq_ignore_ascii_case("case_sensitivity"))
        .flat_map(|o| &o.preference);
    let known =
        |p: &&String| p.eq_ignore_ascii_case("CASE_SENSITIVE") || p.eq_ignore_ascii_case("CASE_INSENSITIVE");
    preferences.clone().find(known).is_some_and(|p| p.eq_ignore_ascii_case("CASE_INSENSITIVE"))
}
