//! Calls of file readers in FROM: `FROM read_csv('x.csv', nullstr = 'NA')`, `read_json` and `read_parquet`. A call
//! becomes a table whose name is the text of the call, so that one statement can read the same files with different
//! options.

use super::{Grammar, refusal};
use crate::error;
use datafusion::common::Result;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, ObjectNamePart, TableAlias,
    TableFactor, UnaryOperator, Value,
};
use datafusion::sql::sqlparser::parser::Parser;
use farpool_model::{Error, FileFormat, FileSpec, OptionValue, ReadOptions};

/// If the table is a call of a file reader, converts it to a table whose name is the text of the call.
pub(super) fn apply(table: &mut TableFactor) -> Result<()> {
    let Some((format, function)) = function(table) else { return Ok(()) };
    spec(table, format)?;
    let TableFactor::Table { name, args, alias, .. } = table else { return Ok(()) };
    let arguments = args.take().map(|args| args.args).unwrap_or_default();
    let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    let call = format!("{function}({})", arguments.join(", "));
    *name = ObjectName::from(vec![Ident::with_quote('"', call)]);
    alias.get_or_insert_with(|| TableAlias {
        explicit: false,
        name: Ident::new(function),
        columns: Vec::new(),
        at: None,
    });
    Ok(())
}

/// Returns whether a table name is the text of a file reader's call.
pub fn is_call(name: &str) -> bool {
    name.ends_with(')') && name.split_once('(').is_some_and(|(f, _)| FileFormat::of_function(f).is_some())
}

/// Returns the files that a table name refers to: those of a reader call, or those at a path.
pub fn files(name: &str) -> Result<FileSpec> {
    if !is_call(name) {
        return Ok(FileSpec::plain(name));
    }
    let table = Parser::new(&Grammar).try_with_sql(name)?.parse_table_factor()?;
    match function(&table) {
        Some((format, _)) => spec(&table, format),
        None => Ok(FileSpec::plain(name)),
    }
}

/// Returns the file format and the function's name, in lower case, if the table is a call of a file reader; otherwise
/// `None`.
fn function(table: &TableFactor) -> Option<(FileFormat, String)> {
    let TableFactor::Table { name, args: Some(_), .. } = table else { return None };
    let [ObjectNamePart::Identifier(name)] = name.0.as_slice() else { return None };
    let name = name.value.to_ascii_lowercase();
    Some((FileFormat::of_function(&name)?, name))
}

fn spec(table: &TableFactor, format: FileFormat) -> Result<FileSpec> {
    let TableFactor::Table { args: Some(args), .. } = table else { return Ok(FileSpec::default()) };
    let mut spec = FileSpec { paths: Vec::new(), options: ReadOptions::for_format(format) };
    for (i, argument) in args.args.iter().enumerate() {
        match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::BinaryOp {
                left,
                op: BinaryOperator::Eq,
                right,
            })) => {
                let Expr::Identifier(name) = &**left else { return Err(no_argument(argument)) };
                option(&mut spec.options, &name.value, right)?;
            }
            FunctionArg::Unnamed(FunctionArgExpr::Expr(path)) if i == 0 => spec.paths = paths(path)?,
            FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } => {
                option(&mut spec.options, &name.value, value)?;
            }
            _ => return Err(no_argument(argument)),
        }
    }
    match spec.paths.is_empty() {
        true => Err(refusal(
            &format!("{} needs a file", format.function()),
            &format!("name one, a pattern, a folder or a list: {}('trips-*.csv')", format.function()),
        )),
        false => Ok(spec),
    }
}

fn no_argument(argument: &FunctionArg) -> datafusion::common::DataFusionError {
    let what = format!("{} is no argument of a reader of files", farpool_model::brief(argument));
    refusal(&what, "the first is a path or a list of paths, the others are options: nullstr = ['NA', '']")
}

fn paths(expr: &Expr) -> Result<Vec<String>> {
    let path = |value| match value {
        OptionValue::Text(path) => Ok(path),
        _ => Err(refusal("a path is a text", "write it in single quotes")),
    };
    match value(expr)? {
        OptionValue::List(values) => values.into_iter().map(path).collect(),
        one => Ok(vec![path(one)?]),
    }
}

/// Sets an option of a file reader to the value of a constant expression.
pub(super) fn option(options: &mut ReadOptions, name: &str, expr: &Expr) -> Result<()> {
    options.set(name, &value(expr)?).map_err(error::wrap)
}

