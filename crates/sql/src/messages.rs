//! Rewrites the engine's error messages for the author of a statement: SQL names of types, one sentence, and nothing
//! about the internals of the engine.

use crate::names;
use farpool_model::{Error, ErrorKind};

/// Converts an error message of DataFusion to an error for the user.
pub fn told(kind: ErrorKind, message: &str) -> Error {
    let message = without_insides(message);
    let of_functions = wrong_arguments(&message).or_else(|| unknown_function(&message));
    let error = of_functions.or_else(|| wrong_types(&message)).or_else(|| equal_names(&message));
    let error = error.or_else(|| subquery_in_a_wrong_place(&message)).or_else(|| nested_calls(&message));
    let error = error.or_else(|| in_our_words(&message));
    error.unwrap_or_else(|| match message.starts_with("Assertion failed") || message.is_empty() {
        true => Error::invalid("the engine has no plan for this statement")
            .advise("write it in another way, such as with a join in place of ALL or ANY"),
        false => Error::new(kind, sql_types(&message)),
    })
}

/// Removes what is meant for developers of the engine: debug output of structs, backtraces, and where to report a bug.
fn without_insides(message: &str) -> String {
    let ends = ["\nThis issue was likely caused by", "\n\nbacktrace:", "\nbacktrace:"];
    let end = ends.iter().filter_map(|end| message.find(end)).min().unwrap_or(message.len());
    // A message about a function's arguments has the list of possible signatures after the backtrace; it is kept.
    let arguments = message.find(NO_MATCH).filter(|at| *at > end).map_or("", |at| &message[at..]);
    let mut text = format!("{} {arguments}", &message[..end]);
    for prefix in ["Internal error: ", "Error during planning: ", "This feature is not implemented: "] {
        text = text.strip_prefix(prefix).map(str::to_string).unwrap_or(text);
    }
    match structure(&text) {
        None => text.trim().to_string(),
        // Keeps the name of the struct: `Unsupported ast node Pivot {`.
        Some(at) => {
            let name: String = text[at..].chars().take_while(|c| c.is_alphanumeric()).collect();
            let before =
                text[..at].trim_end().trim_end_matches("original schema:").trim_end_matches(':').trim_end();
            let before = before.trim_end_matches("ast node").trim_end();
            format!("{before} {name}").trim().to_string()
        }
    }
}

/// The engine's operators that reserve memory, by a part of their names, with a description of what they compute.
const OPERATORS: &[(&str, &str)] = &[
    ("Aggregate", "groups"),
    ("Join", "a join"),
    ("Sort", "a sort"),
    ("TopK", "a sort"),
    ("Window", "a window"),
];

/// Replaces names of operators, such as `AggregateStream[0]`, by what these operators compute.
pub fn without_operators(message: &str) -> String {
    let plain = |word: &str| {
        let name = word.trim_end_matches([',', '.', ':', ')']);
        if ["Exec", "Input", "HashTable"].iter().any(|end| name.len() > end.len() && name.ends_with(end)) {
            let known = OPERATORS.iter().find(|(part, _)| name.contains(part));
            return Some(known.map_or("the statement", |(_, what)| what).to_string());
        }
        let (name, place) = word.split_once('[')?;
        let number = place.trim_end_matches([',', '.', ':', ')']).strip_suffix(']')?;
        let is_operator = !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_alphanumeric())
            && !number.is_empty()
            && number.bytes().all(|b| b.is_ascii_digit());
        is_operator.then(|| {
            let known = OPERATORS.iter().find(|(part, _)| name.contains(part));
            known.map_or("the statement", |(_, what)| what).to_string()
        })
    };
    let words = message.split(' ').map(|word| plain(word).unwrap_or_else(|| word.to_string()));
    words.collect::<Vec<_>>().join(" ")
}

