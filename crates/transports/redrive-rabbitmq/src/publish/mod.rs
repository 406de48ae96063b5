//! Publishes messages of the service, and redrive's copies.
//!
//! | module | does |
//! |---|---|
//! | [`pool`] | publishes messages in batches |
//! | [`refusal`] | decides what a refusal says about other messages |
//! | [`frames`] | writes a batch as frames |

mod frames;
mod pool;
mod refusal;

pub(crate) use pool::{Caller, PublishPool};
pub(crate) use refusal::RefusedInTurn;
