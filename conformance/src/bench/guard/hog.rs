//! Programs that take memory, each in one way that Agents' commands do.
//!
//! A hog is this same program started again with [`VARIABLE`] set, so that it runs wherever the program does.

use super::MIB;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// Says which hog a started program is.
pub const VARIABLE: &str = "JR2_HOG";
/// Where the hogs that need a folder work: below the command's directory.
const FILE: &str = "hog-file";
/// Processes of [`Hog::Many`].
const MANY: u64 = 60;
/// How long a hog that got all it wanted keeps it: far past any guard's period.
const KEEP: Duration = Duration::from_secs(20);

/// One way to take memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hog {
    /// MiB after MiB, at most this many a second; 0 = as fast as the machine allows.
    Ramp(u64),
    /// One allocation, filled by one `memset`.
    Memset,
    /// Four processes that fill at once.
    Parallel,
    /// Many processes, none of them large.
    Many,
    /// A file in `/dev/shm`.
    Shm,
    /// A file on disk, written and read: page cache, which is no use.
    Cache,
    /// Shells that start shells, each with a text of a MiB.
    Bomb,
    /// Buffers of sockets: kernel memory, which the kernel counts and the guard does not.
    Sockets,
    /// Takes it and keeps it, below the limit.
    Hold,
}

impl Hog {
    /// Every hog that must be shot, in the order of the table. The last one only the kernel can shoot.
    pub const SHOT: [Self; 10] = [
        Self::Ramp(100),
        Self::Ramp(400),
        Self::Ramp(1600),
        Self::Ramp(0),
        Self::Memset,
        Self::Parallel,
        Self::Many,
        Self::Shm,
        Self::Bomb,
        Self::Sockets,
    ];

    /// Its name, which [`Hog::parse`] reads.
    pub fn name(self) -> String {
        match self {
            Self::Ramp(rate) => format!("ramp-{rate}"),
            Self::Memset => "memset".to_owned(),
            Self::Parallel => "parallel".to_owned(),
            Self::Many => "many".to_owned(),
            Self::Shm => "shm".to_owned(),
            Self::Cache => "cache".to_owned(),
            Self::Bomb => "bomb".to_owned(),
            Self::Sockets => "sockets".to_owned(),
            Self::Hold => "hold".to_owned(),
        }
    }

    /// Reads a name.
    pub fn parse(name: &str) -> Option<Self> {
        let plain =
            [Self::Memset, Self::Parallel, Self::Many, Self::Shm, Self::Cache, Self::Bomb, Self::Sockets, Self::Hold];
        let ramp = || name.strip_prefix("ramp-")?.parse().ok().map(Self::Ramp);
        plain.into_iter().find(|hog| hog.name() == name).or_else(ramp)
    }

    /// The shell command that takes `mib` MiB by `program`, this one with its arguments.
    pub fn command(self, program: &str, mib: u64) -> String {
        match self {
            Self::Bomb => "f() { x=$(head -c 1000000 /dev/zero | tr '\\0' x); f & f & wait; }; f".to_owned(),
            Self::Sockets => format!("ulimit -n 4096; {VARIABLE}='{} {mib}' {program}", self.name()),
            _ => format!("{VARIABLE}='{} {mib}' {program}", self.name()),
        }
    }
}

/// Is the hog that the environment asks for; answers whether it was one.
pub fn run() -> bool {
    let Ok(text) = std::env::var(VARIABLE) else { return false };
    let Some((hog, mib)) = text.split_once(' ').and_then(|(name, mib)| Some((Hog::parse(name)?, mib.parse().ok()?)))
    else {
        return false;
    };
    let done = match hog {
        Hog::Ramp(rate) => {
            keep(ramp(rate, mib));
            Ok(())
        }
        Hog::Hold => {
            keep(ramp(0, mib));
            Ok(())
        }
        Hog::Memset => {
            keep(vec![1_u8; (mib * MIB) as usize]);
            Ok(())
        }
        Hog::Sockets => sockets(mib).map(keep),
        Hog::Parallel => children(4, mib / 4),
        Hog::Many => children(MANY, mib.div_ceil(MANY)),
        Hog::Shm => file(PathBuf::from("/dev/shm").join(FILE), mib).map(keep),
        Hog::Cache => file(PathBuf::from(FILE), mib).and_then(|()| std::fs::remove_file(FILE)),
        Hog::Bomb => Ok(()),
    };
    done.is_ok()
}

/// Keeps what was taken.
fn keep<T>(held: T) {
    std::thread::sleep(KEEP);
    drop(held);
}

fn ramp(rate: u64, mib: u64) -> Vec<Vec<u8>> {
    let begun = Instant::now();
    let mut held = Vec::new();
    for taken in 0..mib {
        held.push(vec![1_u8; MIB as usize]);
        if rate > 0 {
            let due = Duration::from_secs_f64(taken as f64 / rate as f64);
            std::thread::sleep(due.saturating_sub(begun.elapsed()));
        }
    }
    held
}

/// Pairs of sockets, each side full of what the other never reads.
fn sockets(mib: u64) -> std::io::Result<Vec<UnixStream>> {
    let (mut held, mut taken) = (Vec::new(), 0);
    let block = vec![1_u8; 32 << 10];
    while taken < mib * MIB {
        let (one, other) = UnixStream::pair()?;
        for mut side in [one, other] {
            side.set_nonblocking(true)?;
            while let Ok(sent) = side.write(&block) {
                taken += sent as u64;
            }
            held.push(side);
        }
    }
    Ok(held)
}

/// The same program again, several times at once.
fn children(count: u64, mib: u64) -> std::io::Result<()> {
    let program = std::env::current_exe()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut started = Vec::new();
    for _ in 0..count {
        let mut command = Command::new(&program);
        command.args(&arguments).env(VARIABLE, format!("{} {mib}", Hog::Ramp(0).name()));
        started.push(command.spawn()?);
    }
    for mut child in started {
        child.wait()?;
    }
    Ok(())
}

/// Writes a file and reads it twice.
fn file(path: PathBuf, mib: u64) -> std::io::Result<()> {
    let mut block = vec![1_u8; MIB as usize];
    let mut file = std::fs::File::create(&path)?;
    for _ in 0..mib {
        file.write_all(&block)?;
    }
    drop(file);
    for _ in 0..2 {
        let mut file = std::fs::File::open(&path)?;
        while file.read(&mut block)? > 0 {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for hog in Hog::SHOT.into_iter().chain([Hog::Cache, Hog::Hold]) {
            assert_eq!(Hog::parse(&hog.name()), Some(hog));
        }
        assert_eq!((Hog::parse("ramp-x"), Hog::parse("")), (None, None));
    }
}
