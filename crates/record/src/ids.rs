//! Names of things: sessions, runs, asks, queued inputs, calls; and where new ones come from.
//!
//! Here: the types, and `Ids`, which makes new ones from a moment and a seed so that a mind needs no randomness.
//! Invariant: the same moment and seed give the same ids (`the_same_seed_gives_the_same_ids`).

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
            /// Takes the bare id and, for sessions, the `s_` form of the API.
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
    /// A durable question.
    AskId
);
uuid_id!(
    /// An input that waits in the queue, or steering on its way.
    QueueId
);

/// A call's name, as the model (or the client that made it) gave it.
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

/// A pod's name: `[a-z0-9][a-z0-9-]{0,39}`, checked once, at the door.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct PodName(String);

impl PodName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A name made from any text: what does not fit becomes a hyphen. Used for names taken from directories.
    pub fn from_any(text: &str) -> PodName {
        let mut name = String::new();
        for c in text.chars().flat_map(char::to_lowercase) {
            let c = if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' };
            if name.len() < 40 && !(c == '-' && (name.is_empty() || name.ends_with('-'))) {
                name.push(c);
            }
        }
        let name = name.trim_end_matches('-');
        PodName(if name.is_empty() { "pod".to_owned() } else { name.to_owned() })
    }
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The text is not a pod name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadName(pub String);

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a pod name: use 1 to 40 of a-z, 0-9 and `-`, beginning with a letter or digit",
            self.0
        )
    }
}

impl std::error::Error for BadName {}

impl FromStr for PodName {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, BadName> {
        let ok = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if text.is_empty() || text.len() > 40 || text.starts_with('-') || !text.chars().all(ok) {
            return Err(BadName(text.chars().take(80).collect()));
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

/// New ids from a moment and a seed: UUIDv7, so that they sort by time, and without a source of randomness.
#[derive(Debug, Clone)]
pub struct Ids {
    now: Millis,
    seed: u64,
    count: u64,
}

impl Ids {
    pub fn new(now: Millis, seed: u64) -> Ids {
        Ids { now, seed, count: 0 }
    }

    pub fn next_uuid(&mut self) -> Uuid {
        self.count += 1;
        let high = mix(self.seed ^ mix(self.count));
        let low = mix(high ^ self.seed.rotate_left(32) ^ self.count);
        let mut random = [0u8; 10];
        random[..8].copy_from_slice(&high.to_be_bytes());
        random[8..].copy_from_slice(&low.to_be_bytes()[..2]);
        uuid::Builder::from_unix_timestamp_millis(self.now, &random).into_uuid()
    }
}

/// SplitMix64's finisher: every bit of the input reaches every bit of the output.
fn mix(mut z: u64) -> u64 {
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
        let (mut a, mut b) = (Ids::new(5, 7), Ids::new(5, 7));
        let first = a.next_uuid();
        assert_eq!(first, b.next_uuid());
        assert_ne!(first, a.next_uuid());
        assert_eq!(first.get_version_num(), 7);
        assert_ne!(first, Ids::new(5, 8).next_uuid());
    }

    #[test]
    fn pod_names_are_checked_at_the_door() {
        for good in ["a", "0-x", "tour-2"] {
            assert!(good.parse::<PodName>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "A", "a/b", "..", "a b", &"x".repeat(41)] {
            assert!(bad.parse::<PodName>().is_err(), "{bad}");
        }
        assert_eq!(PodName::from_any("My Project!").as_str(), "my-project");
        assert_eq!(PodName::from_any("///").as_str(), "pod");
    }
}
