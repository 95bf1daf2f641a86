//! The union of programs over one table: a single program that reads the table once, evaluates the common conditions
//! once, and groups once (after "pipeline groups" of Geyer et al., CIDR 2023). The other conditions of each program
//! become a column that marks the program's rows, or the `FILTER` of its aggregates.
//!
//! Example: programs with the filters `a AND b` and `a AND c` become one with the filter `a AND (b OR c)`, whose result
//! has columns for `b` and `c`. Without these columns, each program would also return the rows of the other.

use crate::split::{conjunction, conjuncts};
use arrow_schema::DataType;
use farpool_model::{Aggregate, AggregateFunction, Expr, NamedExpr, Output, Program};

/// A union of programs, and which part of its result belongs to each program.
#[derive(Clone, Debug, PartialEq)]
pub struct Union {
    /// The program that does the work of all programs.
    pub program: Program,
    /// The part of the result that belongs to each program, in the order of the programs.
    pub parts: Vec<Part>,
}

/// The part of a union's result that belongs to one program.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The positions, in the union's result, of the program's columns.
    pub columns: Vec<usize>,
    /// The position of the column that says which rows belong to the program: those where it is true (if it is boolean)
    /// or not 0 (if it is a count). `None` if all rows belong to it.
    pub rows: Option<usize>,
}

/// Returns whether two programs can be combined into one: they compute results of the same kind (rows, or groups by the
/// same group keys) from the same table version. Programs with lookups, a condition on groups, a sort order or a limit are
/// not compatible.
pub fn are_alike(a: &Program, b: &Program) -> bool {
    let is_whole = |program: &Program| {
        program.lookups.is_empty()
            && program.having.is_none()
            && program.order.is_empty()
            && program.limit.is_none()
    };
    let groups = match (&a.output, &b.output) {
        (Output::Rows(_), Output::Rows(_)) => true,
        (Output::Aggregate { keys: a, .. }, Output::Aggregate { keys: b, .. }) => {
            a.iter().map(|key| &key.expr).eq(b.iter().map(|key| &key.expr))
        }
        (Output::Rows(_) | Output::Aggregate { .. }, _) => false,
    };
    groups && is_whole(a) && is_whole(b) && (&a.table, a.version) == (&b.table, b.version)
}

/// Returns the conditions that a row must satisfy to pass the program's filter.
pub(crate) fn conditions(program: &Program) -> Vec<Expr> {
    program.filter.clone().map(conjuncts).unwrap_or_default()
}

/// Returns the union of compatible programs; `None` for fewer than two, or if they are not compatible ([`are_alike`]).
pub fn union(programs: &[&Program]) -> Option<Union> {
    let (first, others) = programs.split_first()?;
    if others.is_empty() || !others.iter().all(|other| are_alike(first, other)) {
        return None;
    }
    let filters = Filters::of(programs);
    let mut parts = Vec::new();
    let output = match &first.output {
        Output::Rows(_) => {
            let mut rows: Vec<NamedExpr> = Vec::new();
            let mut column = |expr: &Expr| {
                place(&mut rows, |other| other.expr == *expr, |name| NamedExpr { name, expr: expr.clone() })
            };
            for (program, own) in programs.iter().zip(&filters.own) {
                let Output::Rows(columns) = &program.output else { return None };
                let columns = columns.iter().map(|named| column(&named.expr)).collect();
                parts.push(Part { columns, rows: own.as_ref().map(&mut column) });
            }
            Output::Rows(rows)
        }
        Output::Aggregate { keys, .. } => {
            let mut aggregates: Vec<Aggregate> = Vec::new();
            let mut column = |aggregate: &Aggregate| {
                let as_named = |name| Aggregate { name, ..aggregate.clone() };
                let is_same = |other: &Aggregate| *other == as_named(other.name.clone());
                keys.len() + place(&mut aggregates, is_same, as_named)
            };
            for (program, own) in programs.iter().zip(&filters.own) {
                let Output::Aggregate { aggregates, .. } = &program.output else { return None };
                let of_own = |aggregate: &Aggregate| Aggregate {
                    filter: conjunction(own.iter().chain(&aggregate.filter).cloned()),
                    ..aggregate.clone()
                };
                let columns = (0..keys.len()).chain(aggregates.iter().map(|a| column(&of_own(a)))).collect();
                // A group may exist only because of another program's rows, so that the program's own rows are counted.
                // Without group keys there is always exactly one group.
                let counted = own.as_ref().filter(|_| !keys.is_empty()).map(|own| column(&count(own)));
                parts.push(Part { columns, rows: counted });
            }
            let named =
                |(at, key): (usize, &NamedExpr)| NamedExpr { name: format!("k{at}"), expr: key.expr.clone() };
            Output::Aggregate { keys: keys.iter().enumerate().map(named).collect(), aggregates }
        }
    };
    Some(Union { program: Program { filter: filters.whole, output, ..Program::clone(first) }, parts })
}

