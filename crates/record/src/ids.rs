//! Ids: sessions, runs, asks, queued inputs, calls; and their generator.
//!
//! Here: the types, and `IdGenerator`, which derives ids from a time and a seed, so that core crates need no
//! randomness.
//! Invariant: the same time and seed give the same ids (`the_same_seed_gives_the_same_ids`).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Milliseconds since the epoch.
pub type Millis = u64;

macro_rules! uuid_id {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;
            /// Accepts the bare id and, for sessions, the `s_` form of the API.
            fn from_str(text: &str) -> Result<Self, uuid::Error> {
                Uuid::parse_str(text.strip_prefix("s_").unwrap_or(text)).map($name)
            }
        }
    };
}

uuid_id!(
    /// A session: one log.
    SessionId
);
uuid_id!(
    /// A run: from one accepted trigger to exactly one terminal entry.
    RunId
);
uuid_id!(
    /// An ask.
    AskId
);
uuid_id!(
    /// A queued input, or pending steering.
    QueueId
);

/// A call id, assigned by the model or the client.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct CallId(pub String);

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for CallId {
    fn from(text: &str) -> Self {
        CallId(text.to_owned())
    }
}

/// A pod's name, which is its thread's name: 1 to 40 letters and digits of any script, spaces and hyphens;
/// the first character is a letter or digit, the last one is not a space. Validated on construction: control,
/// bidirectional and invisible characters are rejected.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct PodName(String);

impl PodName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A name from any text, in lower case: invalid characters become hyphens. Used for names from
    /// directories.
    pub fn from_text(text: &str) -> PodName {
        let mut name = String::new();
        let mut length = 0;
        for c in text.chars().flat_map(char::to_lowercase) {
            let c = if is_name_char(c) && c != ' ' { c } else { '-' };
            let begins = name.is_empty() && !c.is_alphanumeric();
            if length < MAX_NAME_CHARS && !begins && !(c == '-' && name.ends_with('-')) {
                name.push(c);
                length += 1;
            }
        }
        let name = name.trim_end_matches('-');
        PodName(if name.is_empty() { "pod".to_owned() } else { name.to_owned() })
    }
}

/// The maximum length of a name in characters.
const MAX_NAME_CHARS: usize = 40;

/// Letters and digits of any script, combining marks, spaces and hyphens.
fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || c == '-' || c == ' ' || is_mark(c)
}

/// Combining marks, by Unicode block. The standard library classifies only some of them as alphabetic. None
/// of these ranges contains a control, bidirectional or invisible character.
fn is_mark(c: char) -> bool {
    matches!(u32::from(c),
        0x0300..=0x034E | 0x0350..=0x036F | 0x0483..=0x0487 | 0x0591..=0x05C7 | 0x0610..=0x061A | 0x064B..=0x065F
        | 0x0670 | 0x06D6..=0x06DC | 0x06DF..=0x06E8 | 0x06EA..=0x06ED | 0x0900..=0x0DFF | 0x0E31..=0x0E4E
        | 0x0EB1..=0x0ECD | 0x0F18..=0x0FBC | 0x102B..=0x109D | 0x135D..=0x135F | 0x1712..=0x1734 | 0x17B6..=0x17D3
        | 0x1AB0..=0x1ACE | 0x1DC0..=0x1DFF | 0x3099..=0x309A | 0xFE20..=0xFE2F)
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The text is not a pod name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidPodName(pub String);

impl fmt::Display for InvalidPodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a pod name: use 1 to {MAX_NAME_CHARS} letters, digits, spaces and hyphens, a letter or digit first",
            self.0
        )
    }
}

impl std::error::Error for InvalidPodName {}

