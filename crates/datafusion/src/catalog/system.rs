//! A schema whose tables are computed when a statement names them, and functions over the same facts: the catalog that
//! tools of another database ask for.

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::DataType;
use async_trait::async_trait;
use datafusion::catalog::{MemTable, SchemaProvider, TableProvider};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use farpool_sql::error;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A schema of computed tables.
#[async_trait]
pub trait SystemSchema: Send + Sync + fmt::Debug {
    /// Returns the name of the schema.
    fn name(&self) -> &str;

    /// Returns whether statements can name its tables without the schema.
    fn is_implied(&self) -> bool;

    /// Returns the names of the tables.
    fn tables(&self) -> Vec<String>;

    /// Returns whether there is a table of this name.
    fn has(&self, table: &str) -> bool;

    /// Computes the rows of a table.
    ///
    /// # Errors
    /// Errors of a pool that cannot be asked.
    async fn rows(&self, table: &str) -> farpool_model::Result<RecordBatch>;
}

/// Computes the results of a number of rows from the arguments, which are columns of as many rows.
pub type Compute = dyn Fn(&[ArrayRef], usize) -> farpool_model::Result<ArrayRef> + Send + Sync;

/// A function of a [`SystemSchema`].
#[derive(Clone)]
pub struct SystemFunction {
    /// The name, in lower case.
    pub name: &'static str,
    /// The types of the arguments; several lists if it takes different numbers of them.
    pub arguments: Vec<Vec<DataType>>,
    /// The type of the result.
    pub returns: DataType,
    /// Computes the results.
    pub compute: Arc<Compute>,
}

impl fmt::Debug for SystemFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemFunction").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The schema as DataFusion knows it.
#[derive(Debug)]
pub(crate) struct SystemProvider(pub Arc<dyn SystemSchema>);

#[async_trait]
impl SchemaProvider for SystemProvider {
    fn table_names(&self) -> Vec<String> {
        self.0.tables()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if !self.0.has(name) {
            return Ok(None);
        }
        let rows = self.0.rows(name).await.map_err(error::wrap)?;
        Ok(Some(Arc::new(MemTable::try_new(rows.schema(), vec![vec![rows]])?)))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.0.has(name)
    }
}

/// A function as DataFusion knows it.
#[derive(Debug)]
struct Udf {
    function: SystemFunction,
    signature: Signature,
}

impl PartialEq for Udf {
    fn eq(&self, other: &Self) -> bool {
        self.function.name == other.function.name
            && Arc::ptr_eq(&self.function.compute, &other.function.compute)
    }
}

impl Eq for Udf {}

impl Hash for Udf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.name.hash(state);
    }
}

impl ScalarUDFImpl for Udf {
    fn name(&self) -> &str {
        self.function.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(self.function.returns.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let columns = args.args.into_iter().map(|argument| argument.into_array(rows));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let computed = (self.function.compute)(&columns, rows).map_err(error::wrap)?;
        Ok(ColumnarValue::Array(computed))
    }
}

impl SystemFunction {
    pub(crate) fn udf(self) -> ScalarUDF {
        let types = self.arguments.iter().map(|types| match types.as_slice() {
            [] => TypeSignature::Nullary,
            types => TypeSignature::Exact(types.to_vec()),
        });
        // The tables of a pool may change between two statements.
        let signature = Signature::one_of(types.collect(), Volatility::Stable);
        ScalarUDF::new_from_impl(Udf { function: self, signature })
    }
}
