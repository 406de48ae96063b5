//! The clauses of the contract, one function each. What a function's documentation says is the clause.

mod removing;
mod rescheduling;

pub use removing::*;
pub use rescheduling::*;
