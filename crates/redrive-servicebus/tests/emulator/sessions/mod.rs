//! Entities that require sessions: order, sharing, locks, and what people write.

mod faults;
mod order;
mod sharing;
mod shelves;
mod starting;
mod steps;
