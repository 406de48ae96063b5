//! Consumers on RabbitMQ.

mod alarm;
mod bad_input;
mod expiration;
mod full;
mod giant_headers;
mod held_too_long;
mod hostile_messages;
mod innocent;
mod killer;
mod network;
mod redrives;
mod routing_matrix;
mod shared_connections;
mod shelf_metrics;
mod twins;
mod unreadable;
