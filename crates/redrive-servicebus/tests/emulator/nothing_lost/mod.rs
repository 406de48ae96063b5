//! What attacks from outside found, and must not be found again: each a message lost, shelved or handled wrongly.

mod bench;
mod copies;
mod expiration;
mod foreign;
mod limits;
mod redrive;
mod reports;
