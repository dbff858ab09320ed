//! Black-box tests: the real binary over real sockets, a fake Orchestrator behind a Custodian's socket, a scripted model.

mod aborts;
mod crashes;
mod picks;
mod submissions;
mod wire;
mod world;
