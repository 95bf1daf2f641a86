//! The functions of other databases, each with an expression of the engine's (DataFusion's) functions that replaces it.
//! A call is pushed down if the functions in the expression are.

/// A function of DuckDB or PostgreSQL, and the expression that replaces it.
pub(super) struct Function {
    pub name: &'static str,
    pub parameters: &'static [&'static str],
    pub means: Means,
}

/// Replacement of a call.
pub(super) enum Means {
    /// A function with another name, and the same arguments and clauses.
    Same(&'static str),
    /// An expression of the call's parameters. If it is a call of an aggregate, FILTER and OVER are moved to that call.
    Sql(&'static str),
    /// An expression for each unit of time; the unit is the first argument.
    ByUnit(&'static [(&'static str, &'static str)]),
}

use Means::{ByUnit, Same, Sql};

const fn function(name: &'static str, parameters: &'static [&'static str], means: Means) -> Function {
    Function { name, parameters, means }
}

/// All functions of other databases, grouped by subject.
pub(super) const FUNCTIONS: &[(&str, &[Function])] = &[
    ("Numbers and conditions", NUMBERS),
    ("Dates and times", TIMES),
    ("Texts", TEXTS),
    ("JSON in texts", JSON),
    ("Lists", LISTS),
    ("Aggregates", AGGREGATES),
];

const NUMBERS: &[Function] = &[
    function("mod", &["x", "y"], Sql("x % y")),
    function("sign", &["x"], Sql("CAST(signum(nanvl(CAST(x AS DOUBLE), 0)) AS TINYINT)")),
    function("xor", &["x", "y"], Sql("x # y")),
    function("ceiling", &["x"], Same("ceil")),
    function("isinf", &["x"], Sql("abs(CAST(x AS DOUBLE)) = CAST('inf' AS DOUBLE)")),
    function("isfinite", &["x"], Sql("abs(CAST(x AS DOUBLE)) < CAST('inf' AS DOUBLE)")),
    function("if", &["condition", "x", "y"], Sql("CASE WHEN condition THEN x ELSE y END")),
    function("iff", &["condition", "x", "y"], Sql("CASE WHEN condition THEN x ELSE y END")),
    function("gen_random_uuid", &[], Same("uuid")),
];

const TIMES: &[Function] = &[
    function("year", &["t"], Sql("date_part('year', t)")),
    function("isoyear", &["t"], Sql("date_part('isoyear', t)")),
    function("quarter", &["t"], Sql("date_part('quarter', t)")),
    function("month", &["t"], Sql("date_part('month', t)")),
    function("week", &["t"], Sql("date_part('week', t)")),
    function("weekofyear", &["t"], Sql("date_part('week', t)")),
    function("yearweek", &["t"], Sql("date_part('isoyear', t) * 100 + date_part('week', t)")),
    function("day", &["t"], Sql("date_part('day', t)")),
    function("dayofmonth", &["t"], Sql("date_part('day', t)")),
    function("dayofweek", &["t"], Sql("date_part('dow', t)")),
    function("weekday", &["t"], Sql("date_part('dow', t)")),
    function("isodow", &["t"], Sql("date_part('isodow', t)")),
    function("dayofyear", &["t"], Sql("date_part('doy', t)")),
    function("hour", &["t"], Sql("date_part('hour', t)")),
    function("minute", &["t"], Sql("date_part('minute', t)")),
    function("second", &["t"], Sql("date_part('second', t)")),
    function("millisecond", &["t"], Sql("date_part('millisecond', t)")),
    function("microsecond", &["t"], Sql("date_part('microsecond', t)")),
    function(
        "epoch",
        &["t"],
        Sql("CAST(CAST(CAST(t AS TIMESTAMP(6)) AS BIGINT) AS DOUBLE) / CAST(1000000 AS DOUBLE)"),
    ),
    function("epoch_ms", &["t"], Sql("CAST(date_trunc('millisecond', CAST(t AS TIMESTAMP(3))) AS BIGINT)")),
    function("epoch_us", &["t"], Sql("CAST(CAST(t AS TIMESTAMP(6)) AS BIGINT)")),
    function("dayname", &["t"], Sql("to_char(CAST(t AS TIMESTAMP), '%A')")),
    function("monthname", &["t"], Sql("to_char(CAST(t AS TIMESTAMP), '%B')")),
    function("strftime", &["t", "format"], Sql("to_char(CAST(t AS TIMESTAMP), format)")),
    function("strptime", &["text", "format"], Sql("to_timestamp(text, format)")),
    function("date_add", &["t", "interval_"], Sql("t + interval_")),
    function("date_diff", &["unit", "t", "u"], ByUnit(DIFFERENCES)),
    function("datediff", &["unit", "t", "u"], ByUnit(DIFFERENCES)),
    function(
        "last_day",
        &["t"],
        Sql("CAST(date_trunc('month', CAST(t AS DATE)) + INTERVAL '1 month' - INTERVAL '1 day' AS DATE)"),
    ),
    function("to_years", &["n"], Sql("multiply_interval(INTERVAL '1 year', n)")),
    function("to_months", &["n"], Sql("multiply_interval(INTERVAL '1 month', n)")),
    function("to_weeks", &["n"], Sql("multiply_interval(INTERVAL '7 days', n)")),
    function("to_days", &["n"], Sql("multiply_interval(INTERVAL '1 day', n)")),
    function("to_hours", &["n"], Sql("multiply_interval(INTERVAL '1 hour', n)")),
    function("to_minutes", &["n"], Sql("multiply_interval(INTERVAL '1 minute', n)")),
    function("to_seconds", &["n"], Sql("multiply_interval(INTERVAL '1 second', n)")),
];

/// `date_diff`: the number of boundaries of the unit between two times; for weeks, the number of multiples of seven
/// days, as in DuckDB.
const DIFFERENCES: &[(&str, &str)] = &[
    ("year", "CAST(date_part('year', u) - date_part('year', t) AS BIGINT)"),
    (
        "quarter",
        "CAST(date_part('year', u) * 4 + date_part('quarter', u) \
         - date_part('year', t) * 4 - date_part('quarter', t) AS BIGINT)",
    ),
    (
        "month",
        "CAST(date_part('year', u) * 12 + date_part('month', u) \
         - date_part('year', t) * 12 - date_part('month', t) AS BIGINT)",
    ),
    ("week", "CAST((CAST(u AS DATE) - CAST(t AS DATE)) / 7 AS BIGINT)"),
    ("day", "CAST(CAST(u AS DATE) - CAST(t AS DATE) AS BIGINT)"),
    (
        "hour",
        "(CAST(CAST(date_trunc('hour', CAST(u AS TIMESTAMP)) AS TIMESTAMP(0)) AS BIGINT) \
         - CAST(CAST(date_trunc('hour', CAST(t AS TIMESTAMP)) AS TIMESTAMP(0)) AS BIGINT)) / 3600",
    ),
    (
        "minute",
        "(CAST(CAST(date_trunc('minute', CAST(u AS TIMESTAMP)) AS TIMESTAMP(0)) AS BIGINT) \
         - CAST(CAST(date_trunc('minute', CAST(t AS TIMESTAMP)) AS TIMESTAMP(0)) AS BIGINT)) / 60",
    ),
    (
        "second",
        "CAST(CAST(date_trunc('second', CAST(u AS TIMESTAMP)) AS TIMESTAMP(0)) AS BIGINT) \
         - CAST(CAST(date_trunc('second', CAST(t AS TIMESTAMP)) AS TIMESTAMP(0)) AS BIGINT)",
    ),
];

const TEXTS: &[Function] = &[
    function("quote_literal", &["x"], Sql("'''' || replace(CAST(x AS VARCHAR), '''', '''''') || ''''")),
    function("len", &["text"], Same("length")),
    function("strlen", &["text"], Same("octet_length")),
    function("ucase", &["text"], Same("upper")),
    function("lcase", &["text"], Same("lower")),
    function("prefix", &["text", "start"], Same("starts_with")),
    function("suffix", &["text", "ending"], Same("ends_with")),
    function("split", &["text", "separator"], Same("string_to_array")),
    function("str_split", &["text", "separator"], Same("string_to_array")),
    function("string_split", &["text", "separator"], Same("string_to_array")),
    function("regexp_matches", &["text", "pattern"], Same("regexp_like")),
    function("regexp_matches", &["text", "pattern", "options"], Same("regexp_like")),
    function("regexp_full_match", &["text", "pattern"], Sql("regexp_like(text, '^(?:' || pattern || ')$')")),
    function(
        "regexp_extract",
        &["text", "pattern"],
        Sql("CASE WHEN text IS NOT NULL AND pattern IS NOT NULL \
             THEN coalesce(regexp_match(text, '(' || pattern || ')')[1], '') END"),
    ),
    function(
        "regexp_extract",
        &["text", "pattern", "group_"],
        Sql("CASE WHEN text IS NOT NULL AND pattern IS NOT NULL AND group_ IS NOT NULL \
             THEN coalesce(array_element(regexp_match(text, '(' || pattern || ')'), group_ + 1), '') END"),
    ),
];

const JSON: &[Function] = &[
    function("json_extract", &["json", "path"], Sql("json_get_json(json, path)")),
    function("json_extract_string", &["json", "path"], Sql("json_as_text(json, path)")),
    function("json_extract_path", &["json", "key", "…"], Same("json_get_json")),
    function("json_extract_path_text", &["json", "key", "…"], Same("json_as_text")),
    function("json_exists", &["json", "path"], Sql("json_get_json(json, path) IS NOT NULL")),
    function("json_typeof", &["json"], Sql(JSON_TYPEOF)),
    function(
        "json_array_length",
        &["json"],
        Sql(
            "CASE WHEN json_type(json) = 'ARRAY' THEN CAST(json_length(json) AS BIGINT) WHEN json_valid(json) THEN 0 END",
        ),
    ),
    function(
        "json_array_length",
        &["json", "path"],
        Sql(
            "CASE WHEN json_type(json_get_json(json, path)) = 'ARRAY' THEN CAST(json_length(json, path) AS BIGINT) \
             WHEN json_valid(json_get_json(json, path)) THEN 0 END",
        ),
    ),
    function("json_build_array", &["x", "…"], Same("json_array")),
    function("json_build_object", &["key", "x", "…"], Same("json_object")),
    function("row_to_json", &["row"], Same("to_json")),
    function("json_group_array", &["x"], Sql("to_json(array_agg(x))")),
    function("json_agg", &["x"], Sql("to_json(array_agg(x))")),
];

/// `json_typeof`: the name of a JSON value's type as in PostgreSQL.
const JSON_TYPEOF: &str = "CASE json_type(json) WHEN 'OBJECT' THEN 'object' WHEN 'ARRAY' THEN 'array' \
    WHEN 'VARCHAR' THEN 'string' WHEN 'BOOLEAN' THEN 'boolean' WHEN 'NULL' THEN 'null' \
    WHEN 'UBIGINT' THEN 'number' WHEN 'BIGINT' THEN 'number' WHEN 'DOUBLE' THEN 'number' END";

const LISTS: &[Function] = &[
    function("array_upper", &["list", "dimension"], Sql("array_length(list, dimension)")),
    function(
        "array_lower",
        &["list", "dimension"],
        Sql("CASE WHEN array_length(list, dimension) > 0 THEN 1 END"),
    ),
    function("list_value", &["x", "…"], Same("make_array")),
    function("list_last", &["list"], Sql("array_element(list, -1)")),
    function("list_reverse_sort", &["list"], Sql("array_sort(list, 'DESC', 'NULLS LAST')")),
    function("struct_extract", &["struct", "name"], Same("get_field")),
];

const AGGREGATES: &[Function] = &[
    function("first", &["x"], Same("first_value")),
    function("arbitrary", &["x"], Same("first_value")),
    function("last", &["x"], Same("last_value")),
    function("arg_max", &["x", "y"], Sql(GREATEST)),
    function("max_by", &["x", "y"], Sql(GREATEST)),
    function("arg_min", &["x", "y"], Sql(LEAST)),
    function("min_by", &["x", "y"], Sql(LEAST)),
    function("list", &["x"], Same("array_agg")),
    function("variance", &["x"], Same("var_samp")),
    function("count_if", &["condition"], Sql("count(*) FILTER (WHERE condition)")),
    function("countif", &["condition"], Sql("count(*) FILTER (WHERE condition)")),
    function("count_star", &[], Sql("count(*)")),
    function("every", &["condition"], Same("bool_and")),
    function("approx_count_distinct", &["x"], Same("approx_distinct")),
    function("group_concat", &["text"], Sql("string_agg(text, ',')")),
    function("group_concat", &["text", "separator"], Same("string_agg")),
    function("listagg", &["text"], Sql("string_agg(text, ',')")),
    function("listagg", &["text", "separator"], Same("string_agg")),
];

/// `max_by`: the `x` of the row with the greatest `y`.
const GREATEST: &str =
    "first_value(x ORDER BY y DESC NULLS LAST) FILTER (WHERE x IS NOT NULL AND y IS NOT NULL)";
const LEAST: &str = "first_value(x ORDER BY y ASC NULLS LAST) FILTER (WHERE x IS NOT NULL AND y IS NOT NULL)";
