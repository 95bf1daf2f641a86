//! The settings of DataFusion that every session has, and what its statements run in: memory, files to spill to, and
//! whether files can be reached at all.

use crate::memory::EngineMemory;
use crate::session::{HOME, SCHEMA, SessionOptions};
use crate::spill::SpillFiles;
use datafusion::execution::disk_manager::DiskManagerBuilder;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::prelude::SessionConfig;
use std::sync::Arc;

/// Creates the runtime environment, which limits memory and provides files to spill to.
pub(crate) fn runtime(options: &SessionOptions, files: Arc<SpillFiles>) -> Arc<RuntimeEnv> {
    let Some(work) = &options.work else { return with_files(Arc::default(), options) };
    let files = DiskManagerBuilder::default().with_temp_file_factory(files);
    let builder = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(EngineMemory::new(work)))
        .with_disk_manager_builder(files);
    // Building fails only for settings of caches and of temporary directories, which are not set here.
    with_files(builder.build_arc().unwrap_or_default(), options)
}

/// Removes the engine's own access to files if the session may not have it, so that no statement of any form can reach
/// one.
fn with_files(runtime: Arc<RuntimeEnv>, options: &SessionOptions) -> Arc<RuntimeEnv> {
    if !options.files {
        // It fails only if there is no such access.
        drop(runtime.deregister_object_store(ObjectStoreUrl::local_filesystem().as_ref()));
    }
    runtime
}

/// Creates the configuration of a session.
pub(crate) fn config(options: &SessionOptions) -> SessionConfig {
    let mut config = SessionConfig::new()
        .with_information_schema(true)
        .with_default_catalog_and_schema(HOME, SCHEMA)
        .with_create_default_catalog_and_schema(false)
        .with_extension(Arc::new(options.rates))
        .with_batch_size(farpool_model::limits::BATCH_ROWS);
    if let Some(partitions) = options.target_partitions {
        config = config.with_target_partitions(partitions.max(1));
    }
    let options = config.options_mut();
    // Tells DataFusion not to create an expression for each join key: the keys of the smaller side are collected on
    // their way into the join instead ([`crate::dynamic`]), and sent to the pool with the program of the other side.
    options.optimizer.hash_join_inlist_pushdown_max_distinct_values = 0;
    options.optimizer.hash_join_inlist_pushdown_max_size = 0;
    // The build side of a join is chosen by the same estimates as the join order.
    options.optimizer.use_statistics_registry = true;
    // Small tables are not split among several threads. Their sizes are estimates, because a statement may read a newer
    // table version than the described one.
    options.execution.use_row_number_estimates_to_optimize_partitioning = true;
    // Records the positions of expressions in the statement, for error messages.
    options.sql_parser.collect_spans = true;
    // The check reports a difference in nullability as an error. DataFusion's own logical and physical expressions
    // differ in nullability (CASE over IS TRUE), so that it is switched off.
    options.execution.skip_physical_aggregate_schema_check = true;
    config
}