/// The filters of several programs, split into what is common and what is not.
struct Filters {
    /// A condition that is true for the rows of any of the programs.
    whole: Option<Expr>,
    /// Additional condition of each program; `None` if it has no other than the common ones.
    own: Vec<Option<Expr>>,
}

impl Filters {
    fn of(programs: &[&Program]) -> Self {
        let all: Vec<Vec<Expr>> = programs.iter().map(|program| conditions(program)).collect();
        let mut common = all.first().cloned().unwrap_or_default();
        common.retain(|condition| all.iter().all(|other| other.contains(condition)));
        let own = |conditions: &Vec<Expr>| {
            Expr::all(conditions.iter().filter(|condition| !common.contains(condition)).cloned().collect())
        };
        let own: Vec<Option<Expr>> = all.iter().map(own).collect();
        let mut either: Vec<Expr> = Vec::new();
        for own in own.iter().flatten() {
            if !either.contains(own) {
                either.push(own.clone());
            }
        }
        let is_open = own.iter().any(Option::is_none);
        let either = match either.len() {
            0 | 1 => either.pop(),
            _ => Some(Expr::Or(either)),
        };
        let whole = Expr::all(common.into_iter().chain(either.filter(|_| !is_open)).collect());
        Filters { whole, own }
    }
}

/// Returns an aggregate that counts the rows which satisfy a condition.
fn count(condition: &Expr) -> Aggregate {
    Aggregate {
        name: String::new(),
        function: AggregateFunction::Count,
        arguments: Vec::new(),
        filter: Some(condition.clone()),
        data_type: DataType::Int64,
    }
}