/// Finds the start of a struct in debug output, such as `Ident { value: …`.
fn structure(text: &str) -> Option<usize> {
    let is_name = |word: &str| word.starts_with(|c: char| c.is_ascii_uppercase());
    let opens = text.match_indices(" {").map(|(at, _)| at).find(|at| {
        let word = text[..*at].rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        is_name(word) && text[*at..].trim_start_matches([' ', '{']).contains(": ")
    })?;
    Some(text[..opens].rfind(char::is_whitespace).map_or(0, |at| at + 1))
}

/// If the message reports a subquery or another expression at a position that the engine does not support, such as an
/// aggregate's argument, returns a better error; otherwise `None`.
fn subquery_in_a_wrong_place(message: &str) -> Option<Error> {
    let expr = message.strip_prefix("Physical plan does not support logical expression ")?;
    if expr.starts_with("WindowFunction") {
        let error = Error::invalid("a window function is not done in this place");
        return Some(error.advise("compute it in a query in FROM, or write QUALIFY in place of WHERE"));
    }
    if expr.starts_with("OuterReferenceColumn") {
        let error = Error::invalid("a subquery cannot refer to a column of the outer query in this place");
        return Some(error.advise("write it as a join"));
    }
    let is_one =
        ["ScalarSubquery", "InSubquery", "Exists", "SetComparison"].iter().any(|name| expr.starts_with(name));
    is_one.then(|| {
        Error::invalid("a subquery is not done in this place")
            .advise("compute it in a query in FROM, and use the column; or join with it")
    })
}

/// Parts of messages that expose internals of the engine, each with the message that replaces the whole, and advice.
const WORDS: &[(&str, &str, &str)] = &[
    (
        "Unsupported LIMIT expression",
        "LIMIT takes a number, no subquery",
        "give the number, or use row_number()",
    ),
    (
        "Unsupported OFFSET expression",
        "OFFSET takes a number, no subquery",
        "give the number, or use row_number()",
    ),
    ("Unnest should be rewritten", "unnest is not done in this place", "unnest the list in a query in FROM"),
    (
        "CompiledTooBig(",
        "a regular expression is too large once compiled",
        "make it shorter, or its counts of repetitions smaller",
    ),
    (
        "Schema contains duplicate qualified field name",
        "two tables of one FROM have the same name",
        "give one of them another name with AS",
    ),
    ("Dot access not supported", "a field is not named like this", "write the structure in brackets: (s).a"),
    (
        "There is only support Literal types for field",
        "the number of rows that a window function counts must be a constant",
        "give a number, or join the table with itself",
    ),
    ("MergeInto of a table", "MERGE INTO is not done", "use UPDATE and INSERT"),
    (
        "LambdaVariable",
        "a lambda over the result of another one is not done in this form",
        "compute the inner list in a query in FROM, and use its column",
    ),
    (
        "must be an INTEGER or NULL, got",
        "the arguments of a table function must be constants",
        "unnest a list in its place: FROM t, unnest(range(1, t.n)) u(x)",
    ),
];

/// If the message exposes internals of the engine, returns the error that replaces it; otherwise `None`.
pub fn in_our_words(message: &str) -> Option<Error> {
    let (_, told, advice) = WORDS.iter().find(|(part, ..)| message.contains(part))?;
    Some(Error::invalid(*told).advise(*advice))
}

/// If the message reports an aggregate or window call within another one, which the engine prints in a form of its own,
/// returns a better error; otherwise `None`.
fn nested_calls(message: &str) -> Option<Error> {
    let (what, _) = message.split_once(": '")?;
    let what = match what {
        "Aggregate function calls cannot be nested" => "an aggregate cannot be an argument of another one",
        "Aggregate function calls cannot contain window function calls" => {
            "a window function cannot be an argument of an aggregate"
        }
        "Window function calls cannot be nested" => "a window function cannot be a part of another one",
        _ => return None,
    };
    Some(Error::invalid(what).advise("compute it in a query in FROM, and use its column"))
}

const NO_MATCH: &str = "No function matches the given name and argument types '";

