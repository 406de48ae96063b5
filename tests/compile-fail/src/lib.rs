//! Only tests: see `tests/ui`.
