//! From the state file back into the broker.
