//! Walls: the parts of a fence, one bit each.
//!
//! Here: their names. Elsewhere: what each is made of (`mounts`, `landlock`, `seccomp`, `helper`). All of them stand
//! unless a test leaves one out to show that a probe then gets through (`tests/probes.rs`).

/// A set of walls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walls(u32);

impl Walls {
    pub const NONE: Walls = Walls(0);
    /// Descriptors that the command did not get are closed.
    pub const DESCRIPTORS: Walls = Walls(1);
    pub const LIMITS: Walls = Walls(1 << 1);
    pub const PID_NAMESPACE: Walls = Walls(1 << 2);
    pub const IPC_NAMESPACE: Walls = Walls(1 << 3);
    pub const UTS_NAMESPACE: Walls = Walls(1 << 4);
    pub const NET_NAMESPACE: Walls = Walls(1 << 5);
    /// Everything outside the write grants is mounted read-only.
    pub const READ_ONLY_ROOT: Walls = Walls(1 << 6);
    /// Denied and lent subtrees of a grant are read-only or masked.
    pub const CARVED: Walls = Walls(1 << 7);
    /// Secrets and our own directories are masked.
    pub const MASKS: Walls = Walls(1 << 8);
    /// Protected names are read-only, present or not.
    pub const PROTECTED: Walls = Walls(1 << 9);
    /// `/tmp` is the pod's own.
    pub const TMP: Walls = Walls(1 << 10);
    /// `/dev` has the harmless devices only.
    pub const DEVICES: Walls = Walls(1 << 11);
    /// `/proc` shows the fence only.
    pub const PROC: Walls = Walls(1 << 12);
    pub const NO_NEW_PRIVILEGES: Walls = Walls(1 << 13);
    pub const CAPABILITIES: Walls = Walls(1 << 14);
    pub const LANDLOCK_FILES: Walls = Walls(1 << 15);
    pub const LANDLOCK_TCP: Walls = Walls(1 << 16);
    /// Signals and abstract sockets end at the fence.
    pub const LANDLOCK_SCOPE: Walls = Walls(1 << 17);
    /// System calls that open sockets.
    pub const SECCOMP_SOCKETS: Walls = Walls(1 << 18);
    /// All other refused system calls.
    pub const SECCOMP_CALLS: Walls = Walls(1 << 19);
    /// System calls that make set-user-id and set-group-id files.
    pub const SECCOMP_SET_ID: Walls = Walls(1 << 20);
    pub const ALL: Walls = Walls((1 << 21) - 1);

    #[must_use]
    pub fn with(self, other: Walls) -> Walls {
        Walls(self.0 | other.0)
    }

    #[must_use]
    pub fn without(self, other: Walls) -> Walls {
        Walls(self.0 & !other.0)
    }

    pub fn has(self, other: Walls) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    pub(crate) fn from_bits(bits: u32) -> Walls {
        Walls(bits & Walls::ALL.0)
    }
}
