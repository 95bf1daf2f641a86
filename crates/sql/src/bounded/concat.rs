//! The operator `||` and long constants as functions of this crate, which reserve memory for results, so that the size
//! of their results is limited like that of other function calls. Otherwise an expression that concatenates a column
//! with itself in nested subqueries doubles its result at each level.

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Field, FieldRef, Schema};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::binary::BinaryTypeCoercer;
use datafusion::logical_expr::{
    ColumnarValue, Expr, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column};
use std::sync::Arc;

/// The function for `||`. It is not registered, so that SQL cannot call it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Concatenation(Signature);

/// Returns the function for `||`.
pub(super) fn concatenation() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Concatenation(Signature::any(2, Volatility::Immutable))))
}

/// Returns its argument: a long constant in a projection, which the engine copies for each row. The function is
/// volatile, so that the optimizer does not fold the call back into a constant.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Constant(Signature);

/// Returns the function that wraps a long constant.
pub(super) fn constant() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Constant(Signature::any(1, Volatility::Volatile))))
}

impl ScalarUDFImpl for Constant {
    fn name(&self) -> &'static str {
        "a constant"
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let [constant] = args else { return internal_err!("it has one argument") };
        Ok(constant.schema_name().to_string())
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let [constant] = types else { return internal_err!("it has one argument") };
        Ok(constant.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let [constant] = args.arg_fields else { return internal_err!("it has one argument") };
        Ok(Arc::clone(constant))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(constant) = args.args.into_iter().next() else {
            return internal_err!("it has one argument");
        };
        Ok(constant)
    }
}

impl ScalarUDFImpl for Concatenation {
    fn name(&self) -> &'static str {
        "||"
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let [left, right] = args else { return internal_err!("|| has two operands") };
        Ok(format!("{} || {}", left.schema_name(), right.schema_name()))
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let [left, right] = types else { return internal_err!("|| has two operands") };
        BinaryTypeCoercer::new(left, &Operator::StringConcat, right).get_result_type()
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.return_type(&types)?, is_nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_one = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_one { 1 } else { args.number_rows };
        let columns =
            args.args.into_iter().map(|arg| arg.into_array(rows)).collect::<Result<Vec<ArrayRef>>>()?;
        let fields = columns.iter().map(|column| Field::new("", column.data_type().clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
        let operand = |place| Arc::new(Column::new("", place)) as Arc<dyn PhysicalExpr>;
        let joined = BinaryExpr::new(operand(0), Operator::StringConcat, operand(1)).evaluate(&batch)?;
        match (is_one, joined) {
            (true, ColumnarValue::Array(array)) => {
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?))
            }
            (_, joined) => Ok(joined),
        }
    }
}
