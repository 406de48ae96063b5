//! A consumer of Service Bus on the emulator, its process killed between two steps.

mod cut;
mod place;
mod process;
mod setup;

pub use cut::{Cut, cuts};
pub use place::{Left, at_the_neighbour, look};
pub use process::EmulatorProcess;
pub use setup::{Kind, PARKING_QUEUE, QUEUE, Setup};
