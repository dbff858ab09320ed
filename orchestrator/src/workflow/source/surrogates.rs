//! JSON writes characters beyond U+FFFF as two escapes (`\ud83d\ude00`); YAML has one escape for them. Such pairs are
//! turned into the character before YAML reads the text, and places still count in the text as written.

/// The text with each pair replaced, and for each of its characters the byte it came from. `None` when it is no JSON or
/// has no pair.
pub fn joined(text: &str) -> Option<(String, Vec<u32>)> {
    if !text.trim_start().starts_with('{') || !text.contains("\\u") {
        return None;
    }
    let mut out = String::with_capacity(text.len());
    let mut places = Vec::with_capacity(text.len());
    let mut found = false;
    let mut at = 0;
    while let Some(next) = text[at..].chars().next() {
        places.push(at as u32);
        if let Some(character) = (next == '\\').then(|| pair(&text[at..])).flatten() {
            found = true;
            out.push(character);
            at += PAIR_BYTES;
            continue;
        }
        out.push(next);
        at += next.len_utf8();
        // What follows a backslash belongs to it: `\\ud83d` is no escape of a half.
        if let Some(escaped) = (next == '\\').then(|| text[at..].chars().next()).flatten() {
            places.push(at as u32);
            out.push(escaped);
            at += escaped.len_utf8();
        }
    }
    found.then_some((out, places))
}

/// Bytes of two escapes.
const PAIR_BYTES: usize = 12;

fn pair(text: &str) -> Option<char> {
    let half = |from: usize| {
        let digits = text.get(from..from + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok().filter(|_| digits.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    let units = [half(0)?, half(6)?];
    let is_pair = (0xd800..0xdc00).contains(&units[0]) && (0xdc00..0xe000).contains(&units[1]);
    is_pair.then(|| char::decode_utf16(units).next()?.ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_become_characters_and_places_stay() {
        let (text, places) = joined(r#"{"a": "\ud83d\ude00b"}"#).unwrap();
        assert_eq!(text, r#"{"a": "😀b"}"#);
        assert_eq!(places[8], 19, "the b stands after twelve bytes of escapes");
        assert_eq!(joined(r#"{"a": "\\ud83d\\ude00"}"#), None);
        assert_eq!(joined(r#"{"a": "\ud83d x"}"#), None);
        assert_eq!(joined(r"a: \ud83d\ude00"), None);
    }
}
