//! The clauses of the contract, one function each. The function's documentation is the text of the clause.

mod carrying;
mod closing;
mod counting;
mod dying;
mod entries;
mod interrupting;
mod losing;
mod operating;
mod pausing;
mod publishing;
mod receiving;
mod refusing;
mod removing;
mod rescheduling;
mod returning;
mod sharing;
mod shelving;
mod starting;

pub use carrying::*;
pub use closing::*;
pub use counting::*;
pub use dying::*;
pub use entries::*;
pub use interrupting::*;
pub use losing::*;
pub use operating::*;
pub use pausing::*;
pub use publishing::*;
pub use receiving::*;
pub use refusing::*;
pub use removing::*;
pub use rescheduling::*;
pub use returning::*;
pub use sharing::*;
pub use shelving::*;
pub use starting::*;
