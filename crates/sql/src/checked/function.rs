//! The function that replaces arithmetic which may fail in plans.

use super::ArithmeticOp;
use arrow_array::{ArrayRef, Datum};
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion::logical_expr::binary::BinaryTypeCoercer;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr as Logical, ExprSchemable, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use std::fmt::Write;
use std::sync::Arc;

/// An arithmetic operation that may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Two operands.
    Binary(ArithmeticOp),
    /// The sign of one operand.
    Negative,
}

/// An operation on integers or decimals, with the result type of DataFusion's operator. A result that does not fit this
/// type is an error. The function is not registered, so that SQL cannot call it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct CheckedFunction {
    operation: Operation,
    /// Type of the result. It is stored, because deriving it from the operands is slow for a long chain of
    /// operators.
    data_type: DataType,
    signature: Signature,
}

/// If `call` is a call of `CheckedFunction`, returns its operation; otherwise `None`.
pub fn operation(call: &ScalarFunction) -> Option<Operation> {
    operation_of(&call.func)
}

/// If `function` is a [`CheckedFunction`], returns its operation; otherwise `None`.
pub(super) fn operation_of(function: &ScalarUDF) -> Option<Operation> {
    function.inner().downcast_ref::<CheckedFunction>().map(|function| function.operation)
}

/// Returns the type of `expr` over `input`.
pub(super) fn type_of(expr: &Logical, input: &DFSchema) -> Result<DataType> {
    let checked = match expr {
        Logical::ScalarFunction(call) => call.func.inner().downcast_ref::<CheckedFunction>(),
        _ => None,
    };
    checked.map_or_else(|| expr.get_type(input), |function| Ok(function.data_type.clone()))
}

impl Operation {
    /// Creates a call of the operation; `types` are the types of the operands.
    pub(super) fn call(self, operands: Vec<Logical>, types: &[DataType]) -> Result<Logical> {
        let signature = Signature::any(operands.len(), Volatility::Immutable);
        let data_type = self.result_type(types)?;
        let function = ScalarUDF::from(CheckedFunction { operation: self, data_type, signature });
        Ok(Logical::ScalarFunction(ScalarFunction::new_udf(Arc::new(function), operands)))
    }

    fn result_type(self, types: &[DataType]) -> Result<DataType> {
        match (self, types) {
            (Operation::Binary(op), [left, right]) => {
                BinaryTypeCoercer::new(left, &operator(op), right).get_result_type()
            }
            (Operation::Negative, [value]) => Ok(value.clone()),
            _ => internal_err!("{self:?} of {} operands", types.len()),
        }
    }
}

/// Appends the name of a call to `name`. All levels of a chain write to this one string, because DataFusion asks many
/// times for the name of each part of a chain.
fn write_name(name: &mut String, operation: Operation, args: &[Logical]) {
    match (operation, args) {
        (Operation::Binary(op), [left, right]) => {
            write_operand(name, left);
            let _ = write!(name, " {} ", op.symbol());
            write_operand(name, right);
        }
        (Operation::Negative, [value]) => {
            name.push_str("(- ");
            write_operand(name, value);
            name.push(')');
        }
        (Operation::Binary(_) | Operation::Negative, _) => name.push_str("checked"),
    }
}

fn write_operand(name: &mut String, expr: &Logical) {
    let checked = match expr {
        Logical::ScalarFunction(call) => operation(call).map(|operation| (operation, &call.args)),
        _ => None,
    };
    match checked {
        Some((operation, args)) => write_name(name, operation, args),
        None => {
            let _ = write!(name, "{}", expr.schema_name());
        }
    }
}

fn operator(op: ArithmeticOp) -> Operator {
    match op {
        ArithmeticOp::Add => Operator::Plus,
        ArithmeticOp::Subtract => Operator::Minus,
        ArithmeticOp::Multiply => Operator::Multiply,
        ArithmeticOp::Divide => Operator::Divide,
        ArithmeticOp::Modulo => Operator::Modulo,
    }
}

impl ScalarUDFImpl for CheckedFunction {
    fn name(&self) -> &'static str {
        match self.operation {
            Operation::Binary(ArithmeticOp::Add) => "checked_add",
            Operation::Binary(ArithmeticOp::Subtract) => "checked_subtract",
            Operation::Binary(ArithmeticOp::Multiply) => "checked_multiply",
            Operation::Binary(ArithmeticOp::Divide) => "checked_divide",
            Operation::Binary(ArithmeticOp::Modulo) => "checked_modulo",
            Operation::Negative => "checked_negative",
        }
    }

    /// Returns the name that DataFusion's operator would give its column.
    fn schema_name(&self, args: &[Logical]) -> Result<String> {
        let mut name = String::new();
        write_name(&mut name, self.operation, args);
        Ok(name)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.operation.result_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.return_type(&types)?, is_nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_one = args.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let operands = args.args.into_iter().map(datum).collect::<Result<Vec<_>>>()?;
        let computed = match (self.operation, &operands[..]) {
            (Operation::Binary(op), [left, right]) => farpool_statistics::arithmetic(op, &**left, &**right),
            (Operation::Negative, [value]) => farpool_statistics::negative(value.get().0),
            _ => return internal_err!("{} of {} operands", self.name(), operands.len()),
        };
        let result: ArrayRef = computed.map_err(crate::error::wrap)?;
        match is_one {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?)),
            false => Ok(ColumnarValue::Array(result)),
        }
    }
}

fn datum(value: ColumnarValue) -> Result<Box<dyn Datum>> {
    Ok(match value {
        ColumnarValue::Array(array) => Box::new(array),
        ColumnarValue::Scalar(scalar) => Box::new(scalar.to_scalar()?),
    })
}
