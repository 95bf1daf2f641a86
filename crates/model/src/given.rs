//! Rows that come along with a program, for a lookup: those of a small table that the pool does not hold, such as the
//! list of a VALUES clause.

use crate::{Error, Literal, Result, TableName, Value, limits, schema};
use arrow_schema::{Field, Schema};

/// Rows that come along with a program.
#[derive(Clone, Debug, PartialEq)]
pub struct GivenRows {
    rows: usize,
    /// The values of each column, in the order of the rows.
    columns: Vec<Vec<Value>>,
}

impl GivenRows {
    /// Creates rows of these columns, each with as many values as there are rows. All fields of `schema` are nullable.
    ///
    /// # Errors
    /// `OverLimit` if there are too many values, or they are too long; `Invalid` if the schema is not canonical, a column has another number of values, or one that its type
    /// in `schema` does not have.
    pub fn new(schema: &Schema, rows: usize, columns: Vec<Vec<Value>>) -> Result<Self> {
        let fields = schema.fields();
        if rows.saturating_mul(fields.len().max(1)) > limits::GIVEN_VALUES_MAX {
            let most = limits::GIVEN_VALUES_MAX;
            return Err(Error::over_limit(format!("the rows of a plan may have {most} values")));
        }
        if let Some(field) = fields.iter().find(|field| !field.is_nullable()) {
            let message =
                format!("the column {:?} of a plan's rows is not declared as nullable", field.name());
            return Err(Error::invalid(message));
        }
        if columns.len() != fields.len() || columns.iter().any(|column| column.len() != rows) {
            return Err(Error::invalid("the rows of a plan do not have a value for each of their columns"));
        }
        schema::canonical_schema(schema)?;
        fields.iter().zip(&columns).try_for_each(|(field, values)| check(field, values))?;
        let given = GivenRows { rows, columns };
        if given.bytes() > limits::GIVEN_BYTES_MAX {
            let most = limits::GIVEN_BYTES_MAX;
            return Err(Error::over_limit(format!("the rows of a plan may take {most} bytes of memory")));
        }
        Ok(given)
    }

    /// Returns the name that stands for the rows where a program names its table.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub fn name() -> Result<TableName> {
        TableName::new("rows")
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the values of each column.
    pub fn columns(&self) -> &[Vec<Value>] {
        &self.columns
    }

    /// Returns the bytes of memory that the values take.
    pub fn bytes(&self) -> usize {
        let of_text = |value: &Value| match value {
            Value::Text(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            _ => 0,
        };
        let values = self.columns.iter().flatten();
        values.map(|value| size_of::<Value>() + of_text(value)).sum()
    }
}

/// Checks that all values belong to the type of the column.
fn check(field: &Field, values: &[Value]) -> Result<()> {
    values.iter().cloned().try_for_each(|value| Literal::new(value, field.data_type().clone()).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use arrow_schema::DataType;

    fn schema() -> Schema {
        let field = |name: &str, data_type| Field::new(name, data_type, true);
        Schema::new(vec![field("k", DataType::Int32), field("s", DataType::Utf8View)])
    }

    #[test]
    fn values_belong_to_the_types_of_their_columns() {
        let texts = || vec![Value::Text("a".into()), Value::Null];
        let rows = GivenRows::new(&schema(), 2, vec![vec![Value::Int(1), Value::Int(2)], texts()]);
        let rows = rows.expect("well typed");
        assert_eq!((rows.rows(), rows.columns()[1].len()), (2, 2));
        assert!(rows.bytes() > 4 * size_of::<Value>());
        let wrong = [
            vec![vec![Value::Int(1 << 40), Value::Int(2)], texts()],
            vec![vec![Value::Int(1)], texts()],
            vec![texts()],
        ];
        for columns in wrong {
            let error = GivenRows::new(&schema(), 2, columns).expect_err("not well typed");
            assert_eq!(error.kind, ErrorKind::Invalid);
        }
    }

    #[test]
    fn values_are_limited() {
        let rows = limits::GIVEN_VALUES_MAX / 2 + 1;
        let columns = vec![vec![Value::Int(1); rows], vec![Value::Null; rows]];
        let error = GivenRows::new(&schema(), rows, columns).expect_err("too many");
        assert_eq!(error.kind, ErrorKind::OverLimit);
        let strict = Schema::new(vec![Field::new("k", DataType::Int32, false)]);
        assert!(GivenRows::new(&strict, 1, vec![vec![Value::Int(1)]]).is_err());
        let error = GivenRows::new(&Schema::empty(), 2 * rows, Vec::new()).expect_err("too many");
        assert_eq!(error.kind, ErrorKind::OverLimit);
        let long = Value::Text("x".repeat(limits::GIVEN_BYTES_MAX));
        let error = GivenRows::new(&schema(), 1, vec![vec![Value::Null], vec![long]]).expect_err("too long");
        assert_eq!(error.kind, ErrorKind::OverLimit);
        let twice = Schema::new(vec![schema().field(0).clone(), schema().field(0).clone()]);
        assert!(GivenRows::new(&twice, 0, vec![Vec::new(), Vec::new()]).is_err(), "two columns of one name");
    }
}
