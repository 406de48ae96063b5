//! The broker, and consumers on it: what the contract suite does not ask.

mod broker;
mod publishing;
mod restart;
mod retry_plan;
