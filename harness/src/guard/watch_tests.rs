use super::*;
use crate::guard::meter::Kind;
use crate::guard::{Calls, Done};
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;

/// A meter that says what a test told it.
#[derive(Clone, Default)]
struct Table(Arc<Mutex<Said>>);

#[derive(Default)]
struct Said {
    used: u64,
    /// What the kernel can take back, counted by the bound alone.
    cache: u64,
    kernel_kills: u64,
    lists: Vec<Vec<i32>>,
    killed: Vec<Vec<i32>>,
    /// Runs at the next list.
    at_list: Option<Box<dyn FnOnce() + Send>>,
}

impl Meter for Table {
    fn kind(&self) -> Kind {
        Kind::V1
    }

    fn at_most(&mut self) -> io::Result<u64> {
        let said = self.0.lock().unwrap();
        Ok(said.used + said.cache)
    }

    fn used(&mut self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().used)
    }

    fn kernel_kills(&mut self) -> Option<u64> {
        Some(self.0.lock().unwrap().kernel_kills)
    }

    fn processes(&mut self) -> Vec<i32> {
        let mut said = self.0.lock().unwrap();
        let then = said.at_list.take();
        let listed = if said.lists.is_empty() { Vec::new() } else { said.lists.remove(0) };
        drop(said);
        if let Some(then) = then {
            then();
        }
        listed
    }

    fn kill(&mut self, pids: &[i32]) {
        self.0.lock().unwrap().killed.push(pids.to_vec());
    }
}

struct Bench {
    table: Table,
    watch: Watch,
    reports: Reports,
    calls: Arc<Calls>,
    done: mpsc::Receiver<Done>,
    now: Duration,
}

impl Bench {
    fn new() -> Self {
        Self::of(Gauge::new(1_000_000, 1))
    }

    fn of(gauge: Gauge) -> Self {
        let (table, calls) = (Table::default(), Arc::<Calls>::default());
        let (queue, done) = mpsc::channel(8);
        let reports = Reports { calls: Arc::clone(&calls), queue };
        let chosen = Chosen { meter: Box::new(table.clone()), gauge, door: None, shm_private: false };
        let watch = Watch::new(chosen, &reports);
        Self { table, watch, reports, calls, done, now: Duration::ZERO }
    }

    fn look(&mut self, used: u64, lists: &[&[i32]]) {
        let mut said = self.table.0.lock().unwrap();
        said.used = used;
        said.lists = lists.iter().map(|list| list.to_vec()).collect();
        drop(said);
        self.watch.look(&self.reports, self.now, true);
        self.now += Duration::from_millis(200);
    }

    fn killed(&self) -> Vec<Vec<i32>> {
        std::mem::take(&mut self.table.0.lock().unwrap().killed)
    }

    fn is_done(&mut self) -> bool {
        self.done.try_recv().is_ok()
    }
}

#[tokio::test]
async fn mt_2_what_was_forked_between_the_list_and_the_kill_dies_too() {
    let mut bench = Bench::new();
    bench.look(950_000, &[&[70_000_001], &[70_000_001, 70_000_002], &[70_000_002]]);
    assert_eq!(bench.killed(), [vec![70_000_001], vec![70_000_002]]);
    tokio::task::spawn_blocking(move || {
        bench.look(950_000, &[&[70_000_003], &[]]);
        assert_eq!(bench.killed(), [vec![70_000_003]], "the second pass");
        assert!(bench.is_done() && !bench.is_done());
    })
    .await
    .unwrap();
}

#[test]
fn mt_4_page_cache_never_fires_at_any_size_or_fill() {
    for limit in [256_u64 << 20, 1 << 30, 2 << 30, 4 << 30, 16 << 30, 256 << 30] {
        for cpus in [1, 2, 64] {
            let mut bench = Bench::of(Gauge::new(limit, cpus));
            for permille in 880..=1_000 {
                bench.table.0.lock().unwrap().cache = limit / 1_000 * permille - (10 << 20);
                bench.look(10 << 20, &[&[70_000_001]]);
            }
            assert_eq!(bench.killed(), Vec::<Vec<i32>>::new(), "{limit} {cpus}");
        }
    }
}

#[test]
fn mt_3_only_the_first_process_and_the_harness_no_kill_and_no_report() {
    let mut bench = Bench::new();
    bench.look(990_000, &[&[]]);
    bench.look(990_000, &[&[]]);
    assert_eq!((bench.killed(), bench.is_done()), (Vec::<Vec<i32>>::new(), false));
}

#[test]
fn mt_5_a_call_that_began_while_the_guard_shot_has_the_same_verdict_and_a_later_one_none() {
    let mut bench = Bench::new();
    let mut first = bench.calls.begin();
    let meanwhile = Arc::new(Mutex::new(None));
    let (calls, slot) = (Arc::clone(&bench.calls), Arc::clone(&meanwhile));
    // It begins after the first list, and its process is in the second one.
    let begin = move || *slot.lock().unwrap() = Some(calls.begin());
    bench.table.0.lock().unwrap().at_list = Some(Box::new(begin));
    bench.look(950_000, &[&[70_000_001], &[70_000_002], &[]]);
    let mut second = meanwhile.lock().unwrap().take().unwrap();
    let mut third = bench.calls.begin();
    bench.look(10, &[]);
    assert!(bench.is_done());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let kill = first.last_look().await.unwrap();
        assert_eq!((second.last_look().await, third.last_look().await), (Some(kill), None));
    });
}

#[test]
fn a12_a_kernel_kill_between_two_looks_reaches_the_call_that_asks() {
    let mut bench = Bench::new();
    bench.look(10, &[]);
    let mut call = bench.calls.begin();
    let (calls, table) = (Arc::clone(&bench.calls), bench.table.clone());
    std::thread::spawn(move || bench.watch.watch(bench.reports));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        // The guard is up when it answers; then the kernel kills, and its period is far too long to see it by itself.
        while calls.lookout().question() == 0 {
            assert_eq!(call.last_look().await, None);
        }
        table.0.lock().unwrap().kernel_kills = 1;
        assert!(call.last_look().await.is_some());
    });
}
