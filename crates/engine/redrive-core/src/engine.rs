//! What redrive's own crates share, and no service or transport needs. No part of the public API.

pub use crate::delivery::by_consumer::{
    lasting_headers, lost_here, replaced_by, with_delivery_limit, with_proven_deliveries,
};
pub use crate::retry_plan::Simulation;
pub use crate::stages::Stages;
