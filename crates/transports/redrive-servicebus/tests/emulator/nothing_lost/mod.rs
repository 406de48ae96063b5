//! Regression tests: each case once lost, dead-lettered or handled a message wrongly.

mod bench;
mod copies;
mod expiration;
mod foreign;
mod limits;
mod redrive;
mod reports;
mod set_aside;
