//! Kernel settings that decide whether a sandbox is possible.
//!
//! Elsewhere: real tests of the backends (`exec`), the conclusions from both (`sandbox`).

use std::io::Read;
use std::path::Path;

use serde_json::{Value, json};

/// Upper limit for the size of these files.
const FILE_BYTES: u64 = 4096;

/// Kernel settings; `None` if the kernel does not have one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct KernelSettings {
    /// Number of user namespaces that one user may create.
    pub(super) max_user_namespaces: Option<u64>,
    /// Debian: whether ordinary users may create user namespaces.
    pub(super) unprivileged_userns_clone: Option<u64>,
    /// Ubuntu: whether AppArmor denies user namespaces to programs without a profile.
    pub(super) apparmor_restricts_userns: Option<u64>,
    pub(super) ptrace_scope: Option<u64>,
    /// Active security modules.
    pub(super) security_modules: Option<String>,
    /// Whether this is a container, whose own rules apply first.
    pub(super) container: bool,
}

impl KernelSettings {
    pub(super) fn from_proc() -> KernelSettings {
        let number = |path: &str| read_setting(path).and_then(|text| text.parse().ok());
        KernelSettings {
            max_user_namespaces: number("/proc/sys/user/max_user_namespaces"),
            unprivileged_userns_clone: number("/proc/sys/kernel/unprivileged_userns_clone"),
            apparmor_restricts_userns: number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
            ptrace_scope: number("/proc/sys/kernel/yama/ptrace_scope"),
            security_modules: read_setting("/sys/kernel/security/lsm"),
            container: ["/.dockerenv", "/run/.containerenv"].iter().any(|mark| Path::new(mark).exists()),
        }
    }

    pub(super) fn to_json(&self) -> Value {
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

fn read_setting(path: &str) -> Option<String> {
    let mut text = String::new();
    std::fs::File::open(path).ok()?.take(FILE_BYTES).read_to_string(&mut text).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
