//! Connections that are made anew when they are lost, and what is asked over them.

mod asking;
mod backoff;
mod link;
mod live;

pub(crate) use asking::{answered, answered_on, unless_blocked, within_unblocked};
pub(crate) use backoff::Backoff;
pub(crate) use link::{Link, Role};
pub(crate) use live::Live;
