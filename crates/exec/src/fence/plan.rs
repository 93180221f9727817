//! The plan: all that a helper is to do for one command, as a value.
//!
//! Here: what is in it and how it travels (a memory file, never arguments or variables, which others can read).
//! Elsewhere: how a scope becomes one (`compile`), who carries it out (`helper`).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use minke_policy::Tier;

use super::landlock::Rights;
use super::walls::Walls;

/// What is the same for every command of a fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) tier: Tier,
    pub(super) walls: Walls,
    /// The lock file of the pod's fences.
    pub(super) fences: PathBuf,
    pub(super) env: BTreeMap<OsString, OsString>,
    /// The socket of the pod's proxy.
    pub(super) proxy: Option<PathBuf>,
    /// The system's maker of namespaces, in tier A′.
    pub(super) bwrap: PathBuf,
    /// The Seatbelt profile, in tier C.
    pub(super) profile: String,
    /// The root itself is granted.
    pub(super) writable_root: bool,
    /// What becomes `/tmp`.
    pub(super) tmp: PathBuf,
    pub(super) mounts: Vec<Mount>,
    pub(super) protected: Vec<Protected>,
    pub(super) rules: Vec<(PathBuf, Rights)>,
}

/// One place whose look differs inside the fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) at: PathBuf,
    pub(super) what: What,
}

impl Mount {
    pub(super) fn new(at: impl Into<PathBuf>, what: What) -> Mount {
        Mount { at: at.into(), what }
    }
}

/// What a place is inside the fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// The pod's own temporary directory.
    Tmp { write: bool },
    /// May be written.
    Grant,
    /// May be read, though what lies around it is masked.
    Shown,
    /// Denied to write, or lent to another pod.
    Lent,
    /// Denied to read.
    Hidden,
    /// A secret, or a directory of ours.
    Masked,
    /// Inside a protected name, and lifted by a person.
    Lifted,
}

/// A name that is not to be written below a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Protected {
    pub(super) root: PathBuf,
    pub(super) name: PathBuf,
    /// It is held even where nothing is there yet.
    pub(super) missing: bool,
    /// Something reads it as a file, so an empty file stands in where nothing is.
    pub(super) is_file: bool,
}

/// What is one command's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Errand {
    pub(super) plan: Plan,
    pub(super) argv: Vec<OsString>,
    pub(super) cwd: PathBuf,
    pub(super) tty: bool,
    /// Resource and its limit, numbered as the kernel does.
    pub(super) limits: Vec<(u32, u64)>,
    /// What the command has instead of this process's own.
    pub(super) umask: Option<u32>,
}

impl Protected {
    /// A name that is held, there or not.
    pub(super) fn name(root: &Path, name: impl Into<PathBuf>) -> Protected {
        Protected { root: root.to_owned(), name: name.into(), missing: true, is_file: false }
    }
}

const WHATS: [What; 8] = [
    What::Tmp { write: false },
    What::Tmp { write: true },
    What::Grant,
    What::Shown,
    What::Lent,
    What::Hidden,
    What::Masked,
    What::Lifted,
];

