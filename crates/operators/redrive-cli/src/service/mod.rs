//! Commands about the options of a service, before it runs.
//!
//! | module | does |
//! |---|---|
//! | [`options`] | reads the options from a file |
//! | [`explain`] | says what happens to a failing message; asks the broker whether it fits |
//! | [`topology`] | prints what a service needs on RabbitMQ |

pub(crate) mod explain;
mod options;
pub(crate) mod topology;
