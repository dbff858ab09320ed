//! What is said in the log about reads of memory-kill lists (spec N-37, N-44): pure, one state a Harness.

use jr2_shared::memory_kills::ReadFault;

/// What the log knows of one Harness's list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KillReads {
    failing: bool,
    faults: Vec<ReadFault>,
}

/// One line to log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KillReadLine {
    /// Reads of this list begin to fail.
    Fails,
    /// The list holds something that was left out.
    LeftOut(ReadFault),
}

impl KillReads {
    /// A read failed: said once, and again only after a read that worked.
    pub fn failed(&mut self) -> Option<KillReadLine> {
        let begins = !self.failing;
        self.failing = true;
        begins.then_some(KillReadLine::Fails)
    }

    /// A read worked: what it left out is said once for as long as it stands in the list.
    pub fn worked(&mut self, faults: Vec<ReadFault>) -> Vec<KillReadLine> {
        self.failing = false;
        let fresh: Vec<ReadFault> = faults.iter().filter(|fault| !self.faults.contains(fault)).copied().collect();
        self.faults = faults;
        let mut lines: Vec<KillReadLine> = Vec::new();
        for fault in fresh {
            let line = KillReadLine::LeftOut(fault);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n_44_a_failure_is_said_when_it_starts_and_after_a_read_that_worked() {
        let mut reads = KillReads::default();
        let said: Vec<bool> = [false, false, true, false]
            .map(|works| if works { !reads.worked(Vec::new()).is_empty() } else { reads.failed().is_some() })
            .to_vec();
        assert_eq!(said, [true, false, false, true]);
    }

    #[test]
    fn n_37_what_was_left_out_is_said_once() {
        let mut reads = KillReads::default();
        assert_eq!(
            reads.worked(vec![ReadFault::NoList, ReadFault::NoList]),
            [KillReadLine::LeftOut(ReadFault::NoList)]
        );
        assert_eq!(reads.worked(vec![ReadFault::NoList]), []);
        assert_eq!(reads.worked(Vec::new()), []);
        assert_eq!(reads.worked(vec![ReadFault::NoList]), [KillReadLine::LeftOut(ReadFault::NoList)]);
    }
}
