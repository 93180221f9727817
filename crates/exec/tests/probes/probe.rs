//! A probe: one attack, its system call, the restriction that must stop it, and the documented gaps.
//!
//! Here: the vocabulary of the table. Elsewhere: the attacks (`attacks`), running them (`attacker`, `column_run`),
//! checking (`table`).

use std::fmt;
use std::io;

use minke_exec::sandbox::Restrictions;

use crate::attacker::AttackContext;
use crate::sys::error_name;

/// A restriction on a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum TestedRestriction {
    Descriptors,
    Limits,
    PidNamespace,
    IpcNamespace,
    UtsNamespace,
    NetNamespace,
    ReadOnlyRoot,
    Exclusions,
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
    /// The filter of environment variables; active in every backend.
    Environment,
    /// The sandbox's init or supervisor, which ends the process tree; active in every backend.
    Watcher,
}

impl TestedRestriction {
    /// The restrictions that a test can omit. Each with those that must be omitted first, because they hide the effect
    /// or because the kernel requires them.
    pub(crate) const REMOVABLE: [(TestedRestriction, Restrictions, Restrictions); 21] = [
        (TestedRestriction::Descriptors, Restrictions::DESCRIPTORS, Restrictions::NONE),
        (TestedRestriction::Limits, Restrictions::LIMITS, Restrictions::NONE),
        (TestedRestriction::PidNamespace, Restrictions::PID_NAMESPACE, Restrictions::PROC),
        (TestedRestriction::IpcNamespace, Restrictions::IPC_NAMESPACE, Restrictions::NONE),
        (TestedRestriction::UtsNamespace, Restrictions::UTS_NAMESPACE, Restrictions::NONE),
        (TestedRestriction::NetNamespace, Restrictions::NET_NAMESPACE, Restrictions::NONE),
        (TestedRestriction::ReadOnlyRoot, Restrictions::READ_ONLY_ROOT, Restrictions::NONE),
        (TestedRestriction::Exclusions, Restrictions::EXCLUSIONS, Restrictions::NONE),
        (TestedRestriction::Masks, Restrictions::MASKS, Restrictions::NONE),
        (TestedRestriction::Names, Restrictions::PROTECTED, Restrictions::NONE),
        (TestedRestriction::Tmp, Restrictions::TMP, Restrictions::NONE),
        (TestedRestriction::Devices, Restrictions::DEVICES, Restrictions::NONE),
        (TestedRestriction::Proc, Restrictions::PROC, Restrictions::NONE),
        (TestedRestriction::NoNewPrivileges, Restrictions::NO_NEW_PRIVILEGES, Restrictions::CAPABILITIES),
        (TestedRestriction::Capabilities, Restrictions::CAPABILITIES, Restrictions::NONE),
        (TestedRestriction::LandlockFiles, Restrictions::LANDLOCK_FILES, Restrictions::NONE),
        (TestedRestriction::LandlockTcp, Restrictions::LANDLOCK_TCP, Restrictions::SECCOMP_SOCKETS),
        (TestedRestriction::LandlockScope, Restrictions::LANDLOCK_SCOPE, Restrictions::NONE),
        (TestedRestriction::SeccompSockets, Restrictions::SECCOMP_SOCKETS, Restrictions::NONE),
        (TestedRestriction::SeccompCalls, Restrictions::SECCOMP_CALLS, Restrictions::NONE),
        (TestedRestriction::SeccompSetId, Restrictions::SECCOMP_SET_ID, Restrictions::NONE),
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            TestedRestriction::Descriptors => "close_range",
            TestedRestriction::Limits => "rlimits",
            TestedRestriction::PidNamespace => "pid namespace",
            TestedRestriction::IpcNamespace => "ipc namespace",
            TestedRestriction::UtsNamespace => "uts namespace",
            TestedRestriction::NetNamespace => "net namespace",
            TestedRestriction::ReadOnlyRoot => "read-only root",
            TestedRestriction::Exclusions => "carved subtree",
            TestedRestriction::Masks => "mask",
            TestedRestriction::Names => "protected names",
            TestedRestriction::Tmp => "own /tmp",
            TestedRestriction::Devices => "minimal /dev",
            TestedRestriction::Proc => "fresh /proc",
            TestedRestriction::NoNewPrivileges => "no new privileges",
            TestedRestriction::Capabilities => "no capabilities",
            TestedRestriction::LandlockFiles => "Landlock files",
            TestedRestriction::LandlockTcp => "Landlock TCP",
            TestedRestriction::LandlockScope => "Landlock scope",
            TestedRestriction::SeccompSockets => "seccomp sockets",
            TestedRestriction::SeccompCalls => "seccomp calls",
            TestedRestriction::SeccompSetId => "seccomp set-id",
            TestedRestriction::Environment => "environment filter",
            TestedRestriction::Watcher => "init or watcher",
        }
    }
}

