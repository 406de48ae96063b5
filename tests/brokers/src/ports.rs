//! Free TCP ports, and names that no other test picks.

use anyhow::{Result, bail};
use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

/// Range of ports: below Linux's ephemeral range (32768 up), so that no outgoing connection takes a node's port while the node is
/// down.
const RANGE: std::ops::Range<u16> = 20_000..32_000;

/// Ports that this process has assigned. The port of a node that is down is free, and must still be when the node comes back.
static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// Returns a port of 127.0.0.1 that is free now, and assigned to no other caller in this process. Another process may take it before
/// it is used: callers retry.
///
/// # Errors
/// When none of a hundred is free.
pub fn free_port() -> Result<u16> {
    let span = u64::from(RANGE.end - RANGE.start);
    for _ in 0..100 {
        let port = RANGE.start + u16::try_from(random() % span)?;
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        if TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok() && taken.insert(port) {
            return Ok(port);
        }
    }
    bail!("no free TCP port among 100 tried in {RANGE:?}; is something holding them all?")
}

/// A random number: the standard library seeds its hashers from the operating system.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
