//! The stages around a handler, as a list: the types of the stack hide them.

use std::fmt;
use std::sync::Arc;

use crate::stage::Stage;

/// The stages around a handler, outermost first; for a `Router`, around each of its routes.
/// `Runner::explain` lets a message fail in them.
#[derive(Clone)]
pub struct Stages {
    /// Never empty.
    routes: Vec<Route>,
}

/// The stages that some of the messages pass.
#[derive(Clone, Default)]
pub(crate) struct Route {
    /// Which messages; empty: all.
    pub(crate) name: String,
    pub(crate) stages: Vec<Arc<dyn Stage>>,
}

impl Stages {
    /// Creates the list of a handler without stages of its own.
    #[must_use]
    pub fn none() -> Self {
        Self { routes: vec![Route::default()] }
    }

    /// Adds this stage around all others.
    #[must_use]
    pub fn inside(mut self, stage: &Arc<dyn Stage>) -> Self {
        for route in &mut self.routes {
            route.stages.insert(0, Arc::clone(stage));
        }
        self
    }

    /// Combines alternatives: each message takes one of these named routes. Routes without stages are merged.
    pub fn one_of(alternatives: impl IntoIterator<Item = (String, Self)>) -> Self {
        let (mut plain, mut routes) = (Vec::new(), Vec::new());
        for (name, route) in alternatives
            .into_iter()
            .flat_map(|(name, own)| own.routes.into_iter().map(move |route| (name.clone(), route)))
        {
            let name = if route.name.is_empty() { name } else { format!("{name}, {}", route.name) };
            if route.stages.is_empty() {
                plain.push(name);
            } else {
                routes.push(Route { name, ..route });
            }
        }
        if routes.is_empty() {
            return Self::none();
        }
        if !plain.is_empty() {
            routes.push(Route { name: plain.join("; "), stages: Vec::new() });
        }
        Self { routes }
    }

    pub(crate) fn routes(&self) -> &[Route] {
        &self.routes
    }
}

impl fmt::Debug for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.routes.iter().map(|route| (&route.name, route.stages.len()))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Backoff, secs};

    fn names(stages: &Stages) -> Vec<(&str, usize)> {
        stages.routes().iter().map(|route| (route.name.as_str(), route.stages.len())).collect()
    }

    #[test]
    fn routes_without_stages_are_merged_and_nested_ones_are_named_by_both_keys() {
        let stage: Arc<dyn Stage> = Arc::new(Backoff::new([secs(1)]));
        let of = |name: &str, stages: Stages| (name.to_owned(), stages);
        assert_eq!(names(&Stages::one_of([of("a", Stages::none()), of("b", Stages::none())])), [("", 0)]);
        let inner = Stages::one_of([of("x", Stages::none().inside(&stage)), of("y", Stages::none())]);
        let routes = [of("a", Stages::none()), of("b", inner), of("c", Stages::none().inside(&stage))];
        let all = Stages::one_of(routes).inside(&stage);
        assert_eq!(names(&all), [("b, x", 2), ("c", 2), ("a; b, y", 1)]);
    }
}