/// If the message reports a call with unsuitable types or too many arguments, returns a better error; otherwise `None`.
fn wrong_arguments(message: &str) -> Option<Error> {
    let (before, rest) = message.split_once(NO_MATCH)?;
    let (call, _) = rest.split_once("'. ")?;
    let (name, given) = call.split_once('(')?;
    let given = sql_types(given.strip_suffix(')')?);
    let candidates = rest.split_once("Candidate functions:").map_or("", |(_, all)| all);
    let candidates = candidates.split(['\n', '\t']).filter_map(|line| {
        let line = line.trim().trim_start_matches("\\t").trim();
        line.starts_with(name).then(|| sql_types(line))
    });
    let mut candidates: Vec<String> = candidates.collect();
    candidates.dedup();
    let count =
        before.split_once(" expects ").and_then(|(_, rest)| rest.split_once(" arguments but received "));
    let what = match count {
        Some((wanted, _)) if wanted.chars().all(|c| c.is_ascii_digit()) => {
            format!("{name} takes {wanted} argument{}, not ({given})", if wanted == "1" { "" } else { "s" })
        }
        _ => format!("{name} does not take {given}"),
    };
    let error = Error::invalid(what);
    Some(
        match candidates.is_empty()
            || candidates
                .iter()
                .any(|c| ["Any", "UserDefined", "Numeric", "Coercible"].iter().any(|of| c.contains(of)))
        {
            true => error.advise("cast the arguments to types that it takes"),
            false => error.advise(format!("what there is: {}", candidates.join(", "))),
        },
    )
}

/// If the message reports an operator between types that it does not support, returns a better error; otherwise `None`.
fn wrong_types(message: &str) -> Option<Error> {
    let between = |before: &str, after: &str| {
        let (_, rest) = message.split_once(before)?;
        Some(match after.is_empty() {
            true => rest,
            false => rest.split_once(after)?.0,
        })
    };
    let operation = between("Cannot coerce arithmetic expression ", " to valid types")
        .or_else(|| between("Cannot infer common argument type for comparison operation ", ""))
        .or_else(|| between("Cannot infer common argument type for logical boolean operation ", ""))
        .or_else(|| between("Cannot get result type for temporal operation ", ": "))
        .or_else(|| between("Cannot infer common array type for bitwise operation ", ""))?;
    let mut words = operation.split_whitespace().collect::<Vec<_>>();
    let at = words.iter().position(|word| !word.contains(|c: char| c.is_ascii_lowercase() || c == ','))?;
    let operator = words.remove(at);
    let (left, right) = words.split_at(at);
    let (left, right) = (sql_types(&left.join(" ")), sql_types(&right.join(" ")));
    Some(Error::invalid(format!("{operator} does not take {left} and {right}")).advise("cast one of them"))
}

fn equal_names(message: &str) -> Option<Error> {
    message.starts_with("Projections require unique expression names").then(|| {
        Error::invalid("two columns of a list have the same name")
            .advise("give one of them another name with AS")
    })
}

/// Functions of other databases, each with advice on what to use instead.
const MEANINGS: &[(&str, &str)] = &[
    ("age", "subtract the times, or use date_diff('day', t, u)"),
    ("avg_if", "use avg(x) FILTER (WHERE condition)"),
    ("charindex", "use strpos(text, part)"),
    ("date_sub", "use t - INTERVAL '1 day', or date_diff"),
    ("dateadd", "use t + INTERVAL '1 day'"),
    ("format", "use concat, or to_char for dates"),
    ("getdate", "use now()"),
    ("hash", "use md5 or sha256"),
    ("json_each", "name members by json_get_json(j, key), or read a file of JSON with FROM"),
    ("json_tree", "name members by json_get_json(j, key), or read a file of JSON with FROM"),
    ("isnumeric", "use TRY_CAST(x AS DOUBLE) IS NOT NULL"),
    ("locate", "use strpos(text, part)"),
    ("mode", "use approx_top_k(x, 1)"),
    ("printf", "use concat, or to_char for dates"),
    ("quantile", "use quantile_cont"),
    ("quantile_disc", "use quantile_cont"),
    ("stdev", "use stddev"),
    ("str_to_date", "use strptime(text, format)"),
    ("sum_if", "use sum(x) FILTER (WHERE condition)"),
    ("sumif", "use sum(x) FILTER (WHERE condition)"),
    ("sysdate", "use now()"),
    ("time_bucket", "use date_bin(interval, t)"),
    ("try_strptime", "use strptime(text, format)"),
    ("unix_timestamp", "use epoch(t)"),
];

