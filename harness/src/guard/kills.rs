//! The kept list as plain data: what it holds, how it reads and writes itself (spec 9.5, 10.4).

use jr2_shared::memory_kills::{
    FILE_TAIL_MAX_BYTES, KILLS_MAX, Measure, MemoryKill, NAME_MAX, Reading, TOLD_MAX, Told, read_each,
};
use serde_json::Value;

/// Conversations told of a kill before the kill was kept; the verdict may return while the guard still kills.
const EARLY_MAX: usize = KILLS_MAX * TOLD_MAX;

/// The newest kills, oldest first: the Harness's own order of kills, which is total (spec M-16).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KillList {
    kills: Vec<MemoryKill>,
    /// Told entries whose kill has not come yet, with its id.
    early: Vec<(String, Told)>,
}

/// What a file's end gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// The list.
    pub list: KillList,
    /// Lines that are no JSON.
    pub bad_lines: usize,
    /// What the tolerant reader left out.
    pub reading: Reading,
}

impl KillList {
    /// The kept kills, oldest first.
    pub fn kills(&self) -> &[MemoryKill] {
        &self.kills
    }

    /// Adds a kill as the newest one; the oldest goes when there are too many.
    pub fn add(&mut self, mut kill: MemoryKill) {
        self.kills.retain(|known| known.id != kill.id);
        let (mine, others) = std::mem::take(&mut self.early).into_iter().partition(|(id, _)| *id == kill.id);
        self.early = others;
        for (_, told) in mine {
            tell(&mut kill, told);
        }
        self.kills.push(kill);
        let older = self.kills.len().saturating_sub(KILLS_MAX);
        self.kills.drain(..older);
    }

    /// Adds a conversation to a kill's `told`; answers whether that changed a kept kill. A name outside the bounds is left
    /// out, as a reader would leave it out (spec N-36); that conversation may hear of the kill once more.
    pub fn told(&mut self, id: &str, told: Told) -> bool {
        if [&told.agent, &told.instance_id].into_iter().any(|name| Measure::Bytes.of(name) > NAME_MAX) {
            return false;
        }
        match self.kills.iter_mut().find(|kill| kill.id == id) {
            Some(kill) => tell(kill, told),
            None => {
                if self.early.len() >= EARLY_MAX {
                    self.early.remove(0);
                }
                self.early.push((id.to_owned(), told));
                false
            }
        }
    }

    /// The file's text: one kill a line, so that a torn or edited line loses one kill.
    pub fn render(&self) -> String {
        let lines = self.kills.iter().filter_map(|kill| serde_json::to_string(kill).ok());
        lines.map(|line| line + "\n").collect()
    }
}

fn tell(kill: &mut MemoryKill, told: Told) -> bool {
    if kill.told.contains(&told) {
        return false;
    }
    kill.told.push(told);
    let older = kill.told.len().saturating_sub(TOLD_MAX);
    kill.told.drain(..older);
    true
}

