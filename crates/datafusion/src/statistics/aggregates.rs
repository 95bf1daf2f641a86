//! The statistics aggregates as DataFusion's user-defined aggregate functions (UDAFs).

use super::accumulator::{Alone, AsFloats, Groups};
use super::statistic::{FUNCTIONS, Kind, Statistic, is_sketched};
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::AggregateFunction as Call;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Expr, ExprSchemable, GroupsAccumulator, Signature,
    Volatility,
};
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_plan::PhysicalExpr;
use farpool_statistics::StateForm;
use std::sync::Arc;

/// One of the statistics aggregates, as a UDAF.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Aggregate {
    name: &'static str,
    kind: Kind,
    /// DataFusion's own function of this name, if there is one; it is used where it supports more, such as moving
    /// window frames.
    builtin: Option<Arc<AggregateUDF>>,
    aliases: Vec<String>,
    signature: Signature,
}

impl Aggregate {
    pub(super) fn new(name: &'static str, kind: Kind, builtin: Option<Arc<AggregateUDF>>) -> Self {
        let aliases = builtin.as_ref().map(|builtin| builtin.aliases().to_vec()).unwrap_or_default();
        let mut signature = Signature::user_defined(Volatility::Immutable);
        signature.parameter_names = builtin.as_ref().and_then(|b| b.signature().parameter_names.clone());
        Aggregate { name, kind, builtin, aliases, signature }
    }

    /// Returns DataFusion's own function to be used instead of this one; for distinct counts of types that have no
    /// sketches.
    fn instead(&self, types: &[&DataType]) -> Option<&AggregateUDF> {
        let wanted = self.kind == Kind::Distinct && types.iter().any(|of| !is_sketched(of));
        self.builtin.as_deref().filter(|_| wanted)
    }

    fn instead_of(&self, fields: &[FieldRef]) -> Option<&AggregateUDF> {
        self.instead(&fields.iter().map(|field| field.data_type()).collect::<Vec<_>>())
    }

    fn groups(&self, arguments: &AccumulatorArgs<'_>) -> Result<Groups> {
        if arguments.is_distinct {
            let message = format!("{}(DISTINCT …) is not supported", self.name);
            return Err(DataFusionError::NotImplemented(message));
        }
        if let Some(form) = self.kind.merges() {
            return Ok(Groups::merging(form));
        }
        let types: Vec<DataType> = arguments.expr_fields.iter().map(|f| f.data_type().clone()).collect();
        let constants: Vec<Option<ScalarValue>> = arguments.exprs.iter().map(constant).collect();
        let statistic = self.kind.statistic(&types, &constants).map_err(farpool_sql::error::wrap)?;
        Groups::of(&statistic, &types).map_err(farpool_sql::error::wrap)
    }
}

fn constant(expr: &Arc<dyn PhysicalExpr>) -> Option<ScalarValue> {
    expr.downcast_ref::<Literal>().map(|literal| literal.value().clone())
}

/// Returns the aggregate function that merges states of this form.
pub(crate) fn merger(form: StateForm) -> Arc<AggregateUDF> {
    let of_form = |(_, kind): &&(&str, Kind)| kind.merges() == Some(form);
    let (name, kind) = FUNCTIONS.iter().find(of_form).expect("states of each form are merged");
    Arc::new(AggregateUDF::from(Aggregate::new(name, *kind, None)))
}

/// If `call` is of one of these functions, returns the state that it computes from columns of `input`, and the reading
/// of its result from the state; otherwise `None`.
///
/// # Errors
/// The reason why a pool cannot compute the state.
pub(crate) fn statistic_of(
    call: &Call,
    input: &datafusion::common::DFSchema,
) -> std::result::Result<Option<Statistic>, String> {
    let Some(function) = call.func.inner().downcast_ref::<Aggregate>() else { return Ok(None) };
    if function.kind.merges().is_some() {
        return Err(format!("{} merges here", function.name));
    }
    let types = call.params.args.iter().map(|argument| argument.get_type(input));
    let types = types.collect::<Result<Vec<DataType>>>().map_err(|error| error.strip_backtrace())?;
    let constants: Vec<Option<ScalarValue>> = call.params.args.iter().map(literal).collect();
    function.kind.statistic(&types, &constants).map(Some).map_err(|error| error.message)
}

fn literal(expr: &Expr) -> Option<ScalarValue> {
    match expr {
        Expr::Literal(value, _) => Some(value.clone()),
        _ => None,
    }
}

impl AggregateUDFImpl for Aggregate {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match self.instead(&types.iter().collect::<Vec<_>>()) {
            Some(_) => Ok(types.to_vec()),
            None => self.kind.coerced(types).map_err(farpool_sql::error::wrap),
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(self.kind.data_type(types))
    }

    fn is_nullable(&self) -> bool {
        !matches!(self.kind.data_type(&[]), DataType::UInt64)
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        match data_type {
            DataType::UInt64 => Ok(ScalarValue::UInt64(Some(0))),
            other => ScalarValue::try_from(other),
        }
    }

    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        if let Some(builtin) = self.instead_of(arguments.input_fields) {
            return builtin.state_fields(arguments);
        }
        let name = format!("{}[state]", arguments.name);
        Ok(vec![Arc::new(Field::new(name, DataType::BinaryView, true))])
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if let Some(builtin) = self.instead_of(arguments.expr_fields) {
            return builtin.accumulator(arguments);
        }
        Ok(Box::new(Alone::new(self.groups(&arguments)?)))
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs<'_>) -> bool {
        match self.instead_of(arguments.expr_fields) {
            Some(builtin) => builtin.groups_accumulator_supported(arguments),
            None => !arguments.is_distinct,
        }
    }

    fn create_groups_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        if let Some(builtin) = self.instead_of(arguments.expr_fields) {
            return builtin.create_groups_accumulator(arguments);
        }
        Ok(Box::new(self.groups(&arguments)?))
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match &self.builtin {
            Some(builtin) if !matches!(self.kind, Kind::Distinct) => {
                Ok(Box::new(AsFloats(builtin.create_sliding_accumulator(arguments)?)))
            }
            _ => self.accumulator(arguments),
        }
    }
}
