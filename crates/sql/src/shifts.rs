//! `lead`, `lag`, `first_value`, `last_value` and `nth_value` with IGNORE NULLS. DataFusion 55.2 has two evaluators:
//! the one for rows that arrive in sort order miscounts across gaps of NULLs (apache/datafusion#25471); the one for
//! whole partitions does not. In addition, a LIMIT is pushed below a `lag` with a negative offset, which then misses
//! the rows that follow. This module is obsolete once upstream fixes both.
//!
//! Invariant: if NULLs are ignored, a partition of the window is evaluated as a whole; the engine keeps it in memory.

use arrow_array::ArrayRef;
use arrow_schema::{DataType, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions_window::{lead_lag, nth_value};
use datafusion::logical_expr::function::{ExpressionArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::{
    Documentation, LimitEffect, PartitionEvaluator, ReversedUDWF, Signature, WindowUDF, WindowUDFImpl,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::prelude::SessionContext;
use std::ops::Range;
use std::sync::Arc;

/// Registers the functions in `context`, in place of DataFusion's.
pub fn register(context: &SessionContext) {
    for builtin in [
        lead_lag::lead_udwf(),
        lead_lag::lag_udwf(),
        nth_value::first_value_udwf(),
        nth_value::last_value_udwf(),
        nth_value::nth_value_udwf(),
    ] {
        context.register_udwf(WindowUDF::from(OverPartitions { builtin }));
    }
}

/// A window function of DataFusion that evaluates whole partitions if NULLs are ignored.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OverPartitions {
    builtin: Arc<WindowUDF>,
}

impl WindowUDFImpl for OverPartitions {
    fn name(&self) -> &str {
        self.builtin.name()
    }

    fn aliases(&self) -> &[String] {
        self.builtin.aliases()
    }

    fn signature(&self) -> &Signature {
        self.builtin.signature()
    }

    fn expressions(&self, arguments: ExpressionArgs<'_>) -> Vec<Arc<dyn PhysicalExpr>> {
        self.builtin.expressions(arguments)
    }

    fn partition_evaluator(
        &self,
        arguments: PartitionEvaluatorArgs<'_>,
    ) -> Result<Box<dyn PartitionEvaluator>> {
        let ignores_nulls = arguments.ignore_nulls();
        let evaluator = self.builtin.partition_evaluator_factory(arguments)?;
        Ok(if ignores_nulls { Box::new(Whole(evaluator)) } else { evaluator })
    }

    fn field(&self, arguments: WindowUDFFieldArgs<'_>) -> Result<FieldRef> {
        self.builtin.field(arguments)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.builtin.coerce_types(types)
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        match self.builtin.reverse_expr() {
            ReversedUDWF::Reversed(builtin) => {
                ReversedUDWF::Reversed(Arc::new(WindowUDF::from(OverPartitions { builtin })))
            }
            ReversedUDWF::Identical => ReversedUDWF::Identical,
            ReversedUDWF::NotSupported => ReversedUDWF::NotSupported,
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.builtin.documentation()
    }

    fn limit_effect(&self, arguments: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        match self.name() {
            "lead" | "lag" => LimitEffect::Unknown,
            _ => self.builtin.inner().limit_effect(arguments),
        }
    }
}

/// DataFusion's evaluator, which is made to evaluate whole partitions.
#[derive(Debug)]
struct Whole(Box<dyn PartitionEvaluator>);

impl PartitionEvaluator for Whole {
    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        self.0.evaluate_all(values, rows)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        self.0.evaluate(values, range)
    }

    fn uses_window_frame(&self) -> bool {
        self.0.uses_window_frame()
    }
}