/// The gaps of the landlock backend, as worded in `docs/reference/sandbox.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum DocumentedGap {
    /// Mode, owner, times and attributes of files outside can be changed.
    Metadata,
    /// Protected names are protected by the file tools only.
    Names,
    /// Other processes are visible, and are not counted per sandbox.
    Processes,
    /// Facts that need no open file: `stat` of a masked file, the host name.
    Looks,
}

impl DocumentedGap {
    pub(crate) const ALL: [DocumentedGap; 4] =
        [DocumentedGap::Metadata, DocumentedGap::Names, DocumentedGap::Processes, DocumentedGap::Looks];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            DocumentedGap::Metadata => "metadata",
            DocumentedGap::Names => "protected names",
            DocumentedGap::Processes => "processes",
            DocumentedGap::Looks => "looks",
        }
    }
}

/// The sandbox for a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ProbeStage {
    /// Write access to `work`, read access to `reads` and `home`.
    Plain,
    /// Also non-recursive write access to `flat`; parts of `work` denied for writing, others for reading.
    Denied,
    /// `sandbox.mode = "read_only"` and `sandbox.writable_tmp = false`.
    ReadOnly,
    /// Granted hosts: a proxy socket is available.
    Proxy,
    /// Standard input is a terminal.
    Terminal,
    /// Limits that a quick probe can reach.
    Small,
}

impl ProbeStage {
    pub(crate) const ALL: [ProbeStage; 6] = [
        ProbeStage::Plain,
        ProbeStage::Denied,
        ProbeStage::ReadOnly,
        ProbeStage::Proxy,
        ProbeStage::Terminal,
        ProbeStage::Small,
    ];

    /// Whether the landlock backend cannot express it and refuses to start.
    pub(crate) fn is_refused_by_landlock(self) -> bool {
        matches!(self, ProbeStage::Denied | ProbeStage::Proxy)
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            ProbeStage::Plain => "plain",
            ProbeStage::Denied => "denied",
            ProbeStage::ReadOnly => "read-only",
            ProbeStage::Proxy => "proxy",
            ProbeStage::Terminal => "terminal",
            ProbeStage::Small => "small",
        }
    }
}

/// The expected result without a sandbox. An attack that cannot succeed there proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnsandboxedResult {
    Succeeds,
    /// Succeeds only for root.
    AsRoot,
    /// Succeeds only for an ordinary user.
    AsUser,
    /// Depends on the kernel of this machine.
    IfOffered,
    /// Fails without a sandbox too, for this reason. Omitting the restriction shows that the attack works.
    Never(&'static str),
}

/// Whether a row is an attack or a control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProbeKind {
    Attack,
    Control,
    /// Possible in every backend by design, and documented. The test also notices a change.
    Open,
}

/// The result of one try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProbeOutcome {
    /// The attack succeeded (a control: it works).
    Succeeded(String),
    /// It was stopped.
    Stopped(String),
    /// The target does not exist here.
    Absent(String),
    /// Undecided: the probe hung or failed.
    Unclear(String),
    /// The sandbox was refused, for this reason.
    Refused(String),
}

impl ProbeOutcome {
    pub(crate) fn outcome_word(&self) -> &'static str {
        match self {
            ProbeOutcome::Succeeded(_) => "done",
            ProbeOutcome::Stopped(_) => "held",
            ProbeOutcome::Absent(_) => "absent",
            ProbeOutcome::Unclear(_) => "unclear",
            ProbeOutcome::Refused(_) => "refused",
        }
    }

    pub(crate) fn reason_text(&self) -> &str {
        match self {
            ProbeOutcome::Succeeded(why)
            | ProbeOutcome::Stopped(why)
            | ProbeOutcome::Absent(why)
            | ProbeOutcome::Unclear(why)
            | ProbeOutcome::Refused(why) => why,
        }
    }

    pub(crate) fn parse_outcome(word: &str, why: &str) -> Option<ProbeOutcome> {
        let why = why.to_owned();
        Some(match word {
            "done" => ProbeOutcome::Succeeded(why),
            "held" => ProbeOutcome::Stopped(why),
            "absent" => ProbeOutcome::Absent(why),
            "unclear" => ProbeOutcome::Unclear(why),
            "refused" => ProbeOutcome::Refused(why),
            _ => return None,
        })
    }
}

