//! Tiers: how much a fence on this machine holds. Which one is tried for real by `exec`.

use std::fmt;
use std::str::FromStr;

/// What the kernel holds a command to, from most to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tier {
    /// Namespaces, Landlock, seccomp, made by ourselves.
    A,
    /// The same plan, with namespaces made by the system's `bwrap`.
    APrime,
    /// Landlock and seccomp alone.
    B,
    /// The macOS profile.
    C,
    /// Nothing holds: commands are not offered.
    D,
    /// A person said `--unsandboxed`: nothing holds, and commands run all the same.
    Off,
}

impl Tier {
    pub const ALL: [Tier; 6] = [Tier::A, Tier::APrime, Tier::B, Tier::C, Tier::D, Tier::Off];

    /// As greeting, dispatch and `doctor` name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Tier::A => "A",
            Tier::APrime => "A\u{2032}",
            Tier::B => "B",
            Tier::C => "C",
            Tier::D => "D",
            Tier::Off => "off",
        }
    }

    /// Whether commands are offered at all.
    pub fn offers_commands(self) -> bool {
        self != Tier::D
    }

    /// Whether commands see the pod's own temporary directory as `/tmp`; else only `TMPDIR` names it.
    pub fn moves_tmp(self) -> bool {
        matches!(self, Tier::A | Tier::APrime)
    }

    /// Whether hosts can be granted: something must hold commands to the pod's proxy.
    pub fn reaches_hosts(self) -> bool {
        matches!(self, Tier::A | Tier::APrime)
    }

    /// Whether the kernel holds a command to the whole scope, so that nobody need be asked about it.
    pub fn holds(self) -> bool {
        matches!(self, Tier::A | Tier::APrime | Tier::C)
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Tier {
    type Err = String;
    fn from_str(text: &str) -> Result<Tier, String> {
        Tier::ALL
            .into_iter()
            .find(|tier| tier.as_str() == text)
            .ok_or_else(|| format!("`{text}` is not a tier"))
    }
}
