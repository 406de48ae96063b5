//! Publishing: messages of the service, and redrive's copies.
//!
//! | module | is |
//! |---|---|
//! | [`publisher`] | the publishers of a transport, with their delays |
//! | [`store`] | stores a message in a queue, which is declared if it is missing |
//! | [`pool`] | publishes messages in batches |
//! | [`batch`] | one batch, and what became of it |

mod batch;
mod pool;
mod publisher;
mod store;

pub(crate) use pool::{AlarmTime, PublishPool};
pub(crate) use publisher::RoutePublisher;
pub(crate) use store::CopyStore;