impl fmt::Display for ProbeOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.outcome_word(), self.reason_text())
    }
}

/// Returns the result of a call: success or stopped.
pub(crate) fn outcome_of<T>(result: io::Result<T>) -> ProbeOutcome {
    match result {
        Ok(_) => ProbeOutcome::Succeeded("answered".to_owned()),
        Err(error) => ProbeOutcome::Stopped(error_name(&error)),
    }
}

/// Like [`outcome_of`], except that an error for a missing kernel feature is not counted.
pub(crate) fn outcome_unless<T>(result: io::Result<T>, lacking: &[i32]) -> ProbeOutcome {
    match result {
        Err(error) if error.raw_os_error().is_some_and(|code| lacking.contains(&code)) => {
            ProbeOutcome::Absent(error_name(&error))
        }
        other => outcome_of(other),
    }
}

#[derive(Clone, Copy)]
pub(crate) struct SandboxProbe {
    pub(crate) name: &'static str,
    /// The system call of the attempt.
    pub(crate) call: &'static str,
    /// The restriction that should stop it; others may stop it too.
    pub(crate) restriction: TestedRestriction,
    pub(crate) stage: ProbeStage,
    pub(crate) unsandboxed: UnsandboxedResult,
    /// A documented gap of the landlock backend.
    pub(crate) documented_gap: Option<DocumentedGap>,
    /// A control that the landlock backend cannot offer, as documented.
    pub(crate) missing_with_landlock: bool,
    /// It would disturb others in the same sandbox.
    pub(crate) runs_alone: bool,
    pub(crate) kind: ProbeKind,
    pub(crate) run: fn(&AttackContext) -> ProbeOutcome,
    /// The attempt alone, where `run` checks its effect.
    pub(crate) attempt: Option<fn(&AttackContext) -> io::Result<libc::c_long>>,
}

pub(crate) const fn attack_probe(
    name: &'static str,
    call: &'static str,
    restriction: TestedRestriction,
    run: fn(&AttackContext) -> ProbeOutcome,
) -> SandboxProbe {
    let stage = ProbeStage::Plain;
    SandboxProbe {
        name,
        call,
        restriction,
        stage,
        unsandboxed: UnsandboxedResult::Succeeds,
        documented_gap: None,
        missing_with_landlock: false,
        runs_alone: false,
        kind: ProbeKind::Attack,
        run,
        attempt: None,
    }
}

/// Creates a control that must work in every sandbox. Its restriction has no meaning.
pub(crate) const fn control_probe(
    name: &'static str,
    call: &'static str,
    run: fn(&AttackContext) -> ProbeOutcome,
) -> SandboxProbe {
    let mut control = attack_probe(name, call, TestedRestriction::LandlockFiles, run);
    control.kind = ProbeKind::Control;
    control
}

/// Creates a row for something that no backend hides.
pub(crate) const fn open_probe(
    name: &'static str,
    call: &'static str,
    run: fn(&AttackContext) -> ProbeOutcome,
) -> SandboxProbe {
    let mut open = attack_probe(name, call, TestedRestriction::LandlockFiles, run);
    open.kind = ProbeKind::Open;
    open
}

impl SandboxProbe {
    pub(crate) const fn in_stage(mut self, stage: ProbeStage) -> SandboxProbe {
        self.stage = stage;
        self
    }

    pub(crate) const fn unsandboxed(mut self, bare: UnsandboxedResult) -> SandboxProbe {
        self.unsandboxed = bare;
        self
    }

    pub(crate) const fn left_by_landlock(mut self, rest: DocumentedGap) -> SandboxProbe {
        self.documented_gap = Some(rest);
        self
    }

    pub(crate) const fn missing_with_landlock(mut self) -> SandboxProbe {
        self.missing_with_landlock = true;
        self
    }

    pub(crate) const fn run_alone(mut self) -> SandboxProbe {
        self.runs_alone = true;
        self
    }
}
