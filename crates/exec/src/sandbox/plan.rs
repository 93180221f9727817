//! The plan of a sandbox, and the helper's request for one command, as values.
//!
//! Here: their fields and their encoding. They are passed in a memory file, never in arguments or variables, which
//! other processes can read. Elsewhere: compiling a scope to a plan (`compile`), applying it (`helper`).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use minke_policy::SandboxBackend;

use super::backends::landlock::AccessRights;
use super::restrictions::Restrictions;

/// The part that all commands of a sandbox share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SandboxPlan {
    pub(super) backend: SandboxBackend,
    pub(super) restrictions: Restrictions,
    /// The pod's sandbox lock file.
    pub(super) lock_file: PathBuf,
    pub(super) env: BTreeMap<OsString, OsString>,
    /// The socket of the pod's proxy.
    pub(super) proxy: Option<PathBuf>,
    /// The path of bubblewrap, for the bubblewrap backend.
    pub(super) bubblewrap: PathBuf,
    /// The Seatbelt profile, for the seatbelt backend.
    pub(super) profile: String,
    /// Whether the root directory itself is granted.
    pub(super) writable_root: bool,
    /// The directory that is mounted as `/tmp`.
    pub(super) tmp: PathBuf,
    pub(super) mounts: Vec<PlannedMount>,
    pub(super) protected: Vec<ProtectedName>,
    pub(super) rules: Vec<(PathBuf, AccessRights)>,
}

/// A path that looks different inside the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedMount {
    pub(super) target: PathBuf,
    pub(super) kind: MountKind,
}

impl PlannedMount {
    pub(super) fn new(at: impl Into<PathBuf>, kind: MountKind) -> PlannedMount {
        PlannedMount { target: at.into(), kind }
    }
}

/// How a path appears inside the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MountKind {
    /// The pod's own temporary directory.
    Tmp { write: bool },
    /// Writable.
    Grant,
    /// Readable, although its surroundings are masked.
    Readable,
    /// Read-only: denied for writing, or lent to another pod.
    Lent,
    /// Not readable: denied.
    Hidden,
    /// Masked: a secret, or a directory of Minke.
    Masked,
    /// Inside a protected name, and made writable by the user.
    Lifted,
}

/// A name below a directory that must not be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProtectedName {
    pub(super) root: PathBuf,
    pub(super) name: PathBuf,
    /// Whether it is protected even if it does not exist.
    pub(super) hold_missing: bool,
    /// Whether a program reads it as a file; the placeholder is then an empty file.
    pub(super) is_file: bool,
}

/// The part that belongs to one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HelperRequest {
    pub(super) plan: SandboxPlan,
    pub(super) argv: Vec<OsString>,
    pub(super) cwd: PathBuf,
    pub(super) tty: bool,
    /// Resource numbers of the kernel, and their limits.
    pub(super) limits: Vec<(u32, u64)>,
    /// The umask of the command, if it differs from this process's.
    pub(super) umask: Option<u32>,
}

impl ProtectedName {
    /// Returns a name that is protected whether it exists or not.
    pub(super) fn hold_always(root: &Path, name: impl Into<PathBuf>) -> ProtectedName {
        ProtectedName { root: root.to_owned(), name: name.into(), hold_missing: true, is_file: false }
    }
}

const MOUNT_KINDS: [MountKind; 8] = [
    MountKind::Tmp { write: false },
    MountKind::Tmp { write: true },
    MountKind::Grant,
    MountKind::Readable,
    MountKind::Lent,
    MountKind::Hidden,
    MountKind::Masked,
    MountKind::Lifted,
];

impl HelperRequest {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = PlanWriter(Vec::with_capacity(4096));
        let SandboxPlan {
            backend,
            restrictions,
            lock_file,
            env,
            proxy,
            bubblewrap,
            profile,
            writable_root,
            tmp,
            mounts,
            protected,
            rules,
        } = &self.plan;
        out.write_text(backend.as_str().as_ref());
        out.write_number(u64::from(restrictions.bits()));
        out.write_text(lock_file.as_os_str());
        out.write_list(env.iter(), |out, (name, value)| {
            out.write_text(name);
            out.write_text(value);
        });
        out.write_list(proxy.iter(), |out, socket| out.write_text(socket.as_os_str()));
        out.write_text(bubblewrap.as_os_str());
        out.write_text(profile.as_ref());
        out.write_number(u64::from(*writable_root));
        out.write_text(tmp.as_os_str());
        out.write_list(mounts.iter(), |out, mount| {
            out.write_text(mount.target.as_os_str());
            out.write_number(
                MOUNT_KINDS.iter().position(|what| *what == mount.kind).unwrap_or(MOUNT_KINDS.len()) as u64,
            );
        });
        out.write_list(protected.iter(), |out, held| {
            out.write_text(held.root.as_os_str());
            out.write_text(held.name.as_os_str());
            out.write_number(u64::from(held.hold_missing));
            out.write_number(u64::from(held.is_file));
        });
        out.write_list(rules.iter(), |out, (path, rights)| {
            out.write_text(path.as_os_str());
            out.write_number(rights.bits());
        });
        out.write_list(self.argv.iter(), |out, argument| out.write_text(argument));
        out.write_text(self.cwd.as_os_str());
        out.write_number(u64::from(self.tty));
        out.write_list(self.limits.iter(), |out, (resource, limit)| {
            out.write_number(u64::from(*resource));
            out.write_number(*limit);
        });
        out.write_list(self.umask.iter(), |out, umask| out.write_number(u64::from(*umask)));
        out.0
    }

    pub(super) fn decode(bytes: &[u8]) -> io::Result<HelperRequest> {
        let mut from = PlanReader(bytes);
        let backend = from.read_text()?.to_string_lossy().parse().map_err(io::Error::other)?;
        let restrictions = Restrictions::from_bits(from.read_u32()?);
        let lock_file = from.read_path()?;
        let env = from.read_list(|from| Ok((from.read_text()?, from.read_text()?)))?.into_iter().collect();
        let proxy = from.read_list(PlanReader::read_path)?.pop();
        let bubblewrap = from.read_path()?;
        let profile = from.read_text()?.into_string().map_err(|_| truncated_error())?;
        let writable_root = from.read_number()? != 0;
        let tmp = from.read_path()?;
        let mounts = from.read_list(|from| {
            let target = from.read_path()?;
            let what = usize::try_from(from.read_number()?).ok().and_then(|place| MOUNT_KINDS.get(place));
            Ok(PlannedMount { target, kind: *what.ok_or_else(truncated_error)? })
        })?;
        let protected = from.read_list(|from| {
            let (root, name) = (from.read_path()?, from.read_path()?);
            Ok(ProtectedName {
                root,
                name,
                hold_missing: from.read_number()? != 0,
                is_file: from.read_number()? != 0,
            })
        })?;
        let rules =
            from.read_list(|from| Ok((from.read_path()?, AccessRights::from_bits(from.read_number()?))))?;
        let plan = SandboxPlan {
            backend,
            restrictions,
            lock_file,
            env,
            proxy,
            bubblewrap,
            profile,
            writable_root,
            tmp,
            mounts,
            protected,
            rules,
        };
        let argv = from.read_list(PlanReader::read_text)?;
        let cwd = from.read_path()?;
        let tty = from.read_number()? != 0;
        let limits = from.read_list(|from| Ok((from.read_u32()?, from.read_number()?)))?;
        let umask = from.read_list(PlanReader::read_u32)?.pop();
        if !from.0.is_empty() {
            return Err(truncated_error());
        }
        Ok(HelperRequest { plan, argv, cwd, tty, limits, umask })
    }
}

