//! One program in place of several that read the same rows of a table: what the pool then does once is reading them,
//! filtering and grouping (pipeline groups, chapter 4: pipelines share what they have in common).

use farpool_model::{Aggregate, NamedExpr, Output, Program};

/// A program in place of several, and the columns of its result that are those of each.
#[derive(Clone, Debug, PartialEq)]
pub struct Union {
    /// The program that computes what all of them do.
    pub program: Program,
    /// For each of them, the positions of its columns in the result.
    pub columns: Vec<Vec<usize>>,
}

/// Whether both programs read the same rows in the same groups, so that one can do what both do. Those that return some of
/// their rows only are for themselves.
pub fn are_alike(a: &Program, b: &Program) -> bool {
    let is_whole = |program: &Program| program.limit.is_none() && program.order.is_empty();
    let groups = match (&a.output, &b.output) {
        (Output::Rows(_), Output::Rows(_)) => true,
        (Output::Aggregate { keys: a, .. }, Output::Aggregate { keys: b, .. }) => {
            a.iter().map(|key| &key.expr).eq(b.iter().map(|key| &key.expr))
        }
        (Output::Rows(_) | Output::Aggregate { .. }, _) => false,
    };
    groups
        && is_whole(a)
        && is_whole(b)
        && (&a.table, a.version, &a.filter) == (&b.table, b.version, &b.filter)
}

/// Returns one program in place of several that are alike; `None` for less than two.
pub fn union(programs: &[&Program]) -> Option<Union> {
    let (first, others) = programs.split_first()?;
    if others.is_empty() || !others.iter().all(|other| are_alike(first, other)) {
        return None;
    }
    let mut columns = Vec::new();
    let output = match &first.output {
        Output::Rows(_) => {
            let mut rows: Vec<NamedExpr> = Vec::new();
            for program in programs {
                let Output::Rows(own) = &program.output else { return None };
                let place = |column: &NamedExpr| {
                    place(
                        &mut rows,
                        |other| other.expr == column.expr,
                        |name| NamedExpr { name, expr: column.expr.clone() },
                    )
                };
                columns.push(own.iter().map(place).collect());
            }
            Output::Rows(rows)
        }
        Output::Aggregate { keys, .. } => {
            let mut aggregates: Vec<Aggregate> = Vec::new();
            for program in programs {
                let Output::Aggregate { aggregates: own, .. } = &program.output else { return None };
                let place = |aggregate: &Aggregate| {
                    let as_named = |name| Aggregate { name, ..aggregate.clone() };
                    let is_same = |other: &Aggregate| *other == as_named(other.name.clone());
                    keys.len() + place(&mut aggregates, is_same, as_named)
                };
                columns.push((0..keys.len()).chain(own.iter().map(place)).collect());
            }
            let named =
                |(at, key): (usize, &NamedExpr)| NamedExpr { name: format!("k{at}"), expr: key.expr.clone() };
            Output::Aggregate { keys: keys.iter().enumerate().map(named).collect(), aggregates }
        }
    };
    Some(Union { program: Program { output, ..Program::clone(first) }, columns })
}

/// The position of what is the same; it is added if there is none.
fn place<T>(all: &mut Vec<T>, is_same: impl Fn(&T) -> bool, make: impl FnOnce(String) -> T) -> usize {
    all.iter().position(is_same).unwrap_or_else(|| {
        all.push(make(format!("c{}", all.len())));
        all.len() - 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_schema::DataType;
    use farpool_model::{AggregateFunction, CompareOp, Expr, Literal, TableName, Value};

    fn column(at: usize) -> NamedExpr {
        NamedExpr { name: format!("x{at}"), expr: Expr::Column(at) }
    }

    fn aggregate(function: AggregateFunction, at: usize, name: &str) -> Aggregate {
        let arguments = vec![Expr::Column(at)];
        Aggregate { name: name.to_string(), function, arguments, filter: None, data_type: DataType::Int64 }
    }

    fn program(output: Output) -> Program {
        let three = Expr::Literal(Literal::new(Value::Int(3), DataType::Int64).unwrap());
        Program {
            table: TableName::new("t").unwrap(),
            version: None,
            filter: Some(Expr::Compare(CompareOp::Gt, Box::new(Expr::Column(0)), Box::new(three))),
            output,
            order: Vec::new(),
            limit: None,
        }
    }

    fn grouped(key: usize, aggregates: Vec<Aggregate>) -> Program {
        program(Output::Aggregate { keys: vec![column(key)], aggregates })
    }

    #[test]
    fn columns_that_several_want_are_there_once() {
        let rows = |columns: &[usize]| program(Output::Rows(columns.iter().map(|at| column(*at)).collect()));
        let (a, b, c) = (rows(&[1, 2]), rows(&[3, 2, 2]), rows(&[]));
        let union = union(&[&a, &b, &c]).unwrap();
        assert_eq!(union.columns, [vec![0, 1], vec![2, 1, 1], vec![]]);
        assert_eq!(union.program.columns(), rows(&[1, 2, 3]).columns());
        assert_eq!(union.program.filter, a.filter);
    }

    #[test]
    fn aggregates_of_the_same_groups_are_computed_together() {
        let a = grouped(
            4,
            vec![aggregate(AggregateFunction::Sum, 1, "s"), aggregate(AggregateFunction::Min, 1, "m")],
        );
        let b = grouped(
            4,
            vec![aggregate(AggregateFunction::Min, 1, "n"), aggregate(AggregateFunction::Min, 2, "s")],
        );
        let union = union(&[&a, &b]).unwrap();
        assert_eq!(union.columns, [vec![0, 1, 2], vec![0, 2, 3]]);
        let Output::Aggregate { keys, aggregates } = &union.program.output else { panic!("rows") };
        assert_eq!((keys.len(), aggregates.len()), (1, 3));
        let mut names: Vec<&str> = aggregates.iter().map(|aggregate| aggregate.name.as_str()).collect();
        names.dedup();
        assert_eq!(names.len(), 3);
    }

    #[test]
    fn programs_that_read_other_rows_stay_apart() {
        let a = grouped(4, vec![aggregate(AggregateFunction::Sum, 1, "s")]);
        let others = [
            grouped(5, vec![aggregate(AggregateFunction::Sum, 1, "s")]),
            Program { filter: None, ..a.clone() },
            Program { limit: Some(3), ..a.clone() },
            Program { table: TableName::new("u").unwrap(), ..a.clone() },
            program(Output::Rows(vec![column(1)])),
        ];
        for other in &others {
            assert_eq!(union(&[&a, other]), None, "{other:?}");
        }
        assert_eq!(union(&[&a]), None);
    }
}
