//! Signals that end a command.

use super::exit::{Exit, Failure};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Waits for SIGINT and SIGTERM.
pub struct Interrupts {
    int: Signal,
    term: Signal,
}

impl Interrupts {
    /// Begins to listen; from here on the signals do not end the process by themselves.
    pub fn listen() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|e| Failure::failed(format!("signals cannot be heard: {e}")));
        Ok(Self { int: listen(SignalKind::interrupt())?, term: listen(SignalKind::terminate())? })
    }

    /// The next one.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.int.recv() => {}
            _ = self.term.recv() => {}
        }
    }

    /// Ends the process at the next one: whoever asks twice does not want to wait.
    pub fn then_at_once(mut self) {
        tokio::spawn(async move {
            self.next().await;
            std::process::exit(i32::from(Exit::Interrupted as u8));
        });
    }
}