impl FromStr for PodName {
    type Err = InvalidPodName;
    fn from_str(text: &str) -> Result<Self, InvalidPodName> {
        let begins = text.chars().next().is_some_and(char::is_alphanumeric);
        let long = text.chars().nth(MAX_NAME_CHARS).is_some();
        if !begins || long || text.ends_with(' ') || !text.chars().all(is_name_char) {
            // The message must not send control characters to a terminal.
            let shown =
                |c: char| if c.is_control() || !(is_name_char(c) || c.is_ascii()) { '\u{fffd}' } else { c };
            return Err(InvalidPodName(text.chars().take(80).map(shown).collect()));
        }
        Ok(PodName(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for PodName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Generates ids from a time and a seed: UUIDv7, which sort by time, without a source of randomness.
#[derive(Debug, Clone)]
pub struct IdGenerator {
    now: Millis,
    seed: u64,
    count: u64,
}

impl IdGenerator {
    pub fn new(now: Millis, seed: u64) -> IdGenerator {
        IdGenerator { now, seed, count: 0 }
    }

    pub fn next_uuid(&mut self) -> Uuid {
        self.count += 1;
        let high = mix_bits(self.seed ^ mix_bits(self.count));
        let low = mix_bits(high ^ self.seed.rotate_left(32) ^ self.count);
        let mut random = [0u8; 10];
        random[..8].copy_from_slice(&high.to_be_bytes());
        random[8..].copy_from_slice(&low.to_be_bytes()[..2]);
        uuid::Builder::from_unix_timestamp_millis(self.now, &random).into_uuid()
    }
}

/// SplitMix64's finisher: every bit of the input reaches every bit of the output.
fn mix_bits(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_ids() {
        let (mut a, mut b) = (IdGenerator::new(5, 7), IdGenerator::new(5, 7));
        let first = a.next_uuid();
        assert_eq!(first, b.next_uuid());
        assert_ne!(first, a.next_uuid());
        assert_eq!(first.get_version_num(), 7);
        assert_ne!(first, IdGenerator::new(5, 8).next_uuid());
    }

    #[test]
    fn pod_names_are_validated_on_construction() {
        let good = [
            "a",
            "0-x",
            "tour-2",
            "A",
            "My Thread",
            "\u{dc}ber die Br\u{fc}cke",
            "u\u{308}ber",
            "\u{30d7}\u{30ed}\u{30b8}\u{30a7}\u{30af}\u{30c8}",
            "\u{645}\u{634}\u{631}\u{648}\u{639}",
            "\u{92a}\u{930}\u{93f}\u{92f}\u{94b}\u{91c}\u{928}\u{93e} \u{967}",
            "\u{e42}\u{e04}\u{e23}\u{e07}\u{e01}\u{e32}\u{e23}",
            "\u{9879}\u{76ee}",
        ];
        for good in good {
            assert_eq!(good.parse::<PodName>().map(|name| name.to_string()), Ok(good.to_owned()), "{good}");
        }
        let long = "x".repeat(41);
        let bad = [
            "",
            "-a",
            " a",
            "a ",
            "a/b",
            "..",
            "a.lock",
            "s_1",
            "a\tb",
            "a\nb",
            "a\u{0}",
            "a\u{1b}[2J",
            "a\u{202e}b",
            "a\u{2066}b",
            "a\u{200f}b",
            "a\u{61c}b",
            "a\u{200b}b",
            "a\u{feff}b",
            "a\u{34f}b",
            "a\u{a0}b",
            "\u{301}a",
            "a\u{e0041}",
            &long,
        ];
        for bad in bad {
            let why = bad.parse::<PodName>().unwrap_err().to_string();
            assert!(!why.chars().any(char::is_control) && !why.contains('\u{202e}'), "{why:?}");
        }
        assert_eq!(
            PodName::from_text("\u{41f}\u{440}\u{43e}\u{435}\u{43a}\u{442} 2").as_str(),
            "\u{43f}\u{440}\u{43e}\u{435}\u{43a}\u{442}-2"
        );
        assert_eq!(PodName::from_text("My Project!").as_str(), "my-project");
        assert_eq!(PodName::from_text("///").as_str(), "pod");
    }
}