fn unknown_function(message: &str) -> Option<Error> {
    let (name, rest) = message.strip_prefix("Invalid function '")?.split_once('\'')?;
    let error = Error::new(ErrorKind::NotFound, format!("there is no function {name}"));
    if let Some((_, advice)) = MEANINGS.iter().find(|(known, _)| *known == name) {
        return Some(error.advise(*advice));
    }
    let alike = rest.split_once("Did you mean '").and_then(|(_, rest)| rest.split_once('\''));
    Some(match alike {
        Some((alike, _)) if names::are_close(name, alike) => error.advise(format!("did you mean {alike}?")),
        _ => error.advise("docs/sql.md lists the functions, as does information_schema.routines"),
    })
}

/// The engine's names of types, their SQL names, and whether type parameters in brackets after the name are dropped.
const TYPES: &[(&str, &str, bool)] = &[
    ("Utf8View", "VARCHAR", false),
    ("LargeUtf8", "VARCHAR", false),
    ("Utf8", "VARCHAR", false),
    ("String", "VARCHAR", false),
    ("Int8", "TINYINT", false),
    ("Int16", "SMALLINT", false),
    ("Int32", "INTEGER", false),
    ("Int64", "BIGINT", false),
    ("UInt8", "UTINYINT", false),
    ("UInt16", "USMALLINT", false),
    ("UInt32", "UINTEGER", false),
    ("UInt64", "UBIGINT", false),
    ("Float", "FLOAT", false),
    ("Float32", "FLOAT", false),
    ("Float64", "DOUBLE", false),
    ("Boolean", "BOOLEAN", false),
    ("Date32", "DATE", false),
    ("Date64", "DATE", false),
    ("Time32", "TIME", true),
    ("Time64", "TIME", true),
    ("Timestamp", "TIMESTAMP", true),
    ("Duration", "INTERVAL", true),
    ("Interval", "INTERVAL", true),
    ("BinaryView", "BLOB", false),
    ("LargeBinary", "BLOB", false),
    ("Binary", "BLOB", false),
    ("Decimal", "DECIMAL", false),
    ("Decimal128", "DECIMAL", false),
    ("Decimal256", "DECIMAL", false),
    ("List", "LIST", true),
    ("LargeList", "LIST", true),
    ("FixedSizeList", "LIST", true),
    ("Struct", "STRUCT", true),
    ("Map", "MAP", true),
    ("Null", "NULL", false),
];

/// Replaces the engine's names of types in `text` by their SQL names.
pub fn sql_types(text: &str) -> String {
    let mut made = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        if end == 0 {
            made.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let (word, behind) = rest.split_at(end);
        rest = behind;
        if let Some((constant, behind)) = constant_of(word, rest) {
            made.push_str(&constant);
            rest = behind;
            continue;
        }
        match TYPES.iter().find(|(known, _, _)| *known == word) {
            None => made.push_str(word),
            Some((_, name, drops)) => {
                made.push_str(name);
                if *drops {
                    rest = behind_brackets(rest);
                }
            }
        }
    }
    made
}

