//! The Harness wire, client side.
