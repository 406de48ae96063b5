//! What is in an inbox, and whether more will come. Pure.

use std::collections::VecDeque;

use redrive_core::{Delivery, TransportError};

use super::Arrival;

pub(super) struct State<T> {
    arrived: VecDeque<T>,
    /// Lost before they were received, since this was asked for the last time.
    unreceived: Vec<Delivery>,
    /// One for each source: more may come from it.
    open: Vec<bool>,
    end: End,
}

/// Why nothing more comes, whatever is wanted.
enum End {
    No,
    /// Until the limit is set again.
    Failed(TransportError),
    /// Never: a source panicked.
    Broken(TransportError),
    Closed,
}

impl<T> State<T> {
    pub(super) fn new() -> Self {
        Self { arrived: VecDeque::new(), unreceived: Vec::new(), open: Vec::new(), end: End::No }
    }

    /// One more source, and its number. Nothing comes from it yet.
    pub(super) fn add_source(&mut self) -> usize {
        self.open.push(false);
        self.open.len() - 1
    }

    /// More may come from every source. Answers whether one had failed.
    pub(super) fn open(&mut self) -> Result<bool, TransportError> {
        if let End::Broken(error) = &self.end {
            return Err(error.clone());
        }
        let failed = matches!(self.end, End::Failed(_));
        if failed {
            self.end = End::No;
        }
        self.open.fill(true);
        Ok(failed)
    }

    /// Nothing more comes from this source, until it is opened again.
    pub(super) fn stopped(&mut self, source: usize) {
        if let Some(open) = self.open.get_mut(source) {
            *open = false;
        }
    }

    pub(super) fn fail(&mut self, error: TransportError) {
        if let End::No | End::Failed(_) = self.end {
            self.end = End::Failed(error);
        }
    }

    pub(super) fn break_off(&mut self, error: TransportError) {
        if !matches!(self.end, End::Closed) {
            self.end = End::Broken(error);
        }
    }

    /// What was not received.
    pub(super) fn close(&mut self) -> VecDeque<T> {
        self.end = End::Closed;
        std::mem::take(&mut self.arrived)
    }

    /// Whether nothing more comes in.
    pub(super) fn is_stopped(&self) -> bool {
        !matches!(self.end, End::No) || !self.open.contains(&true)
    }

    /// With nothing there: what to answer instead of waiting.
    pub(super) fn why_nothing_comes(&self) -> Option<Result<usize, TransportError>> {
        if !self.arrived.is_empty() {
            return None;
        }
        match &self.end {
            End::Closed => Some(Ok(0)),
            End::Failed(error) | End::Broken(error) => Some(Err(error.clone())),
            End::No => (!self.open.contains(&true)).then_some(Ok(0)),
        }
    }
}

impl<T: Arrival> State<T> {
    /// Answers whether the inbox was empty.
    pub(super) fn push(&mut self, arrived: impl IntoIterator<Item = T>) -> bool {
        let was_empty = self.arrived.is_empty();
        self.arrived.extend(arrived);
        was_empty
    }

    /// The next that is not lost, and the lost ones before it.
    pub(super) fn next(&mut self) -> (Option<T>, Vec<T>) {
        let mut lost = Vec::new();
        while let Some(arrived) = self.arrived.pop_front() {
            if !arrived.is_lost() {
                return (Some(arrived), lost);
            }
            self.unreceived.extend(arrived.unreceived());
            lost.push(arrived);
        }
        (None, lost)
    }

    /// What was lost before it was received, since this was asked for the last time; and the lost ones that were still here.
    pub(super) fn take_unreceived(&mut self) -> (Vec<Delivery>, VecDeque<T>) {
        let (lost, rest) = self.arrived.drain(..).partition::<VecDeque<_>, _>(Arrival::is_lost);
        self.arrived = rest;
        self.unreceived.extend(lost.iter().filter_map(Arrival::unreceived));
        (std::mem::take(&mut self.unreceived), lost)
    }
}
