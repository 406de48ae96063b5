//! Work on one shelf in many steps.

use std::fmt;

use async_trait::async_trait;

use super::Shelves;

/// Shelves for work in many steps on one of them, and the right to it. See [`Shelves::lease`].
#[non_exhaustive]
pub struct Leased {
    /// The same shelves. A [`redrive`](Shelves::redrive), [`park`](Shelves::park) or [`discard`](Shelves::discard) of entries by handle
    /// may go on where the previous one ended.
    pub shelves: Box<dyn Shelves>,
    /// The right to work on the shelf. It ends with [`Lease::end`], or a little after it is dropped.
    pub lease: Box<dyn Lease>,
}

impl Leased {
    /// Creates them. For transports.
    #[must_use]
    pub fn new(shelves: impl Shelves + 'static, lease: impl Lease + 'static) -> Self {
        Self { shelves: Box::new(shelves), lease: Box::new(lease) }
    }
}

impl fmt::Debug for Leased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leased").finish_non_exhaustive()
    }
}

/// The right to work on a shelf, which only one client of the broker has at a time. It ends with
/// the process: on a broker that must first notice that a connection is dead, a little later.
#[async_trait]
pub trait Lease: Send + Sync {
    /// Returns how many entries of the shelf are held between two steps: nobody else sees or counts them meanwhile.
    fn held(&self) -> u64 {
        0
    }

    /// Gives everything back that is held, in its order, and keeps the right. For when the next step comes much later.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the rest happens a little later.
    async fn pause(&self) {}

    /// Gives everything back that is held, in its order, and then the right. When it resolves, others see all of it.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the broker does the rest by itself, a little later.
    async fn end(&self) {}
}
