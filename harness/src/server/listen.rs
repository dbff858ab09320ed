//! The listener and the life of the process behind it: start, serve, drain (spec 6.5).

use super::{App, routes};
use crate::config::Listen;
use axum::serve::ListenerExt;
use std::future::IntoFuture;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};

/// How long parked polls get to flush once everything has settled (spec H-17).
const FLUSH: Duration = Duration::from_secs(1);

/// Serves until SIGTERM or SIGINT, then drains. A second signal ends the process at once.
pub async fn serve(app: Arc<App>) -> io::Result<()> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let router = routes::router(Arc::clone(&app));
    let mut closing = app.closing.subscribe();
    let closed = async move {
        let _ = closing.wait_for(|closing| *closing).await;
    };
    let listen = app.settings.listen.clone();
    let server = match &listen {
        Listen::Tcp(address) => {
            // A small answer must not wait for the acknowledgement of the one before.
            let listener = TcpListener::bind(address).await?.tap_io(|stream| {
                let _ = stream.set_nodelay(true);
            });
            tokio::spawn(axum::serve(listener, router).with_graceful_shutdown(closed).into_future())
        }
        Listen::Unix(path) => {
            let listener = bind_unix(path).await?;
            tokio::spawn(axum::serve(listener, router).with_graceful_shutdown(closed).into_future())
        }
    };
    tracing::info!("harness: listening on {listen}");
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    tracing::info!("harness: draining");
    let drain = async {
        app.hall.drain().await;
        app.closing.send_replace(true);
        let _ = tokio::time::timeout(FLUSH, server).await;
    };
    tokio::select! {
        () = drain => {}
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    if let Listen::Unix(path) = &listen {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// Binds a Unix socket, taking over the file of a process that is gone; one that answers is left alone.
async fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if UnixStream::connect(path).await.is_ok() {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        other => other,
    }
}