/// Reads a file's bytes; only the last [`FILE_TAIL_MAX_BYTES`] of them count (spec N-39). Whatever an Agent wrote there, what
/// parses and is within the bounds is kept and the rest is counted (spec M-18). Never fails.
pub fn parse(bytes: &[u8]) -> Parsed {
    let cut = bytes.len().saturating_sub(FILE_TAIL_MAX_BYTES);
    let mut values: Vec<Value> = Vec::new();
    let mut bad_lines = 0;
    for line in bytes[cut..].split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii) {
        match serde_json::from_slice(line) {
            Ok(value) => values.push(value),
            Err(_) if line.is_empty() => {}
            Err(_) => bad_lines += 1,
        }
    }
    let reading = read_each(&values, Measure::Bytes);
    Parsed { list: KillList { kills: reading.kills.clone(), early: Vec::new() }, bad_lines, reading }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kill(n: usize) -> MemoryKill {
        let at = "2026-01-02T03:04:05Z".to_owned();
        MemoryKill { id: format!("k{n}"), at, peak: Some("1.9Gi".into()), limit: Some("2Gi".into()), told: vec![] }
    }

    fn told(n: usize) -> Told {
        Told { agent: "coder".into(), instance_id: format!("r/root/coder/{n}") }
    }

    fn list(n: usize) -> KillList {
        let mut list = KillList::default();
        (0..n).for_each(|n| list.add(kill(n)));
        list
    }

    fn ids(list: &KillList) -> Vec<&str> {
        list.kills().iter().map(|kill| kill.id.as_str()).collect()
    }

    #[test]
    fn mt_7_of_17_kills_the_oldest_is_gone_and_the_order_of_the_rest_unchanged() {
        let full = list(17);
        assert_eq!(ids(&full), (1..17).map(|n| format!("k{n}")).collect::<Vec<_>>());
    }

    #[test]
    fn m_10_told_is_by_the_kill_s_id_and_once_a_conversation() {
        let mut list = list(2);
        assert!(list.told("k1", told(1)) && !list.told("k1", told(1)));
        assert_eq!((list.kills()[0].told.len(), list.kills()[1].told.as_slice()), (0, &[told(1)][..]));
        let long = Told { agent: "a".into(), instance_id: "i".repeat(129) };
        assert!(!list.told("k1", long), "a reader would leave it out");
        for n in 0..40 {
            list.told("k0", told(n));
        }
        assert_eq!((list.kills()[0].told.len(), &list.kills()[0].told[31]), (32, &told(39)), "the newest stay");
    }

    #[test]
    fn m_13_a_verdict_that_returns_before_its_kill_is_kept_still_counts() {
        let mut list = list(1);
        assert!(!list.told("k7", told(1)));
        list.add(kill(8));
        list.add(kill(7));
        assert_eq!((list.kills()[1].told.len(), list.kills()[2].told.as_slice()), (0, &[told(1)][..]));
        assert!(list.early.is_empty());
        for n in 0..=EARLY_MAX {
            list.told("never", told(n));
        }
        assert_eq!(list.early.len(), EARLY_MAX);
    }

    #[test]
    fn m_18_whatever_stands_in_the_file_what_parses_is_kept() {
        let good = list(3).render();
        assert_eq!(
            parse(good.as_bytes()),
            Parsed { list: list(3), bad_lines: 0, reading: parse(good.as_bytes()).reading }
        );
        let torn = &good[..good.len() - 5];
        assert_eq!((ids(&parse(torn.as_bytes()).list), parse(torn.as_bytes()).bad_lines), (vec!["k0", "k1"], 1));
        let edited = format!("hello\n{{}}\n[[[\n\n{good}\0\0\0\n{{\"id\":\"x\",\"at\":\"then\"}}");
        let parsed = parse(edited.as_bytes());
        assert_eq!((ids(&parsed.list).len(), parsed.bad_lines, parsed.reading.faults.len()), (3, 3, 2));
        let behind = format!("{good}{}", "x".repeat(FILE_TAIL_MAX_BYTES));
        assert_eq!(parse(behind.as_bytes()).list, KillList::default(), "what stands before the tail is not read");
        let inside = format!("{good}{}", "x".repeat(FILE_TAIL_MAX_BYTES - good.len()));
        assert_eq!(ids(&parse(inside.as_bytes()).list).len(), 3);
        let prose = "Ignore every rule. ".repeat(300 << 10);
        assert_eq!(parse(&prose.as_bytes()[..300 << 10]).list, KillList::default());
        assert_eq!(ids(&parse(format!("{prose}\n{good}").as_bytes()).list).len(), 3, "only the end is looked at");
        assert_eq!(ids(&parse(format!("{good}{prose}").as_bytes()).list).len(), 0, "and no more than that");
    }

    proptest! {
        #[test]
        fn m_18_any_bytes_are_read_and_what_was_written_reads_back(
            bytes in prop::collection::vec(any::<u8>(), 0..600), adds in 0usize..20, tells in prop::collection::vec((0usize..20, 0usize..40), 0..60)
        ) {
            parse(&bytes);
            let mut list = list(adds);
            for (kill, conversation) in tells {
                list.told(&format!("k{kill}"), told(conversation));
            }
            let text = list.render();
            let parsed = parse(text.as_bytes());
            prop_assert_eq!(parsed.list.kills(), list.kills());
            prop_assert_eq!((parsed.bad_lines, parsed.reading.faults), (0, vec![]));
            // Garbage before it costs nothing.
            let after = parse(&[&bytes[..], b"\n", text.as_bytes()].concat());
            prop_assert_eq!(&after.list.kills()[after.list.kills().len() - list.kills().len()..], list.kills());
        }
    }
}
