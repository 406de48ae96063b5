//! The contract of a transport, on every kind of entity.

mod common;

use common::{Kind, OnEmulator};
use redrive_testkit::conformance;

conformance!(queue, OnEmulator(Kind::Queue));
conformance!(without_transactions, OnEmulator(Kind::Plain));
conformance!(subscription, OnEmulator(Kind::Subscription));
conformance!(sessions, OnEmulator(Kind::Sessions));
