//! Runs: the pure core of one run, and the host that keeps every run through any crash.
