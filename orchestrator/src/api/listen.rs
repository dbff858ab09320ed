//! Serves HTTP/1.1 with a limit on how long a request's head may take: a peer that sends half of one holds no connection for
//! ever. A connection that waits for its next request is closed after the same time.

use axum::body::Body;
use axum::extract::Request;
use axum::serve::Listener;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::pin::pin;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower_service::Service;

/// Longest time of a request's head.
pub const HEAD_LIMIT: Duration = Duration::from_secs(10);

/// What one connection is served by.
pub struct Seat {
    /// The routes.
    pub router: axum::Router,
    /// Longest time of a request's head.
    pub head_limit: Duration,
}

/// Serves until `until`; then requests under way end and nothing new is taken.
pub async fn serve<L: Listener>(mut listener: L, seat: impl Fn(&L::Io) -> Seat, until: impl Future<Output = ()>) {
    let mut until = pin!(until);
    let (stop, stopped) = watch::channel(false);
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            () = &mut until => break,
            (io, _) = listener.accept() => {
                let seat = seat(&io);
                open.spawn(connection(TokioIo::new(io), seat, stopped.clone()));
            }
            Some(_) = open.join_next() => {}
        }
    }
    drop(listener);
    stop.send_replace(true);
    while open.join_next().await.is_some() {}
}

async fn connection<I>(io: TokioIo<I>, seat: Seat, mut stopped: watch::Receiver<bool>)
where
    I: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let Seat { router, head_limit } = seat;
    let service =
        hyper::service::service_fn(move |request: Request<Incoming>| router.clone().call(request.map(Body::new)));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(head_limit);
    let mut served = pin!(builder.serve_connection(io, service));
    tokio::select! {
        // A peer that broke off or broke the protocol ends its own connection, and that is all.
        _ = served.as_mut() => return,
        _ = stopped.wait_for(|stop| *stop) => {}
    }
    served.as_mut().graceful_shutdown();
    let _ = served.await;
}
