//! Publishes messages of the service, and redrive's copies.
//!
//! | module | does |
//! |---|---|
//! | [`publisher`] | the publishers of a transport, with their delays |
//! | [`store`] | stores a message in a queue, which it declares if it is missing |
//! | [`waiting`] | stores a message in a delay queue |
//! | [`pool`] | publishes messages in batches |
//! | [`refusal`] | decides what a refusal says about other messages |
//! | [`batch`] | publishes one batch, and reads the answers |
//! | [`frames`] | writes a batch as frames |

mod batch;
mod frames;
mod pool;
mod publisher;
mod refusal;
mod store;
mod waiting;

pub(crate) use pool::{Caller, PublishPool};
pub(crate) use publisher::RoutePublisher;
pub(crate) use refusal::RefusedInTurn;
pub(crate) use store::CopyStore;
pub(crate) use waiting::Waiting;
