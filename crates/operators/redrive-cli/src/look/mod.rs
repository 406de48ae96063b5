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
//! | [`exporter`] | metrics for Prometheus |
//! | [`plain`] | headers and properties as plain JSON |
//! | [`jq`] | selects entries by a program of jq |
//! | [`select`] | which entries a command means |

pub(crate) mod browse;
pub(crate) mod check;
pub(crate) mod export;
pub(crate) mod exporter;
pub(crate) mod groups;
pub(crate) mod jq;
pub(crate) mod plain;
pub(crate) mod select;
pub(crate) mod shelves;
pub(crate) mod show;