/// Returns the position of the element for which `is_same` is true; if there is none, adds the one that `make` creates.
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
        Program {
            table: TableName::new("t").unwrap(),
            version: None,
            lookups: Vec::new(),
            filter: Some(above(0, 3)),
            output,
            having: None,
            order: Vec::new(),
            limit: None,
        }
    }

    fn columns(union: &Union) -> Vec<Vec<usize>> {
        assert!(union.parts.iter().all(|part| part.rows.is_none()), "{union:?}");
        union.parts.iter().map(|part| part.columns.clone()).collect()
    }

    fn above(at: usize, bound: i128) -> Expr {
        let bound = Expr::Literal(Literal::new(Value::Int(bound), DataType::Int64).unwrap());
        Expr::compare(CompareOp::Gt, Expr::Column(at), bound)
    }

    fn with(program: &Program, conditions: &[&Expr]) -> Program {
        Program { filter: Expr::all(conditions.iter().copied().cloned().collect()), ..program.clone() }
    }

    fn grouped(key: usize, aggregates: Vec<Aggregate>) -> Program {
        program(Output::Aggregate { keys: vec![column(key)], aggregates })
    }

    #[test]
    fn columns_that_several_want_are_there_once() {
        let rows = |columns: &[usize]| program(Output::Rows(columns.iter().map(|at| column(*at)).collect()));
        let (a, b, c) = (rows(&[1, 2]), rows(&[3, 2, 2]), rows(&[]));
        let union = union(&[&a, &b, &c]).unwrap();
        assert_eq!(columns(&union), [vec![0, 1], vec![2, 1, 1], vec![]]);
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
        assert_eq!(columns(&union), [vec![0, 1, 2], vec![0, 2, 3]]);
        let Output::Aggregate { keys, aggregates } = &union.program.output else { panic!("rows") };
        assert_eq!((keys.len(), aggregates.len()), (1, 3));
        let mut names: Vec<&str> = aggregates.iter().map(|aggregate| aggregate.name.as_str()).collect();
        names.dedup();
        assert_eq!(names.len(), 3);
    }

    #[test]
    fn programs_of_other_kinds_stay_apart() {
        let a = grouped(4, vec![aggregate(AggregateFunction::Sum, 1, "s")]);
        let others = [
            grouped(5, vec![aggregate(AggregateFunction::Sum, 1, "s")]),
            Program { limit: Some(3), ..a.clone() },
            Program { having: Some(above(0, 3)), ..a.clone() },
            Program { table: TableName::new("u").unwrap(), ..a.clone() },
            program(Output::Rows(vec![column(1)])),
        ];
        for other in &others {
            assert_eq!(union(&[&a, other]), None, "{other:?}");
        }
        assert_eq!(union(&[&a]), None);
    }

    #[test]
    fn common_conditions_are_in_front_and_each_ones_own_are_columns() {
        let rows = |columns: &[usize]| program(Output::Rows(columns.iter().map(|at| column(*at)).collect()));
        let (x, y, z) = (above(0, 3), above(1, 4), above(2, 5));
        let (a, b) = (with(&rows(&[1]), &[&x, &y]), with(&rows(&[2]), &[&z, &x]));
        let of_two = union(&[&a, &b]).unwrap();
        assert_eq!(
            of_two.program.filter,
            Some(Expr::And(vec![x.clone(), Expr::Or(vec![y.clone(), z.clone()])]))
        );
        let Output::Rows(columns) = &of_two.program.output else { panic!("groups") };
        let shown: Vec<&Expr> = columns.iter().map(|column| &column.expr).collect();
        assert_eq!(shown, [&Expr::Column(1), &y, &Expr::Column(2), &z]);
        let part = |columns: &[usize], rows| Part { columns: columns.to_vec(), rows };
        assert_eq!(of_two.parts, [part(&[0], Some(1)), part(&[2], Some(3))]);
        // One of the programs has no condition beyond the common ones, so that all rows belong to it.
        let c = with(&rows(&[2]), &[&x]);
        let of_three = union(&[&a, &b, &c]).unwrap();
        assert_eq!(of_three.program.filter, Some(x));
        assert_eq!(of_three.parts[2], part(&[2], None));
    }

    #[test]
    fn groups_are_those_of_a_program_where_it_has_rows() {
        let sum = || vec![aggregate(AggregateFunction::Sum, 1, "s")];
        let (x, y) = (above(0, 3), above(1, 4));
        let (a, b) = (with(&grouped(4, sum()), &[&x]), with(&grouped(4, sum()), &[&y]));
        let of_two = union(&[&a, &b]).unwrap();
        let Output::Aggregate { aggregates, .. } = &of_two.program.output else { panic!("rows") };
        let filters: Vec<Option<&Expr>> = aggregates.iter().map(|a| a.filter.as_ref()).collect();
        assert_eq!(filters, [Some(&x), Some(&x), Some(&y), Some(&y)]);
        assert_eq!(of_two.parts[1], Part { columns: vec![0, 3], rows: Some(4) });
        let global = |filter: &Expr| {
            with(&program(Output::Aggregate { keys: Vec::new(), aggregates: sum() }), &[filter])
        };
        let of_two = union(&[&global(&x), &global(&y)]).unwrap();
        assert_eq!(of_two.parts[1], Part { columns: vec![1], rows: None });
    }
}
