//! The stages around a handler, as a list: the types of the stack hide them.

use std::fmt;
use std::sync::Arc;

use crate::stage::Stage;

/// The stages around a handler, outermost first; for a [`Router`](crate::Router), around each of its routes.
/// [`Runner::explain`](crate::Runner::explain) lets a message fail in them.
#[derive(Clone)]
pub struct Stages {
    /// Never empty.
    ways: Vec<Way>,
}

/// The stages that some of the messages pass.
#[derive(Clone, Default)]
pub(crate) struct Way {
    /// Which messages; empty: all.
    pub(crate) name: String,
    pub(crate) stages: Vec<Arc<dyn Stage>>,
}

impl Stages {
    /// Creates the list of a handler without stages of its own.
    #[must_use]
    pub fn none() -> Self {
        Self { ways: vec![Way::default()] }
    }

    /// Adds this stage around all others.
    #[must_use]
    pub fn inside(mut self, stage: &Arc<dyn Stage>) -> Self {
        for way in &mut self.ways {
            way.stages.insert(0, Arc::clone(stage));
        }
        self
    }

    /// Combines alternatives: each message takes one of these named routes. Routes without stages are merged.
    pub(crate) fn one_of(routes: impl IntoIterator<Item = (String, Self)>) -> Self {
        let (mut plain, mut ways) = (Vec::new(), Vec::new());
        for (name, way) in routes
            .into_iter()
            .flat_map(|(name, own)| own.ways.into_iter().map(move |way| (name.clone(), way)))
        {
            let name = if way.name.is_empty() { name } else { format!("{name}, {}", way.name) };
            if way.stages.is_empty() {
                plain.push(name);
            } else {
                ways.push(Way { name, ..way });
            }
        }
        if ways.is_empty() {
            return Self::none();
        }
        if !plain.is_empty() {
            ways.push(Way { name: plain.join("; "), stages: Vec::new() });
        }
        Self { ways }
    }

    pub(crate) fn ways(&self) -> &[Way] {
        &self.ways
    }
}

impl fmt::Debug for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.ways.iter().map(|way| (&way.name, way.stages.len()))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Backoff, secs};

    fn names(stages: &Stages) -> Vec<(&str, usize)> {
        stages.ways().iter().map(|way| (way.name.as_str(), way.stages.len())).collect()
    }

    #[test]
    fn routes_without_stages_are_one_way_and_nested_ones_are_named_by_both_keys() {
        let stage: Arc<dyn Stage> = Arc::new(Backoff::new([secs(1)]));
        let of = |name: &str, stages: Stages| (name.to_owned(), stages);
        assert_eq!(names(&Stages::one_of([of("a", Stages::none()), of("b", Stages::none())])), [("", 0)]);
        let inner = Stages::one_of([of("x", Stages::none().inside(&stage)), of("y", Stages::none())]);
        let routes = [of("a", Stages::none()), of("b", inner), of("c", Stages::none().inside(&stage))];
        let all = Stages::one_of(routes).inside(&stage);
        assert_eq!(names(&all), [("b, x", 2), ("c", 2), ("a; b, y", 1)]);
    }
}
