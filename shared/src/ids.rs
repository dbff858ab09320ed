//! Identifiers: what they look like, how they are built, how they are checked.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Characters of a run id: lower-case base 32 (RFC 4648 alphabet).
const RUN_ID_ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// Length of a run id in characters; 26 × 5 bits hold 128 random bits (decision 19).
pub const RUN_ID_LEN: usize = 26;
/// Shortest prefix that may name a run (decision 19, spec Q-10).
pub const RUN_PREFIX_MIN: usize = 4;

/// The id of one run: 26 lower-case base-32 characters (decision 19).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(pub String);

impl RunId {
    /// Builds a run id from 16 random bytes that the shell supplies.
    pub fn from_random(bytes: [u8; 16]) -> Self {
        let mut value = u128::from_be_bytes(bytes);
        let mut text = String::with_capacity(RUN_ID_LEN);
        for _ in 0..RUN_ID_LEN {
            text.push(char::from(RUN_ID_ALPHABET[(value & 31) as usize]));
            value >>= 5;
        }
        Self(text)
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An Instance ID: the name of one conversation and the address of its Agent's surface (spec A-3).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Iid(pub String);

impl Iid {
    /// The base iid of an Agent: `<runId>/<machine path or "root">/<agent>` (spec A-3).
    pub fn base(run: &RunId, machine_path: &str, agent: &str) -> Self {
        let path = if machine_path.is_empty() { "root" } else { machine_path };
        Self(format!("{run}/{path}/{agent}"))
    }

    /// A fresh conversation: base + `/` + 8 hex characters (spec A-3).
    pub fn fresh(base: &Iid, random: [u8; 4]) -> Self {
        Self(format!("{}/{:08x}", base.0, u32::from_be_bytes(random)))
    }

    /// A continued conversation: the base at epoch 0, else base + `/` + epoch (spec A-3).
    pub fn continued(base: &Iid, epoch: u64) -> Self {
        if epoch == 0 { base.clone() } else { Self(format!("{}/{epoch}", base.0)) }
    }

    /// The reroll of a fresh conversation: iid + `-r<n>` (spec A-3).
    pub fn reroll(&self, n: u32) -> Self {
        Self(format!("{}-r{n}", self.0))
    }

    /// The iid as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Iid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The admission id of a Turn's n-th ledgered admission: `<iid>#<n>` (decision 31).
pub fn admission_id(iid: &Iid, n: u64) -> String {
    format!("{iid}#{n}")
}

/// Splits an admission id into its iid and ordinal; `None` when it has another form.
pub fn split_admission_id(text: &str) -> Option<(Iid, u64)> {
    let (iid, n) = text.rsplit_once('#')?;
    Some((Iid(iid.to_owned()), n.parse().ok()?))
}

/// The name of a Menu tool as the model sees it (spec H-27): `mcp__jr2__<event>`.
pub fn menu_tool_name(event: &str) -> String {
    let clean: String =
        event.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect();
    format!("mcp__jr2__{clean}")
}

/// Bytes as lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_ids_are_26_lower_case_base32_characters() {
        let id = RunId::from_random([0xff; 16]);
        assert_eq!(id.0.len(), RUN_ID_LEN);
        assert!(id.0.bytes().all(|b| RUN_ID_ALPHABET.contains(&b)));
        assert_ne!(RunId::from_random([1; 16]), RunId::from_random([2; 16]));
    }

    #[test]
    fn iids_follow_spec_a3() {
        let base = Iid::base(&RunId("r".into()), "", "coder");
        assert_eq!(base.0, "r/root/coder");
        assert_eq!(Iid::continued(&base, 0), base);
        assert_eq!(Iid::continued(&base, 2).0, "r/root/coder/2");
        assert_eq!(Iid::fresh(&base, [0, 0, 0, 10]).0, "r/root/coder/0000000a");
        assert_eq!(base.reroll(1).0, "r/root/coder-r1");
    }

    #[test]
    fn hex_is_two_digits_a_byte() {
        assert_eq!(hex(&[0, 10, 255]), "000aff");
    }

    #[test]
    fn admission_ids_split_at_the_last_hash() {
        let iid = Iid("r/a#b/coder".into());
        assert_eq!(split_admission_id(&admission_id(&iid, 3)), Some((iid, 3)));
        assert_eq!(split_admission_id("no-number#x"), None);
    }
}
