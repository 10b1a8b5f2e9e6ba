//! A kernel for tests.