/// If `rest` is what follows the type name `word` in a constant that the engine prints with its type, such as
/// `Int64(1)` or `Utf8("a")`, returns the constant as in SQL, and the text after it; otherwise `None`.
fn constant_of<'a>(word: &str, rest: &'a str) -> Option<(String, &'a str)> {
    let is_plain = |known: &&(&str, &str, bool)| known.0 == word && !known.2;
    let has_constants = TYPES.iter().find(is_plain).is_some_and(|(_, name, _)| *name != "DECIMAL");
    let inner = rest.strip_prefix('(').filter(|_| has_constants)?;
    match inner.strip_prefix('"') {
        Some(text) => {
            let (text, behind) = text.split_once("\")")?;
            Some((format!("'{text}'"), behind))
        }
        None => {
            let (value, behind) = inner.split_once(')')?;
            let is_value = !value.is_empty()
                && value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'+'));
            is_value.then(|| (value.to_string(), behind))
        }
    }
}

/// Returns the text after the bracketed part at the beginning of `text`.
fn behind_brackets(text: &str) -> &str {
    if !text.starts_with('(') {
        return text;
    }
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 1 => return &text[at + 1..],
            ')' => depth -= 1,
            _ => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(message: &str) -> String {
        told(ErrorKind::Invalid, message).to_string()
    }

    #[test]
    fn messages_have_the_types_of_sql_and_no_insides() {
        let avg = "Internal error: Function 'avg' failed to match any signature.\nThis issue was likely caused by a bug \
            in DataFusion's code. No function matches the given name and argument types 'avg(Utf8View)'. You might \
            need to add explicit type casts.\n\tCandidate functions:\n\tavg(Decimal)\n\tavg(Float64)";
        assert_eq!(say(avg), "avg does not take VARCHAR\n  what there is: avg(DECIMAL), avg(DOUBLE)");
        let pivot = "Unsupported ast node Pivot { table: Derived { lateral: false } } in create_relation";
        assert_eq!(say(pivot), "Unsupported Pivot");
        let join =
            "Unsupported JOIN operator Semi(Using([ObjectName([Identifier(Ident { value: \"a\" })])]))";
        assert_eq!(say(join), "Unsupported JOIN operator Semi");
        let sum = "Cannot coerce arithmetic expression Utf8View + Interval(MonthDayNano) to valid types";
        assert_eq!(say(sum), "+ does not take VARCHAR and INTERVAL\n  cast one of them");
        let time = "Cannot cast to Timestamp(Nanosecond, Some(\"UTC\")) of Decimal128(10, 2)";
        assert_eq!(say(time), "Cannot cast to TIMESTAMP of DECIMAL(10, 2)");
        assert_eq!(say("a { b } and Öl {"), "a { b } and Öl {");
        let nested =
            "Window function calls cannot be nested: 'rank() ORDER BY [t.i ASC]' is nested inside 'rank()'";
        assert_eq!(
            say(nested),
            "a window function cannot be a part of another one\n  compute it in a query in FROM, and use its column"
        );
        let memory = "Failed to allocate 1 B for AggregateStream[0] with 2 B";
        assert_eq!(without_operators(memory), "Failed to allocate 1 B for groups with 2 B");
        assert_eq!(without_operators("no memory for CrossJoinExec"), "no memory for a join");
        assert_eq!(
            without_operators("no memory for RecursiveQueryHashTable:"),
            "no memory for the statement"
        );
        assert_eq!(
            say("Unsupported LIMIT expression: Some(ScalarSubquery(<subquery>))"),
            "LIMIT takes a number, no subquery\n  give the number, or use row_number()"
        );
        assert_eq!(without_operators("no [1] or a[i] here"), "no [1] or a[i] here");
        assert_eq!(say("Int64(1"), "BIGINT(1");
        assert_eq!(
            say("count(Int64(1)) and Utf8(\"a(b)\") beside Float64(-1.5)"),
            "count(1) and 'a(b)' beside -1.5"
        );
        assert_eq!(say("Date32(\"2024-01-01\") and Boolean(NULL)"), "'2024-01-01' and NULL");
    }
}
