//! An Azure Service Bus for tests and laptops: it speaks AMQP 1.0 on plain TCP, and Microsoft's own SDKs accept it.

#![forbid(unsafe_code)]

pub mod amqp;
pub mod broker;
