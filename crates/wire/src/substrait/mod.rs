//! Programs as Substrait plans, both ways.

use arrow_schema::{Schema, SchemaRef};
use farpool_model::{Program, Result, TableName};

/// The plan of a program over a table with this schema.
pub fn encode_program(_program: &Program, _table_schema: &Schema) -> Result<Vec<u8>> {
    todo!()
}

/// The program of a plan.
pub fn decode_program(
    _plan: &[u8],
    _schema_of: &dyn Fn(&TableName) -> Result<SchemaRef>,
) -> Result<Program> {
    todo!()
}