/// Writes numbers in eight bytes, and texts with a length prefix.
pub(super) struct PlanWriter(pub(super) Vec<u8>);

impl PlanWriter {
    pub(super) fn write_number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(super) fn write_text(&mut self, text: &OsStr) {
        self.write_number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    pub(super) fn write_list<T>(
        &mut self,
        items: impl ExactSizeIterator<Item = T>,
        each: impl Fn(&mut PlanWriter, T),
    ) {
        self.write_number(items.len() as u64);
        for item in items {
            each(self, item);
        }
    }
}

pub(super) struct PlanReader<'a>(pub(super) &'a [u8]);

pub(super) fn truncated_error() -> io::Error {
    io::Error::other("the plan of the sandbox is damaged: pod and helper are different programs")
}

impl PlanReader<'_> {
    pub(super) fn read_number(&mut self) -> io::Result<u64> {
        let (number, rest) = self.0.split_first_chunk().ok_or_else(truncated_error)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*number))
    }

    fn read_u32(&mut self) -> io::Result<u32> {
        u32::try_from(self.read_number()?).map_err(|_| truncated_error())
    }

    fn read_text(&mut self) -> io::Result<OsString> {
        let length = usize::try_from(self.read_number()?).map_err(|_| truncated_error())?;
        let (text, rest) = self.0.split_at_checked(length).ok_or_else(truncated_error)?;
        self.0 = rest;
        Ok(OsString::from_vec(text.to_vec()))
    }

    pub(super) fn read_path(&mut self) -> io::Result<PathBuf> {
        Ok(self.read_text()?.into())
    }

    pub(super) fn read_list<T>(&mut self, each: impl Fn(&mut Self) -> io::Result<T>) -> io::Result<Vec<T>> {
        let count = self.read_number()?;
        // Every item takes at least one number, so a larger count is an error and must not cause an allocation.
        if count > self.0.len() as u64 {
            return Err(truncated_error());
        }
        (0..count).map(|_| each(self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_request() -> HelperRequest {
        let plan = SandboxPlan {
            backend: SandboxBackend::Bubblewrap,
            restrictions: Restrictions::ALL.without(Restrictions::MASKS),
            lock_file: "/run/pods/a/sandboxes".into(),
            env: BTreeMap::from([("PATH".into(), OsString::from_vec(vec![0xff, b'x']))]),
            proxy: Some("/run/proxy.sock".into()),
            bubblewrap: "/usr/bin/bwrap".into(),
            profile: "(version 1)".to_owned(),
            writable_root: true,
            tmp: "/run/pods/a/tmp".into(),
            mounts: MOUNT_KINDS.iter().map(|what| PlannedMount::new("/w", *what)).collect(),
            protected: vec![ProtectedName {
                root: "/w".into(),
                name: ".git/hooks".into(),
                hold_missing: true,
                is_file: false,
            }],
            rules: vec![("/usr".into(), AccessRights::READ), ("/w".into(), AccessRights::WRITE)],
        };
        HelperRequest {
            plan,
            argv: vec!["sh".into(), "".into()],
            cwd: "/w".into(),
            tty: true,
            limits: vec![(4, u64::MAX)],
            umask: Some(0o027),
        }
    }

    #[test]
    fn a_plan_arrives_as_it_was_sent() {
        let request = sample_request();
        assert_eq!(HelperRequest::decode(&request.encode()).unwrap(), request);
    }

    #[test]
    fn a_damaged_plan_is_refused() {
        let bytes = sample_request().encode();
        for end in 0..bytes.len() {
            assert!(HelperRequest::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(HelperRequest::decode(&longer).is_err());
        let mut endless = bytes;
        endless[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(HelperRequest::decode(&endless).is_err());
    }
}
