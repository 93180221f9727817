//! Restrictions: the parts of a sandbox, one bit each.
//!
//! Here: their names. Elsewhere: their implementation (`mounts`, `landlock`, `seccomp`, `helper`). All of them apply,
//! unless a test omits one to show that a probe then succeeds (`tests/probes`).

/// A set of restrictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restrictions(u32);

impl Restrictions {
    pub const NONE: Restrictions = Restrictions(0);
    /// Inherited descriptors are closed, except standard streams.
    pub const DESCRIPTORS: Restrictions = Restrictions(1);
    pub const LIMITS: Restrictions = Restrictions(1 << 1);
    pub const PID_NAMESPACE: Restrictions = Restrictions(1 << 2);
    pub const IPC_NAMESPACE: Restrictions = Restrictions(1 << 3);
    pub const UTS_NAMESPACE: Restrictions = Restrictions(1 << 4);
    pub const NET_NAMESPACE: Restrictions = Restrictions(1 << 5);
    /// Everything outside the write grants is mounted read-only.
    pub const READ_ONLY_ROOT: Restrictions = Restrictions(1 << 6);
    /// Denied and lent subtrees of a grant are read-only or masked.
    pub const EXCLUSIONS: Restrictions = Restrictions(1 << 7);
    /// Secrets and Minke's own directories are masked.
    pub const MASKS: Restrictions = Restrictions(1 << 8);
    /// Protected names are read-only, present or not.
    pub const PROTECTED: Restrictions = Restrictions(1 << 9);
    /// `/tmp` is the pod's own.
    pub const TMP: Restrictions = Restrictions(1 << 10);
    /// `/dev` contains harmless devices only.
    pub const DEVICES: Restrictions = Restrictions(1 << 11);
    /// `/proc` shows the processes of the sandbox only.
    pub const PROC: Restrictions = Restrictions(1 << 12);
    pub const NO_NEW_PRIVILEGES: Restrictions = Restrictions(1 << 13);
    pub const CAPABILITIES: Restrictions = Restrictions(1 << 14);
    pub const LANDLOCK_FILES: Restrictions = Restrictions(1 << 15);
    pub const LANDLOCK_TCP: Restrictions = Restrictions(1 << 16);
    /// Signals and abstract sockets are confined to the sandbox.
    pub const LANDLOCK_SCOPE: Restrictions = Restrictions(1 << 17);
    /// System calls that open sockets.
    pub const SECCOMP_SOCKETS: Restrictions = Restrictions(1 << 18);
    /// All other refused system calls.
    pub const SECCOMP_CALLS: Restrictions = Restrictions(1 << 19);
    /// System calls that create set-user-ID and set-group-ID files.
    pub const SECCOMP_SET_ID: Restrictions = Restrictions(1 << 20);
    pub const ALL: Restrictions = Restrictions((1 << 21) - 1);

    #[must_use]
    pub fn with(self, other: Restrictions) -> Restrictions {
        Restrictions(self.0 | other.0)
    }

    #[must_use]
    pub fn without(self, other: Restrictions) -> Restrictions {
        Restrictions(self.0 & !other.0)
    }

    pub fn contains(self, other: Restrictions) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    pub(crate) fn from_bits(bits: u32) -> Restrictions {
        Restrictions(bits & Restrictions::ALL.0)
    }
}
