//! What a probe is: one attack, the system call it makes, the wall that must stop it, and what it may show where.
//!
//! Here: the words of the table. Elsewhere: the attacks (`attacks`), running them (`inside`, `column`), judging (`table`).

use std::fmt;
use std::io;

use minke_exec::fence::Walls;

use crate::inside::Ground;
use crate::sys::short;

/// What holds a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Wall {
    Descriptors,
    Limits,
    PidNamespace,
    IpcNamespace,
    UtsNamespace,
    NetNamespace,
    ReadOnlyRoot,
    Carved,
    Masks,
    Names,
    Tmp,
    Devices,
    Proc,
    NoNewPrivileges,
    Capabilities,
    LandlockFiles,
    LandlockTcp,
    LandlockScope,
    SeccompSockets,
    SeccompCalls,
    SeccompSetId,
    /// The filter of the environment; it stands in every tier.
    Environment,
    /// The fence's init or watcher, which ends the whole tree; it stands in every tier.
    Watcher,
}

impl Wall {
    /// Those that a test can leave out, each with the one that must go first because it stands before it, or because
    /// without it the kernel would not make the other.
    pub(crate) const REMOVABLE: [(Wall, Walls, Walls); 21] = [
        (Wall::Descriptors, Walls::DESCRIPTORS, Walls::NONE),
        (Wall::Limits, Walls::LIMITS, Walls::NONE),
        (Wall::PidNamespace, Walls::PID_NAMESPACE, Walls::PROC),
        (Wall::IpcNamespace, Walls::IPC_NAMESPACE, Walls::NONE),
        (Wall::UtsNamespace, Walls::UTS_NAMESPACE, Walls::NONE),
        (Wall::NetNamespace, Walls::NET_NAMESPACE, Walls::NONE),
        (Wall::ReadOnlyRoot, Walls::READ_ONLY_ROOT, Walls::NONE),
        (Wall::Carved, Walls::CARVED, Walls::NONE),
        (Wall::Masks, Walls::MASKS, Walls::NONE),
        (Wall::Names, Walls::PROTECTED, Walls::NONE),
        (Wall::Tmp, Walls::TMP, Walls::NONE),
        (Wall::Devices, Walls::DEVICES, Walls::NONE),
        (Wall::Proc, Walls::PROC, Walls::NONE),
        (Wall::NoNewPrivileges, Walls::NO_NEW_PRIVILEGES, Walls::CAPABILITIES),
        (Wall::Capabilities, Walls::CAPABILITIES, Walls::NONE),
        (Wall::LandlockFiles, Walls::LANDLOCK_FILES, Walls::NONE),
        (Wall::LandlockTcp, Walls::LANDLOCK_TCP, Walls::SECCOMP_SOCKETS),
        (Wall::LandlockScope, Walls::LANDLOCK_SCOPE, Walls::NONE),
        (Wall::SeccompSockets, Walls::SECCOMP_SOCKETS, Walls::NONE),
        (Wall::SeccompCalls, Walls::SECCOMP_CALLS, Walls::NONE),
        (Wall::SeccompSetId, Walls::SECCOMP_SET_ID, Walls::NONE),
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Wall::Descriptors => "close_range",
            Wall::Limits => "rlimits",
            Wall::PidNamespace => "pid namespace",
            Wall::IpcNamespace => "ipc namespace",
            Wall::UtsNamespace => "uts namespace",
            Wall::NetNamespace => "net namespace",
            Wall::ReadOnlyRoot => "read-only root",
            Wall::Carved => "carved subtree",
            Wall::Masks => "mask",
            Wall::Names => "protected names",
            Wall::Tmp => "own /tmp",
            Wall::Devices => "minimal /dev",
            Wall::Proc => "fresh /proc",
            Wall::NoNewPrivileges => "no new privileges",
            Wall::Capabilities => "no capabilities",
            Wall::LandlockFiles => "Landlock files",
            Wall::LandlockTcp => "Landlock TCP",
            Wall::LandlockScope => "Landlock scope",
            Wall::SeccompSockets => "seccomp sockets",
            Wall::SeccompCalls => "seccomp calls",
            Wall::SeccompSetId => "seccomp set-id",
            Wall::Environment => "environment filter",
            Wall::Watcher => "init or watcher",
        }
    }
}

/// What tier B leaves open, in the words of `docs/reference/sandbox.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Rest {
    /// Changes of mode, owner, times and attributes of files outside.
    Metadata,
    /// Protected names are held by the file tools only.
    Names,
    /// Other processes are visible, and not counted by fence.
    Processes,
    /// What can be asked without opening anything: `stat` of a covered file, the machine's name.
    Looks,
}

impl Rest {
    pub(crate) const ALL: [Rest; 4] = [Rest::Metadata, Rest::Names, Rest::Processes, Rest::Looks];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Rest::Metadata => "metadata",
            Rest::Names => "protected names",
            Rest::Processes => "processes",
            Rest::Looks => "looks",
        }
    }
}

/// The fence that a probe is tried in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Stage {
    /// Write on `work`, read on `reads` and `home`.
    Plain,
    /// The same and write on `flat`, not recursively; parts of `work` denied for writing, others for reading.
    Denied,
    /// `sandbox.mode = "read_only"` and `sandbox.writable_tmp = false`.
    ReadOnly,
    /// Granted hosts: a proxy's socket is bound in.
    Proxy,
    /// Standard input is a terminal.
    Terminal,
    /// Limits so small that a quick probe reaches them.
    Small,
}

