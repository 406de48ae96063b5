//! Clauses of RabbitMQ, each on the value, with virtual time.