/// Returns the value of the constant `expr`.
pub(super) fn value(expr: &Expr) -> Result<OptionValue> {
    Ok(match expr {
        Expr::Value(constant) => match &constant.value {
            Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => {
                OptionValue::Text(text.clone())
            }
            Value::EscapedStringLiteral(text) => OptionValue::Text(text.clone()),
            Value::Boolean(flag) => OptionValue::Flag(*flag),
            Value::Number(digits, _) => OptionValue::Number(number(digits)?),
            _ => return Err(no_constant(expr)),
        },
        Expr::Identifier(name) => OptionValue::Text(name.value.clone()),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match value(expr)? {
            OptionValue::Number(number) => OptionValue::Number(-number),
            _ => return Err(no_constant(expr)),
        },
        Expr::Array(array) => OptionValue::List(array.elem.iter().map(value).collect::<Result<_>>()?),
        Expr::Dictionary(fields) => {
            let fields = fields.iter().map(|field| Ok((field.key.value.clone(), value(&field.value)?)));
            OptionValue::Map(fields.collect::<Result<_>>()?)
        }
        Expr::Nested(inner) => value(inner)?,
        _ => return Err(no_constant(expr)),
    })
}

fn number(digits: &str) -> Result<i64> {
    let digits = digits.replace('_', "");
    digits.parse().map_err(|_| error::wrap(Error::invalid(format!("{digits} is no whole number"))))
}

fn no_constant(expr: &Expr) -> datafusion::common::DataFusionError {
    let what = format!("{} is no value of an option", farpool_model::brief(expr));
    refusal(&what, "a text, a number, true, false, a list ['a', 'b'] or {'name': 'type'} is")
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::sqlparser::ast::{SetExpr, Statement};

    /// Returns the name of the table that a call becomes, and its files and options.
    fn of(from: &str) -> Result<(String, FileSpec)> {
        let parsed = Parser::parse_sql(&Grammar, &format!("SELECT * FROM {from}"))?;
        let Statement::Query(query) = parsed.into_iter().next().unwrap() else { panic!("no query") };
        let SetExpr::Select(mut select) = *query.body else { panic!("no select") };
        apply(&mut select.from[0].relation)?;
        let TableFactor::Table { name, args: None, .. } = &select.from[0].relation else {
            panic!("no table")
        };
        let ObjectNamePart::Identifier(name) = &name.0[0] else { panic!("no name") };
        Ok((name.value.clone(), files(&name.value)?))
    }

    #[test]
    fn a_call_is_a_table_that_says_the_same() {
        let (name, spec) =
            of("read_csv('it''s.csv', nullstr = ['NA', ''], Header := false, sample_size = -1)").unwrap();
        assert!(is_call(&name), "{name}");
        assert_eq!(spec.paths, ["it's.csv"]);
        assert_eq!(spec.options.null_texts.as_deref(), Some(&["NA".to_string(), String::new()][..]));
        assert_eq!((spec.options.header, spec.options.sample_rows), (Some(false), Some(usize::MAX)));
        let (_, spec) =
            of("READ_CSV_AUTO(['a', 'b'], types = {'zip': 'text', 'q': 'decimal(5,1)'})").unwrap();
        assert_eq!((spec.paths.len(), spec.options.types.len()), (2, 2));
        let (_, spec) = of("read_parquet('x', hive_partitioning => true)").unwrap();
        assert_eq!(spec.options.hive_partitioning, Some(true));
    }

    #[test]
    fn other_names_and_functions_are_left() {
        let mut table = Parser::new(&Grammar).try_with_sql("generate_series(1, 3)").unwrap();
        let mut table = table.parse_table_factor().unwrap();
        apply(&mut table).unwrap();
        assert!(matches!(table, TableFactor::Table { args: Some(_), .. }));
        assert_eq!(files("a(1).csv").unwrap(), FileSpec::plain("a(1).csv"));
    }

    #[test]
    fn what_is_no_option_is_an_error() {
        let said = |from: &str| crate::error::unwrap(of(from).unwrap_err()).to_string();
        assert!(said("read_csv('x', nulstr = 'NA')").contains("the options are: all_varchar"));
        assert!(said("read_csv()").contains("needs a file"));
        assert!(said("read_csv(delim = ';')").contains("needs a file"));
        assert!(said("read_csv('x', 'y')").contains("no argument"));
        assert!(said("read_csv('x', header = 1 + 1)").contains("no value of an option"));
        assert!(said("read_csv(12)").contains("single quotes"));
    }
}
