//! The causes of an error, one by one.

use std::error::Error;
use std::io;
use std::sync::Arc;

use super::{Permanent, Throttled};

/// More than any honest error has; a chain may also be circular.
const MAX_CAUSES: usize = 16;

/// The error and its causes, outermost first, 16 at most.
///
/// Some errors stand in for the one that they hold: their `source()` skips it, so that its text is not told
/// twice. They are seen through here: redrive's markers, `io::Error::other`, and `Arc<dyn Error + Send + Sync>`.
///
/// ```
/// use std::io;
/// use redrive_core::{Permanent, chain};
///
/// let error = io::Error::other(Permanent::new(std::fmt::Error));
/// assert!(chain(&error).any(|cause| cause.is::<Permanent>()));
/// assert!(chain(&error).any(|cause| cause.is::<std::fmt::Error>()));
/// ```
pub fn chain<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| next(error)).take(MAX_CAUSES)
}

fn next<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> {
    if let Some(marker) = error.downcast_ref::<Permanent>() {
        return Some(marker.marked());
    }
    if let Some(marker) = error.downcast_ref::<Throttled>() {
        return Some(marker.marked());
    }
    if let Some(shared) = error.downcast_ref::<Arc<dyn Error + Send + Sync>>() {
        return Some(&**shared);
    }
    if let Some(held) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        return Some(held);
    }
    error.source()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circular_chain_ends() {
        #[derive(Debug)]
        struct Circle;
        impl std::fmt::Display for Circle {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("round and round")
            }
        }
        impl Error for Circle {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&Circle)
            }
        }
        assert_eq!(chain(&Circle).count(), MAX_CAUSES);
    }

    #[test]
    fn an_error_that_stands_in_for_another_is_seen_through() {
        let shared: Arc<dyn Error + Send + Sync> = Arc::new(std::fmt::Error);
        assert!(chain(&shared).any(<dyn Error>::is::<std::fmt::Error>));
    }
}