impl Errand {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Writer(Vec::with_capacity(4096));
        let Plan {
            tier,
            walls,
            fences,
            env,
            proxy,
            bwrap,
            profile,
            writable_root,
            tmp,
            mounts,
            protected,
            rules,
        } = &self.plan;
        out.text(tier.as_str().as_ref());
        out.number(u64::from(walls.bits()));
        out.text(fences.as_os_str());
        out.many(env.iter(), |out, (name, value)| {
            out.text(name);
            out.text(value);
        });
        out.many(proxy.iter(), |out, socket| out.text(socket.as_os_str()));
        out.text(bwrap.as_os_str());
        out.text(profile.as_ref());
        out.number(u64::from(*writable_root));
        out.text(tmp.as_os_str());
        out.many(mounts.iter(), |out, mount| {
            out.text(mount.at.as_os_str());
            out.number(WHATS.iter().position(|what| *what == mount.what).unwrap_or(WHATS.len()) as u64);
        });
        out.many(protected.iter(), |out, held| {
            out.text(held.root.as_os_str());
            out.text(held.name.as_os_str());
            out.number(u64::from(held.missing));
            out.number(u64::from(held.is_file));
        });
        out.many(rules.iter(), |out, (path, rights)| {
            out.text(path.as_os_str());
            out.number(rights.bits());
        });
        out.many(self.argv.iter(), |out, argument| out.text(argument));
        out.text(self.cwd.as_os_str());
        out.number(u64::from(self.tty));
        out.many(self.limits.iter(), |out, (resource, limit)| {
            out.number(u64::from(*resource));
            out.number(*limit);
        });
        out.many(self.umask.iter(), |out, umask| out.number(u64::from(*umask)));
        out.0
    }

    pub(super) fn decode(bytes: &[u8]) -> io::Result<Errand> {
        let mut from = Reader(bytes);
        let tier = from.text()?.to_string_lossy().parse().map_err(io::Error::other)?;
        let walls = Walls::from_bits(from.small()?);
        let fences = from.path()?;
        let env = from.many(|from| Ok((from.text()?, from.text()?)))?.into_iter().collect();
        let proxy = from.many(Reader::path)?.pop();
        let bwrap = from.path()?;
        let profile = from.text()?.into_string().map_err(|_| cut())?;
        let writable_root = from.number()? != 0;
        let tmp = from.path()?;
        let mounts = from.many(|from| {
            let at = from.path()?;
            let what = usize::try_from(from.number()?).ok().and_then(|place| WHATS.get(place));
            Ok(Mount { at, what: *what.ok_or_else(cut)? })
        })?;
        let protected = from.many(|from| {
            let (root, name) = (from.path()?, from.path()?);
            Ok(Protected { root, name, missing: from.number()? != 0, is_file: from.number()? != 0 })
        })?;
        let rules = from.many(|from| Ok((from.path()?, Rights::from_bits(from.number()?))))?;
        let plan = Plan {
            tier,
            walls,
            fences,
            env,
            proxy,
            bwrap,
            profile,
            writable_root,
            tmp,
            mounts,
            protected,
            rules,
        };
        let argv = from.many(Reader::text)?;
        let cwd = from.path()?;
        let tty = from.number()? != 0;
        let limits = from.many(|from| Ok((from.small()?, from.number()?)))?;
        let umask = from.many(Reader::small)?.pop();
        if !from.0.is_empty() {
            return Err(cut());
        }
        Ok(Errand { plan, argv, cwd, tty, limits, umask })
    }
}

/// Numbers in eight bytes, texts with their length before them.
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(super) fn text(&mut self, text: &OsStr) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    pub(super) fn many<T>(&mut self, items: impl ExactSizeIterator<Item = T>, each: impl Fn(&mut Writer, T)) {
        self.number(items.len() as u64);
        for item in items {
            each(self, item);
        }
    }
}

pub(super) struct Reader<'a>(pub(super) &'a [u8]);

pub(super) fn cut() -> io::Error {
    io::Error::other("the plan of the fence is damaged: pod and helper are not the same program")
}

impl Reader<'_> {
    pub(super) fn number(&mut self) -> io::Result<u64> {
        let (number, rest) = self.0.split_first_chunk().ok_or_else(cut)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*number))
    }

    fn small(&mut self) -> io::Result<u32> {
        u32::try_from(self.number()?).map_err(|_| cut())
    }

    fn text(&mut self) -> io::Result<OsString> {
        let length = usize::try_from(self.number()?).map_err(|_| cut())?;
        let (text, rest) = self.0.split_at_checked(length).ok_or_else(cut)?;
        self.0 = rest;
        Ok(OsString::from_vec(text.to_vec()))
    }

    pub(super) fn path(&mut self) -> io::Result<PathBuf> {
        Ok(self.text()?.into())
    }

    pub(super) fn many<T>(&mut self, each: impl Fn(&mut Self) -> io::Result<T>) -> io::Result<Vec<T>> {
        let count = self.number()?;
        // Every item takes at least one number: a count beyond that is damage, not a reason to allocate.
        if count > self.0.len() as u64 {
            return Err(cut());
        }
        (0..count).map(|_| each(self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errand() -> Errand {
        let plan = Plan {
            tier: Tier::APrime,
            walls: Walls::ALL.without(Walls::MASKS),
            fences: "/run/pods/a/fences".into(),
            env: BTreeMap::from([("PATH".into(), OsString::from_vec(vec![0xff, b'x']))]),
            proxy: Some("/run/proxy.sock".into()),
            bwrap: "/usr/bin/bwrap".into(),
            profile: "(version 1)".to_owned(),
            writable_root: true,
            tmp: "/run/pods/a/tmp".into(),
            mounts: WHATS.iter().map(|what| Mount::new("/w", *what)).collect(),
            protected: vec![Protected {
                root: "/w".into(),
                name: ".git/hooks".into(),
                missing: true,
                is_file: false,
            }],
            rules: vec![("/usr".into(), Rights::READ), ("/w".into(), Rights::WRITE)],
        };
        Errand {
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
        let errand = errand();
        assert_eq!(Errand::decode(&errand.encode()).unwrap(), errand);
    }

    #[test]
    fn a_damaged_plan_is_refused() {
        let bytes = errand().encode();
        for end in 0..bytes.len() {
            assert!(Errand::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(Errand::decode(&longer).is_err());
        let mut endless = bytes;
        endless[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(Errand::decode(&endless).is_err());
    }
}
