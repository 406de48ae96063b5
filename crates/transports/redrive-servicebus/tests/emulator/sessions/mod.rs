//! Tests of entities that require sessions: order, sharing, locks, and configuration.

mod faults;
mod order;
mod sharing;
mod shelves;
mod starting;
mod steps;
