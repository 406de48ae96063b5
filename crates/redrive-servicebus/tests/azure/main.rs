//! What only Azure can answer. Runs there when `REDRIVE_TEST_AZURE_CONNECTION_STRING` names a namespace, by a key with the right
//! Manage: each test makes queues of its own, and deletes them. The questions are asked of the emulator all the same.

mod contract;
mod namespace;
mod questions;
mod raw;
mod sessions;
