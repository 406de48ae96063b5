//! Values that layers pass to handlers.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Values that layers attach to a delivery, one of each type, for the layers and the handler inside them. They are not written on
/// the message: the next attempt begins without them. Cheap to clone; an empty one allocates nothing.
#[derive(Clone, Default)]
pub struct Extensions {
    values: Option<Arc<HashMap<TypeId, Entry>>>,
}

#[derive(Clone)]
struct Entry {
    value: Arc<dyn Any + Send + Sync>,
    type_name: &'static str,
}

impl Extensions {
    /// Attaches a value. Replaces an earlier one of its type.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        let entry = Entry { value: Arc::new(value), type_name: type_name::<T>() };
        Arc::make_mut(self.values.get_or_insert_default()).insert(TypeId::of::<T>(), entry);
    }

    /// Returns the value of this type.
    #[must_use]
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.values.as_ref()?.get(&TypeId::of::<T>())?.value.downcast_ref()
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.values.iter().flat_map(|values| values.values());
        f.debug_set().entries(entries.map(|entry| entry.type_name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_one_value_and_clones_do_not_share_what_comes_later() {
        let mut first = Extensions::default();
        assert_eq!(first.get::<u32>(), None);
        first.insert(1_u32);
        first.insert("text");
        let mut second = first.clone();
        second.insert(2_u32);
        assert_eq!((first.get(), second.get()), (Some(&1_u32), Some(&2_u32)));
        assert_eq!(second.get(), Some(&"text"));
        assert!(format!("{first:?}").contains("u32"));
    }
}
