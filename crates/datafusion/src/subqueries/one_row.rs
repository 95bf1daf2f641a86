//! The check that a subquery which stands for a value has one row at most.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_schema::DataType;
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::{Arc, LazyLock};

/// Returns `value`, or the error that there are several: `rows` is their number.
pub(super) fn one_of(rows: Expr, value: Expr) -> Expr {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
        Arc::new(ScalarUDF::from(OneRow { signature: Signature::any(2, Volatility::Immutable) }))
    });
    FUNCTION.call(vec![rows, value])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OneRow {
    signature: Signature,
}

impl ScalarUDFImpl for OneRow {
    fn name(&self) -> &'static str {
        "one_row"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[1].clone())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let counts = arguments.args[0].to_array(arguments.number_rows)?;
        let has_several = counts.as_primitive::<Int64Type>().iter().flatten().any(|rows| rows > 1);
        match has_several {
            true => exec_err!("more than one row returned by a subquery used as an expression"),
            false => Ok(arguments.args[1].clone()),
        }
    }
}
