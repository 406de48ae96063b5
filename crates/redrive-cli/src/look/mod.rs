//! Commands that change nothing.
//!
//! | module | prints |
//! |---|---|
//! | [`shelves`] | how many messages are on the shelves |
//! | [`groups`] | the failures, grouped |
//! | [`browse`] | messages |
//! | [`show`] | one message |
//! | [`export`] | messages as lines of JSON |
//! | [`check`] | a line for Nagios |
//! | [`select`] | which entries a command means |

pub(crate) mod browse;
pub(crate) mod check;
pub(crate) mod export;
pub(crate) mod groups;
pub(crate) mod select;
pub(crate) mod shelves;
pub(crate) mod show;
