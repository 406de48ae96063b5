//! Only tests: see `tests/deploy`.
