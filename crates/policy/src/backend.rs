//! Sandbox backends: the strength of the sandbox on this machine. `exec` tests which backend works.

use std::fmt;
use std::str::FromStr;

/// The sandbox backend of commands, from the strongest to none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SandboxBackend {
    /// Namespaces, Landlock and seccomp, set up by Minke.
    Namespaces,
    /// The same, with namespaces set up by the system's `bwrap`.
    Bubblewrap,
    /// Landlock and seccomp only.
    Landlock,
    /// The macOS sandbox profile.
    Seatbelt,
    /// No sandbox works: commands are not offered.
    Unavailable,
    /// The user passed `--unsandboxed`: commands run without a sandbox.
    Off,
}

impl SandboxBackend {
    pub const ALL: [SandboxBackend; 6] = [
        SandboxBackend::Namespaces,
        SandboxBackend::Bubblewrap,
        SandboxBackend::Landlock,
        SandboxBackend::Seatbelt,
        SandboxBackend::Unavailable,
        SandboxBackend::Off,
    ];

    /// Returns the name in the log, on the wire and on screens.
    pub fn as_str(self) -> &'static str {
        match self {
            SandboxBackend::Namespaces => "namespaces",
            SandboxBackend::Bubblewrap => "bubblewrap",
            SandboxBackend::Landlock => "landlock",
            SandboxBackend::Seatbelt => "seatbelt",
            SandboxBackend::Unavailable => "none",
            SandboxBackend::Off => "off",
        }
    }

    /// Returns whether commands are offered at all.
    pub fn can_run_commands(self) -> bool {
        self != SandboxBackend::Unavailable
    }

    /// Returns whether commands see the pod's own temporary directory as `/tmp`; otherwise only `TMPDIR`
    /// names it.
    pub fn remaps_tmp(self) -> bool {
        matches!(self, SandboxBackend::Namespaces | SandboxBackend::Bubblewrap)
    }

    /// Returns whether hosts can be granted: this needs a sandbox that forces commands through the pod's
    /// proxy.
    pub fn can_grant_hosts(self) -> bool {
        matches!(self, SandboxBackend::Namespaces | SandboxBackend::Bubblewrap)
    }

    /// Returns whether the kernel enforces the whole scope, so that commands need no approval.
    pub fn enforces_scope(self) -> bool {
        matches!(self, SandboxBackend::Namespaces | SandboxBackend::Bubblewrap | SandboxBackend::Seatbelt)
    }
}

impl fmt::Display for SandboxBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for SandboxBackend {
    type Err = String;
    /// Also parses the letters of older logs, pods and command lines.
    fn from_str(text: &str) -> Result<SandboxBackend, String> {
        let name = minke_record::compat::backend_name(text);
        SandboxBackend::ALL
            .into_iter()
            .find(|backend| backend.as_str() == name)
            .ok_or_else(|| format!("`{text}` is not a sandbox backend"))
    }
}
