//! What the kernel says of itself in its files: switches that decide whether a fence can be made.
//!
//! Elsewhere: what it really does when a fence is made (`exec`), and what follows from both (`fences`).

use std::io::Read;
use std::path::Path;

use serde_json::{Value, json};

/// More than any of these files holds.
const FILE_BYTES: u64 = 4096;

/// Switches, each absent where the kernel does not have it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Switches {
    /// User namespaces that one user may have.
    pub(super) max_user_namespaces: Option<u64>,
    /// Debian's: whether ordinary users may make them.
    pub(super) unprivileged_userns_clone: Option<u64>,
    /// Ubuntu's: whether AppArmor keeps programs without a profile from using them.
    pub(super) apparmor_restricts_userns: Option<u64>,
    pub(super) ptrace_scope: Option<u64>,
    /// Security modules that are active.
    pub(super) security_modules: Option<String>,
    /// Whether this is a container, whose own rules come first.
    pub(super) container: bool,
}

impl Switches {
    pub(super) fn read() -> Switches {
        let number = |path: &str| content(path).and_then(|text| text.parse().ok());
        Switches {
            max_user_namespaces: number("/proc/sys/user/max_user_namespaces"),
            unprivileged_userns_clone: number("/proc/sys/kernel/unprivileged_userns_clone"),
            apparmor_restricts_userns: number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
            ptrace_scope: number("/proc/sys/kernel/yama/ptrace_scope"),
            security_modules: content("/sys/kernel/security/lsm"),
            container: ["/.dockerenv", "/run/.containerenv"].iter().any(|mark| Path::new(mark).exists()),
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "max_user_namespaces": self.max_user_namespaces,
            "unprivileged_userns_clone": self.unprivileged_userns_clone,
            "apparmor_restrict_unprivileged_userns": self.apparmor_restricts_userns,
            "ptrace_scope": self.ptrace_scope,
            "security_modules": self.security_modules,
            "container": self.container,
        })
    }
}

fn content(path: &str) -> Option<String> {
    let mut text = String::new();
    std::fs::File::open(path).ok()?.take(FILE_BYTES).read_to_string(&mut text).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
