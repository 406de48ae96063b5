//! The causes of an error, one by one.

use std::error::Error;
use std::io;
use std::sync::Arc;

use super::{Permanent, Throttled};

/// Maximum number of causes. Real errors have fewer; a chain may also be circular.
const MAX_CAUSES: usize = 16;

/// Returns the error and its causes, outermost first, at most 16.
///
/// The `source()` of a wrapper may skip the error that it wraps, so that a text does not appear twice. This function does not
/// skip the wrapped error of redrive's markers, of `io::Error::other` and of `Arc<dyn Error + Send + Sync>`.
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
