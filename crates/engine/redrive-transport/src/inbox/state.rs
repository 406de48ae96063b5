//! The deliveries in an inbox, and the states of its sources. Pure.

use std::collections::VecDeque;

use redrive_core::{Delivery, TransportError};

use super::Arrival;

pub(super) struct State<T> {
    arrived: VecDeque<T>,
    /// Deliveries that were lost before they were received, since the last [`take_unreceived`](Self::take_unreceived).
    unreceived: Vec<Delivery>,
    /// One entry for each source: true if more deliveries may come from it.
    open: Vec<bool>,
    status: Status,
}

/// The state of the inbox: deliveries may come, or why none come.
enum Status {
    Running,
    /// No deliveries until the limit is set again.
    Failed(TransportError),
    /// No more deliveries: a source panicked.
    Broken(TransportError),
    Closed,
}

/// What became of deliveries that were added.
pub(super) enum Added<T> {
    /// The inbox was empty.
    First,
    More,
    /// They are not in the inbox, which is closed.
    Closed(Vec<T>),
}

impl<T> State<T> {
    pub(super) fn new() -> Self {
        Self { arrived: VecDeque::new(), unreceived: Vec::new(), open: Vec::new(), status: Status::Running }
    }

    /// Adds a source, which is not open yet. Returns its number.
    pub(super) fn add_source(&mut self) -> usize {
        self.open.push(false);
        self.open.len() - 1
    }

    /// Opens every source. Returns true if one had failed.
    pub(super) fn open_all(&mut self) -> Result<bool, TransportError> {
        if let Status::Broken(error) = &self.status {
            return Err(error.clone());
        }
        let failed = matches!(self.status, Status::Failed(_));
        if failed {
            self.status = Status::Running;
        }
        self.open.fill(true);
        Ok(failed)
    }

    /// Marks a source as stopped: no more deliveries come from it until it is opened again.
    pub(super) fn source_stopped(&mut self, source: usize) {
        if let Some(open) = self.open.get_mut(source) {
            *open = false;
        }
    }

    /// Sets the error of [`receive`](super::Inbox::receive) until the sources are opened again.
    pub(super) fn fail(&mut self, error: TransportError) {
        if let Status::Running | Status::Failed(_) = self.status {
            self.status = Status::Failed(error);
        }
    }

    /// Sets the error of [`receive`](super::Inbox::receive) for good.
    pub(super) fn mark_broken(&mut self, error: TransportError) {
        if !matches!(self.status, Status::Closed) {
            self.status = Status::Broken(error);
        }
    }

    /// Closes the inbox. Returns the deliveries that were not received.
    pub(super) fn close(&mut self) -> VecDeque<T> {
        self.status = Status::Closed;
        std::mem::take(&mut self.arrived)
    }

    /// Returns true if no more deliveries come in.
    pub(super) fn is_stopped(&self) -> bool {
        !matches!(self.status, Status::Running) || !self.open.contains(&true)
    }

    /// Returns the result of [`receive`](super::Inbox::receive) on an empty inbox; `None` if it must wait.
    fn result_when_empty(&self) -> Option<Result<Option<T>, TransportError>> {
        match &self.status {
            Status::Closed => Some(Ok(None)),
            Status::Failed(error) | Status::Broken(error) => Some(Err(error.clone())),
            Status::Running => (!self.open.contains(&true)).then_some(Ok(None)),
        }
    }
}

impl<T: Arrival> State<T> {
    pub(super) fn push(&mut self, arrived: impl IntoIterator<Item = T>) -> Added<T> {
        if let Status::Closed = self.status {
            return Added::Closed(arrived.into_iter().collect());
        }
        let was_empty = self.arrived.is_empty();
        self.arrived.extend(arrived);
        if was_empty { Added::First } else { Added::More }
    }

    /// Removes the next delivery that is not lost, and the lost ones before it. Returns the result of
    /// [`receive`](super::Inbox::receive), `None` if it must wait; and the lost ones, for the caller to drop without the lock.
    pub(super) fn receive(&mut self) -> (Option<Result<Option<T>, TransportError>>, Vec<T>) {
        let mut lost = Vec::new();
        while let Some(arrived) = self.arrived.pop_front() {
            if !arrived.is_lost() {
                return (Some(Ok(Some(arrived))), lost);
            }
            self.unreceived.extend(arrived.unreceived());
            lost.push(arrived);
        }
        (self.result_when_empty(), lost)
    }

    /// Returns the deliveries that were lost before they were received, since the last call; and the lost ones that it removed
    /// from the inbox, for the caller to drop without the lock.
    pub(super) fn take_unreceived(&mut self) -> (Vec<Delivery>, VecDeque<T>) {
        let (lost, rest) = self.arrived.drain(..).partition::<VecDeque<_>, _>(Arrival::is_lost);
        self.arrived = rest;
        self.unreceived.extend(lost.iter().filter_map(Arrival::unreceived));
        (std::mem::take(&mut self.unreceived), lost)
    }
}
