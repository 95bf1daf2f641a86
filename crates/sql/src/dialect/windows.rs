//! Expands windows that build on named windows: `OVER (w ORDER BY id)`, `WINDOW w2 AS (w ORDER BY id)`. DataFusion 55.2
//! parses the name but ignores the window that it refers to, and does not resolve names in ORDER BY and QUALIFY.
//!
//! By the standard (SQL:2016, 7.15) and in PostgreSQL, a window refers to one that is defined before it. It must not
//! add PARTITION BY, may add ORDER BY only if the other one has none, and cannot refer to a window that has a frame.

use super::headers::normal;
use super::refusal;
use super::walk::Walk;
use crate::exclusions;
use datafusion::common::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, NamedWindowDefinition, NamedWindowExpr, OrderByKind, Query, Select, SetExpr, Value,
    ValueWithSpan, VisitorMut, WindowSpec, WindowType,
};
use std::ops::ControlFlow;

/// Expands the windows that expressions of the SELECT refer to.
pub(super) fn apply(select: &mut Select, lowers: bool) -> Result<()> {
    let windows = Windows::of(&select.named_window, lowers)?;
    // The engine takes each definition to be complete, so that definitions are expanded as well.
    for (definition, (_, spec)) in select.named_window.iter_mut().zip(&windows.specs) {
        definition.1 = NamedWindowExpr::WindowSpec(spec.clone());
    }
    let mut write_out = WriteOut { windows, within: 0 };
    flow(select.projection.walk(&mut write_out))?;
    flow(select.qualify.walk(&mut write_out))
}

/// Expands the windows that the query's ORDER BY refers to; those of its SELECT have been expanded already.
pub(super) fn in_order(query: &mut Query, lowers: bool) -> Result<()> {
    let SetExpr::Select(select) = &*query.body else { return Ok(()) };
    let windows = Windows::of(&select.named_window, lowers)?;
    let Some(OrderByKind::Expressions(order)) = query.order_by.as_mut().map(|order| &mut order.kind) else {
        return Ok(());
    };
    flow(order.walk(&mut WriteOut { windows, within: 0 }))
}

fn flow(visited: ControlFlow<DataFusionError>) -> Result<()> {
    match visited {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// The named windows of a SELECT, expanded, in the order of their definitions.
struct Windows {
    specs: Vec<(String, WindowSpec)>,
    lowers: bool,
}

impl Windows {
    fn of(definitions: &[NamedWindowDefinition], lowers: bool) -> Result<Self> {
        let mut windows = Windows { specs: Vec::with_capacity(definitions.len()), lowers };
        for NamedWindowDefinition(name, definition) in definitions {
            let spec = match definition {
                NamedWindowExpr::NamedWindow(base) => windows.named(base)?.clone(),
                NamedWindowExpr::WindowSpec(spec) => windows.complete(spec)?,
            };
            let name = normal(name, lowers);
            if windows.find(&name).is_some() {
                let what = format!("the window {name} is defined twice");
                return Err(refusal(&what, "give one of them another name"));
            }
            windows.specs.push((name, spec));
        }
        Ok(windows)
    }

    fn find(&self, name: &str) -> Option<&WindowSpec> {
        self.specs.iter().find(|(known, _)| known == name).map(|(_, spec)| spec)
    }

    fn named(&self, name: &Ident) -> Result<&WindowSpec> {
        self.find(&normal(name, self.lowers)).ok_or_else(|| {
            let what = format!("there is no window {} before this place", name.value);
            refusal(&what, "define it in the WINDOW clause of this SELECT, before windows that build on it")
        })
    }

    /// Returns `spec`, completed by the window that it refers to.
    fn complete(&self, spec: &WindowSpec) -> Result<WindowSpec> {
        let Some(name) = &spec.window_name else { return Ok(spec.clone()) };
        let base = self.named(name)?;
        let refused = |what: &str, advice: &str| {
            Err(refusal(&format!("a window that builds on the window {} {what}", name.value), advice))
        };
        if !spec.partition_by.iter().all(is_exclusion) {
            return refused("cannot have a PARTITION BY of its own", "write out the whole window");
        }
        if !spec.order_by.is_empty() && !base.order_by.is_empty() {
            return refused("cannot have another ORDER BY", "write out the whole window");
        }
        if base.window_frame.is_some() {
            let advice =
                "write OVER with the name and without brackets, or put the frame into the new window";
            return refused("cannot take over its frame", advice);
        }
        let order_by = if spec.order_by.is_empty() { &base.order_by } else { &spec.order_by };
        Ok(WindowSpec {
            window_name: None,
            partition_by: [&*base.partition_by, &*spec.partition_by].concat(),
            order_by: order_by.clone(),
            window_frame: spec.window_frame.clone(),
        })
    }
}

/// Returns whether the expression is the mark of an EXCLUDE clause (see [`crate::exclusions`]).
fn is_exclusion(expr: &Expr) -> bool {
    match expr {
        Expr::Cast { expr, .. } => is_exclusion(expr),
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => {
            exclusions::is_mark(text)
        }
        _ => false,
    }
}

struct WriteOut {
    windows: Windows,
    /// Number of nested queries around the visited position, because a window's name is visible only in its own SELECT.
    within: usize,
}

impl VisitorMut for WriteOut {
    type Break = DataFusionError;

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<DataFusionError> {
        self.within += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<DataFusionError> {
        self.within -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<DataFusionError> {
        let Expr::Function(call) = expr else { return ControlFlow::Continue(()) };
        if self.within > 0 {
            return ControlFlow::Continue(());
        }
        let spec = match &call.over {
            None => return ControlFlow::Continue(()),
            Some(WindowType::NamedWindow(name)) => self.windows.named(name).cloned(),
            Some(WindowType::WindowSpec(spec)) => self.windows.complete(spec),
        };
        match spec {
            Ok(spec) => call.over = Some(WindowType::WindowSpec(spec)),
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }
}