impl Stage {
    pub(crate) const ALL: [Stage; 6] =
        [Stage::Plain, Stage::Denied, Stage::ReadOnly, Stage::Proxy, Stage::Terminal, Stage::Small];

    /// Tier B cannot express it, and says so instead of starting anything.
    pub(crate) fn refused_in_b(self) -> bool {
        matches!(self, Stage::Denied | Stage::Proxy)
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Stage::Plain => "plain",
            Stage::Denied => "denied",
            Stage::ReadOnly => "read-only",
            Stage::Proxy => "proxy",
            Stage::Terminal => "terminal",
            Stage::Small => "small",
        }
    }
}

/// What an attack does without a fence. One that cannot succeed there proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bare {
    Succeeds,
    /// The machine lets only root do it.
    AsRoot,
    /// It gains something only an ordinary user has not.
    AsUser,
    /// The kernel of this machine may lack it or keep it from everybody.
    IfOffered,
    /// The same in tier `off`, with the reason. Taking the wall away shows that the attack works.
    Never(&'static str),
}

/// Whether a row is an attack or something that must work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Attack,
    Control,
    /// Open in every tier, by design and so documented. A change of that is to be noticed, too.
    Open,
}

/// What came of one try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The attack did what it wanted (of a control: it works).
    Done(String),
    /// It was stopped.
    Held(String),
    /// There is nothing here to try it on.
    Absent(String),
    /// Neither can be said: the probe hung or broke.
    Unclear(String),
    /// The fence was not made, with this reason.
    Refused(String),
}

impl Seen {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Seen::Done(_) => "done",
            Seen::Held(_) => "held",
            Seen::Absent(_) => "absent",
            Seen::Unclear(_) => "unclear",
            Seen::Refused(_) => "refused",
        }
    }

    pub(crate) fn why(&self) -> &str {
        match self {
            Seen::Done(why)
            | Seen::Held(why)
            | Seen::Absent(why)
            | Seen::Unclear(why)
            | Seen::Refused(why) => why,
        }
    }

    pub(crate) fn parse(word: &str, why: &str) -> Option<Seen> {
        let why = why.to_owned();
        Some(match word {
            "done" => Seen::Done(why),
            "held" => Seen::Held(why),
            "absent" => Seen::Absent(why),
            "unclear" => Seen::Unclear(why),
            "refused" => Seen::Refused(why),
            _ => return None,
        })
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.word(), self.why())
    }
}

/// A call that answers is done, one that errs was held.
pub(crate) fn tried<T>(result: io::Result<T>) -> Seen {
    match result {
        Ok(_) => Seen::Done("answered".to_owned()),
        Err(error) => Seen::Held(short(&error)),
    }
}

/// Like [`tried`], where an error that means "this kernel has no such thing" says nothing about walls.
pub(crate) fn tried_if<T>(result: io::Result<T>, lacking: &[i32]) -> Seen {
    match result {
        Err(error) if error.raw_os_error().is_some_and(|code| lacking.contains(&code)) => {
            Seen::Absent(short(&error))
        }
        other => tried(other),
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Probe {
    pub(crate) name: &'static str,
    /// The system call that makes the attempt.
    pub(crate) call: &'static str,
    /// The wall that is meant to stop it; others may stand behind it.
    pub(crate) wall: Wall,
    pub(crate) stage: Stage,
    pub(crate) bare: Bare,
    /// Left open by tier B, and so documented.
    pub(crate) rest: Option<Rest>,
    /// A control that tier B cannot offer, and so documented.
    pub(crate) missing_in_b: bool,
    /// It would disturb others in the same fence.
    pub(crate) alone: bool,
    pub(crate) kind: Kind,
    pub(crate) run: fn(&Ground) -> Seen,
    /// The attempt alone, where `run` judges by what it left.
    pub(crate) tries: Option<fn(&Ground) -> io::Result<libc::c_long>>,
}

pub(crate) const fn probe(
    name: &'static str,
    call: &'static str,
    wall: Wall,
    run: fn(&Ground) -> Seen,
) -> Probe {
    let stage = Stage::Plain;
    Probe {
        name,
        call,
        wall,
        stage,
        bare: Bare::Succeeds,
        rest: None,
        missing_in_b: false,
        alone: false,
        kind: Kind::Attack,
        run,
        tries: None,
    }
}

/// Something that must work in every fence. The wall is of no meaning.
pub(crate) const fn control(name: &'static str, call: &'static str, run: fn(&Ground) -> Seen) -> Probe {
    let mut control = probe(name, call, Wall::LandlockFiles, run);
    control.kind = Kind::Control;
    control
}

/// Something that no tier hides.
pub(crate) const fn open(name: &'static str, call: &'static str, run: fn(&Ground) -> Seen) -> Probe {
    let mut open = probe(name, call, Wall::LandlockFiles, run);
    open.kind = Kind::Open;
    open
}

impl Probe {
    pub(crate) const fn on(mut self, stage: Stage) -> Probe {
        self.stage = stage;
        self
    }

    pub(crate) const fn bare(mut self, bare: Bare) -> Probe {
        self.bare = bare;
        self
    }

    pub(crate) const fn left_by_b(mut self, rest: Rest) -> Probe {
        self.rest = Some(rest);
        self
    }

    pub(crate) const fn missing_in_b(mut self) -> Probe {
        self.missing_in_b = true;
        self
    }

    pub(crate) const fn alone(mut self) -> Probe {
        self.alone = true;
        self
    }
}
