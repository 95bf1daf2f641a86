//! Makes tasks that the engine spawns work for the scope (unit of work that can be stopped) of the task that spawned
//! them.

use super::current;
use datafusion::common::runtime::{JoinSetTracer, set_join_set_tracer};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::any::Any;
use std::sync::Once;

type Output = Box<dyn Any + Send>;
type Block = Box<dyn FnOnce() -> Output + Send>;

/// A tracer for DataFusion that enters the scope at each poll of a task, and for the whole of a blocking closure.
struct Inherit;

/// Installs [`Inherit`] in this process. If the process has set another tracer before, that one stays, and the engine's
/// tasks stop only at await points.
pub(super) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _ = set_join_set_tracer(&Inherit);
    });
}

impl JoinSetTracer for Inherit {
    fn trace_future(&self, mut task: BoxFuture<'static, Output>) -> BoxFuture<'static, Output> {
        let Some(entered) = current::entered() else { return task };
        futures::future::poll_fn(move |context| current::enter(&entered, || task.poll_unpin(context))).boxed()
    }

    fn trace_block(&self, work: Block) -> Block {
        let Some(entered) = current::entered() else { return work };
        Box::new(move || current::enter(&entered, work))
    }
}
