//! Tests that only Azure can answer. They run there if `REDRIVE_TEST_AZURE_CONNECTION_STRING` names a namespace, with a key that
//! has the right Manage: each test creates its own queues, and deletes them. Otherwise the tests run on the emulator.

mod contract;
mod namespace;
mod questions;
mod raw;
mod sessions;
