//! Every crash point alone, and pairs of them, with real processes: a run that passes them all is killed at one, goes on,
//! and in the end the scripted model's record shows each notice as it is claimed.
//!
//! `JR2_CRASH_PAIRS=N` tries that many pairs (default 4); `all` tries every one.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod life;
#[path = "../../../../orchestrator/tests/kill_it/server.rs"]
mod server;

use jr2_shared::crash::Point;
use life::Life;

/// Lives at once: they mostly wait.
const AT_ONCE: usize = 3;
/// Pairs in an ordinary run.
const PAIRS: usize = 4;

/// Lives every one of `deaths`; the panic names the deaths of the life that broke.
async fn live_all(deaths: Vec<Vec<Point>>) {
    let mut todo = deaths.into_iter();
    let mut living = tokio::task::JoinSet::new();
    loop {
        while living.len() < AT_ONCE
            && let Some(deaths) = todo.next()
        {
            living.spawn(async move {
                let names: Vec<&str> = deaths.iter().map(|point| point.name()).collect();
                println!("dies at {}", names.join(" and "));
                Life::live(&deaths).await.check();
            });
        }
        match living.join_next().await {
            Some(lived) => lived.unwrap(),
            None => return,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c_01_whatever_point_it_dies_at_each_notice_is_said_once() {
    life::prepare();
    let alone = Point::ALL.iter().map(|point| vec![*point]).collect();
    live_all(alone).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c_01_pairs_of_points() {
    life::prepare();
    let all: Vec<Vec<Point>> = Point::ALL
        .iter()
        .enumerate()
        .flat_map(|(at, first)| Point::ALL[at + 1..].iter().map(|second| vec![*first, *second]))
        .collect();
    let wanted = std::env::var("JR2_CRASH_PAIRS").unwrap_or_default();
    let most = if wanted == "all" { all.len() } else { wanted.parse().unwrap_or(PAIRS) };
    // Spread over all of them, the same ones on every run.
    let step = (all.len() / most.max(1)).max(1);
    live_all(all.into_iter().skip(step / 2).step_by(step).take(most).collect()).await;
}

#[test]
fn the_page_names_every_point() {
    let page = include_str!("../../../../docs/proof.md");
    for point in Point::ALL {
        let row = format!("| `{}` | {:?} | {} |", point.name(), point.process(), point.between());
        assert!(page.contains(&row), "docs/proof.md lacks: {row}");
    }
}
