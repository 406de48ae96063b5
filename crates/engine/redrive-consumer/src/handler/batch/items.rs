//! The items that a batch handler receives.

use std::fmt;
use std::ops::Index;
use std::sync::Arc;

/// The items of one call of a [`BatchHandler`](super::BatchHandler): one for each message, in the order of their arrival; never
/// empty. Items are shared, because a failed batch is handled again in halves.
///
/// ```
/// use redrive_consumer::Batch;
///
/// let orders = Batch::from(vec!["lamp", "table"]); // in a test of a handler
/// for order in &orders {
///     println!("{order}");
/// }
/// assert_eq!((orders.len(), orders[1]), (2, "table"));
/// ```
pub struct Batch<T> {
    items: Arc<[Arc<T>]>,
}

impl<T> Batch<T> {
    pub(super) fn new(items: impl Iterator<Item = Arc<T>>) -> Self {
        Self { items: items.collect() }
    }

    /// Returns the number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns true if there are no items; a batch from a consumer always has some.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Iterates over the items, in the order of their arrival.
    #[must_use]
    pub fn iter(&self) -> Iter<'_, T> {
        Iter(self.items.iter())
    }
}

/// For tests of handlers.
impl<T> From<Vec<T>> for Batch<T> {
    fn from(items: Vec<T>) -> Self {
        Self::new(items.into_iter().map(Arc::new))
    }
}

impl<T> Index<usize> for Batch<T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        &self.items[index]
    }
}

impl<'a, T> IntoIterator for &'a Batch<T> {
    type Item = &'a T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T> Clone for Batch<T> {
    fn clone(&self) -> Self {
        Self { items: Arc::clone(&self.items) }
    }
}

impl<T: fmt::Debug> fmt::Debug for Batch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

/// The items of a [`Batch`]; made by [`Batch::iter`].
#[derive(Clone, Debug)]
pub struct Iter<'a, T>(std::slice::Iter<'a, Arc<T>>);

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        self.0.next().map(|item| &**item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<T> ExactSizeIterator for Iter<'_, T> {}
