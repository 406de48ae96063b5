//! Whose an entry is, on a shelf that several work queues may share. Pure.

/// Whose an entry of a shelf is, by the queue that its message [failed in](super::Shelved::failed_in).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Owner {
    /// The work queue of these shelves. Also if nothing tells the queue, and no other is listed.
    #[default]
    This,
    /// Another work queue, which the operator listed as sharing the shelf: a redrive sends the message there.
    Listed,
    /// Nothing tells the queue, and the operator listed others that share the shelf: it may be one of theirs. A redrive sends the message
    /// to the work queue of these shelves.
    Unknown,
    /// A queue that nobody listed. The entry is shown, and no action takes it: it belongs to another consumer.
    Other,
}

impl Owner {
    /// Returns whose a message is that failed in the queue `failed_in`, on a shelf of the work queue `own` and of those that the operator
    /// `listed`. For transports. Any publisher can write the name, so it only selects among these.
    ///
    /// ```
    /// use redrive_core::shelves::Owner;
    ///
    /// let listed = ["bills"];
    /// assert_eq!(Owner::of(Some("orders"), "orders", &listed), Owner::This);
    /// assert_eq!(Owner::of(Some("bills"), "orders", &listed), Owner::Listed);
    /// assert_eq!(Owner::of(Some("wages"), "orders", &listed), Owner::Other);
    /// assert_eq!(Owner::of(None, "orders", &listed), Owner::Unknown);
    /// assert_eq!(Owner::of(None, "orders", &[""; 0]), Owner::This);
    /// ```
    #[must_use]
    pub fn of(failed_in: Option<&str>, own: &str, listed: &[impl AsRef<str>]) -> Self {
        match failed_in {
            None if listed.is_empty() => Self::This,
            None => Self::Unknown,
            Some(queue) if queue == own => Self::This,
            Some(queue) if listed.iter().any(|listed| listed.as_ref() == queue) => Self::Listed,
            Some(_) => Self::Other,
        }
    }
}
