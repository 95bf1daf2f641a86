//! Decodes the group keys and measures (aggregates) of a Substrait aggregation. A measure that is not supported becomes
//! opaque: the node then refuses only the aggregation, and runs the rest of the plan.

use super::expressions::Reader;
use super::{functions, proto, read, types};
use arrow_schema::DataType;
use bytes::Bytes;
use farpool_model::compose::{Budget, Slot, check_width, not_done};
use farpool_model::{
    Aggregate, AggregateFunction, Error, Expr, Result, SketchParameters, StateFunction, limits,
};

/// Returns the group keys of an aggregation, which may have only one grouping set.
pub(super) fn grouping_expressions(relation: &proto::AggregateRel) -> Result<Vec<Bytes>> {
    let grouping: proto::Grouping = match relation.groupings.as_slice() {
        [] => return Ok(Vec::new()),
        [grouping] => read(grouping)?,
        _ => return Err(not_done("an aggregation with several grouping sets")),
    };
    if !grouping.grouping_expressions.is_empty() {
        return Ok(grouping.grouping_expressions);
    }
    check_width(grouping.expression_references.len())?;
    let expression = |reference: &u32| {
        let found = relation.grouping_expressions.get(*reference as usize).cloned();
        found.ok_or_else(|| Error::invalid(format!("the plan has no grouping expression {reference}")))
    };
    grouping.expression_references.iter().map(expression).collect()
}

/// Decodes a measure to an aggregate. One that is not supported gets an opaque argument, which has the reason.
pub(super) fn measure(reader: &Reader, measure: &proto::Measure, columns: &[Slot]) -> Result<Aggregate> {
    let Some(call) = &measure.measure else {
        return Err(Error::invalid("an aggregate without a function"));
    };
    reader.charge(limits::EXPR_NODE_BYTES)?;
    let filter = measure.filter.as_ref().map(|filter| reader.expression(filter, columns)).transpose()?;
    let arguments = reader.arguments(&call.arguments, &call.args, columns, 0)?;
    // The inputs of an unsupported aggregate are kept, so that the client knows which columns it needs.
    let opaque = |reason| {
        let (Ok(values) | Err(values)) = &arguments;
        let inputs = values.iter().chain(&filter).cloned().collect();
        Ok(Aggregate {
            name: "aggregate".into(),
            function: AggregateFunction::Count,
            arguments: vec![Expr::opaque(reason, inputs)],
            filter: None,
            data_type: DataType::Int64,
        })
    };
    let name = match reader.extensions().function(call.function_reference)? {
        Ok(name) => name.to_string(),
        Err(reason) => return opaque(reason),
    };
    let Some(function) = AggregateFunction::named(&name) else {
        return opaque(format!("aggregate function {name}"));
    };
    let (function, options) = with_options(function, call)?;
    if let Some(reason) = refused_aggregate(function, call, &options) {
        return opaque(format!("{name} {reason}"));
    }
    let arguments = match &arguments {
        Ok(arguments) if function.takes(arguments.len()) => arguments.clone(),
        _ => return opaque(format!("{name} of arguments of these kinds")),
    };
    let types = arguments.iter().map(|argument| argument.data_type(reader.schema()));
    let declared = call.output_type.as_ref().and_then(|t| types::read_type(t, reader.extensions().types()));
    let (accepted, usual) = match types.collect::<Result<Vec<DataType>>>() {
        // An invalid argument is reported by a later check.
        Err(_) => (true, Some(DataType::Int64)),
        Ok(types) => {
            let accepted = declared.as_ref().is_some_and(|declared| function.accepts(&types, declared));
            (accepted, function.usual_type(&types))
        }
    };
    let data_type = match (declared, usual) {
        (Some(declared), _) if accepted => declared,
        (None, Some(usual)) => usual,
        (Some(declared), _) => {
            return opaque(format!("{name} with a result of type {declared}"));
        }
        (None, None) => return opaque(format!("{name} of a value of this type")),
    };
    Ok(Aggregate { name, function, arguments, filter, data_type })
}

/// Applies those options that are parameters of the function (such as the size of a sketch). Returns the function and
/// the other options.
fn with_options(
    function: AggregateFunction,
    call: &proto::AggregateFunction,
) -> Result<(AggregateFunction, Vec<proto::FunctionOption>)> {
    let options = call.options.iter().map(read).collect::<Result<Vec<proto::FunctionOption>>>()?;
    let AggregateFunction::State(state) = function else { return Ok((function, options)) };
    let wanted = match state {
        StateFunction::Sketch(_) => functions::PARAMETERS,
        StateFunction::Moments(_) => functions::NULLS,
    };
    let (given, others): (Vec<_>, Vec<_>) =
        options.into_iter().partition(|option| option.name.eq_ignore_ascii_case(wanted));
    let text = match given.as_slice() {
        [] => return Ok((function, others)),
        [proto::FunctionOption { preference, .. }] if preference.len() == 1 => &preference[0],
        _ => return Err(Error::invalid(format!("an aggregate has one option {wanted:?} with one value"))),
    };
    let state = match state {
        StateFunction::Sketch(_) => {
            let parameters: SketchParameters = text.parse()?;
            parameters.check()?;
            StateFunction::Sketch(parameters)
        }
        StateFunction::Moments(_) => StateFunction::Moments(text.parse()?),
    };
    Ok((state.into(), others))
}

/// Returns the reason why this call of a known aggregate function is not supported; `None` if it is supported.
fn refused_aggregate(
    function: AggregateFunction,
    call: &proto::AggregateFunction,
    options: &[proto::FunctionOption],
) -> Option<String> {
    if call.invocation == proto::INVOCATION_DISTINCT && !function.ignores_duplicates() {
        return Some("of distinct values".into());
    }
    if !call.sorts.is_empty() {
        return Some("in an order of rows".into());
    }
    if !matches!(call.phase, 0 | proto::PHASE_INITIAL_TO_RESULT) {
        return Some("of intermediate results".into());
    }
    functions::refused_option(options).map(|option| format!("with {option}"))
}
