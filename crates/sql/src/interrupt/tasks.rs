//! Makes tasks that the engine spawns work for the scope (unit of work that can be stopped) of the task that spawned
//! them.

use super::current;
use datafusion::common::runtime::{JoinSetTracer, set_join_set_tracer};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::any::Any;
use std::sync::{Arc, Once};
use std::task::Context;

type Output = Box<dyn Any + Send>;
type Block = Box<dyn FnOnce() -> Output + Send>;

/// A tracer for DataFusion that enters the scope at each poll of a task, and for the whole of a blocking closure. A task is
/// a part of an operator, which runs: its functions are charged to an account of its own.
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
        let charge = Arc::default();
        let poll = move |context: &mut Context<'_>| {
            current::enter(&entered, Some(&charge), || task.poll_unpin(context))
        };
        futures::future::poll_fn(poll).boxed()
    }

    fn trace_block(&self, work: Block) -> Block {
        let Some(entered) = current::entered() else { return work };
        Box::new(move || current::enter(&entered, Some(&Arc::default()), work))
    }
}
