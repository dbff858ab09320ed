//! The guard's thread: reads the meter, does what `step` decides, waits as long as the pace allows.

use super::choice::Chosen;
use super::lookout::Lookout;
use super::meter::{Kind, Meter};
use super::pace::{Gauge, NEAR};
use super::step::{Effect, Input, Reading, State, next_look, step};
use super::{Kill, MemoryGuard, Reports, shm};
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// One pass kills again what was forked while it killed, for at most this long.
const PASS_MAX: Duration = Duration::from_millis(200);

/// The process tree's page tables are walked for at most about a tenth of the time: no kernel's limit waits behind it.
const TREE_PAUSE: u32 = 10;
/// The longest pause between two looks at a large tree.
const TREE_PAUSE_MAX: Duration = Duration::from_millis(250);
/// The kernel's kills are read when somebody asks, and else at every so many looks.
const KERNEL_EVERY: u32 = 4;

/// The guard of a Sandbox.
pub struct Watch {
    meter: Box<dyn Meter>,
    gauge: Gauge,
    shm_private: bool,
    state: State,
    /// What was listed last.
    listed: Vec<i32>,
    /// What was shot at and may still be listed.
    struck: HashSet<i32>,
    /// The newest kill.
    kill: Option<Kill>,
    unreadable: bool,
    /// Looks since the kernel's kills were read, and what they were.
    since_kernel: u32,
    kernel_kills: Option<u64>,
}

impl Watch {
    /// A guard over what was chosen.
    pub fn new(chosen: Chosen, reports: &Reports) -> Self {
        if let Some(door) = chosen.door {
            reports.calls.open_door(door);
        }
        Self {
            meter: chosen.meter,
            gauge: chosen.gauge,
            shm_private: chosen.shm_private,
            state: State::default(),
            listed: Vec::new(),
            struck: HashSet::new(),
            kill: None,
            unreadable: false,
            since_kernel: KERNEL_EVERY,
            kernel_kills: None,
        }
    }

    /// One look: a reading and all that follows from it. Answers how long the next one may wait.
    fn look(&mut self, reports: &Reports, now: Duration, asked: bool) -> Duration {
        let begun = Instant::now();
        let reading = match self.read(asked) {
            Ok(reading) => reading,
            Err(error) => {
                if !self.unreadable {
                    tracing::error!(%error, "the memory guard cannot read its meter");
                }
                self.unreadable = true;
                return NEAR;
            }
        };
        self.unreadable = false;
        let mut input = Some(Input::Read(reading));
        while let Some(given) = input.take() {
            let (state, effects) = step(&self.gauge, self.state, given, now);
            self.state = state;
            for effect in effects {
                match effect {
                    Effect::List => input = Some(Input::Found(self.list())),
                    Effect::Fire(peak) => self.kill = Some(reports.fire(peak, self.gauge.limit)),
                    Effect::Kill => self.kill_all(reports),
                    Effect::Clear => self.clear(),
                    Effect::Done => self.done(reports),
                }
            }
        }
        let period = next_look(&self.gauge, &self.state);
        match self.meter.kind() {
            Kind::Tree => period.max((begun.elapsed() * TREE_PAUSE).min(TREE_PAUSE_MAX)),
            _ => period,
        }
    }

    /// The cheap bound far from the limit, the exact figure where it decides.
    fn read(&mut self, asked: bool) -> io::Result<Reading> {
        let bound = self.meter.at_most()?;
        // A bound counts what the kernel can take back: it never fires by itself, whatever period it asks for.
        let exact = self.gauge.period(bound) < NEAR || self.gauge.fires(bound);
        let used = if exact { self.meter.used()? } else { bound };
        self.since_kernel += 1;
        if asked || self.since_kernel >= KERNEL_EVERY {
            self.kernel_kills = self.meter.kernel_kills();
            self.since_kernel = 0;
        }
        Ok(Reading { used, kernel_kills: self.kernel_kills })
    }

    fn list(&mut self) -> usize {
        self.listed = self.meter.processes();
        let listed = &self.listed;
        self.struck.retain(|pid| listed.contains(pid));
        self.listed.iter().filter(|pid| !self.struck.contains(pid)).count()
    }

    /// Kills what was listed; then lists anew, for what was forked meanwhile. A call that began after a list has no process
    /// in it, and before each shot every running call has the verdict: a call is told exactly when it was shot.
    fn kill_all(&mut self, reports: &Reports) {
        let begun = Instant::now();
        loop {
            if let Some(kill) = &self.kill {
                reports.again(kill);
            }
            self.meter.kill(&self.listed);
            self.struck.extend(self.listed.drain(..));
            self.listed = self.meter.processes();
            self.listed.retain(|pid| !self.struck.contains(pid));
            if self.listed.is_empty() || begun.elapsed() > PASS_MAX {
                return;
            }
        }
    }

    fn clear(&self) {
        if self.shm_private {
            shm::clear(Path::new(shm::FOLDER));
        }
    }

    fn done(&self, reports: &Reports) {
        if let Some(kill) = &self.kill {
            // Nobody here waits until it is kept.
            drop(reports.done(kill.clone()));
        }
    }
}

impl MemoryGuard for Watch {
    fn watch(mut self, reports: Reports) {
        be_quick();
        let calls = std::sync::Arc::clone(&reports.calls);
        let lookout: &Lookout = calls.lookout();
        let bell = lookout.man().inspect_err(|error| tracing::warn!(%error, "no call can ask for a look")).ok();
        let begun = Instant::now();
        let (mut woken, mut answered) = (true, 0);
        loop {
            let question = lookout.question();
            // A question may be there before its bell is heard.
            let period = self.look(&reports, begun.elapsed(), woken || question != answered);
            lookout.answer(question);
            answered = question;
            woken = wait(bell.as_ref(), self.meter.as_ref(), period);
        }
    }
}

/// Asks for a place before the Agent's processes in the queue for a CPU; without the right to, the guard is only as quick
/// as they leave it.
fn be_quick() {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: system calls on values and on a buffer of this frame; they concern this thread alone.
    #[allow(unsafe_code)]
    unsafe {
        let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
        if libc::sched_setscheduler(0, policy, &raw const parameters) != 0 {
            libc::setpriority(libc::PRIO_PROCESS, 0, -10);
        }
    }
}

/// Waits for the period, a kernel kill, or a call that asks; answers whether it was one of the latter two.
fn wait(bell: Option<&OwnedFd>, meter: &dyn Meter, period: Duration) -> bool {
    let signal = meter.kernel_signal().map_or(-1, |file| file.as_raw_fd());
    let bell_file = bell.map_or(-1, |file| file.as_raw_fd());
    let mut files = [
        libc::pollfd { fd: bell_file, events: libc::POLLIN, revents: 0 },
        libc::pollfd { fd: signal, events: libc::POLLPRI, revents: 0 },
    ];
    // The period is 250 ms at most.
    let time = libc::timespec { tv_sec: 0, tv_nsec: libc::c_long::from(period.subsec_nanos()) };
    // SAFETY: a system call on two buffers of this frame; a negative descriptor is left out by it.
    #[allow(unsafe_code)]
    let rang = unsafe { libc::ppoll(files.as_mut_ptr(), 2, &raw const time, std::ptr::null()) };
    if let Some(bell) = bell
        && rang > 0
        && files[0].revents != 0
    {
        let mut asked = [0; 256];
        // It is never waited for: one read takes all that asked so far, or the next one does.
        let _ = rustix::io::read(bell, &mut asked);
    }
    rang > 0
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
