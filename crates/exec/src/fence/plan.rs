//! The plan: all that a helper is to do for one command, as a value.
//!
//! Here: what is in it and how it travels (a memory file, never arguments or variables, which others can read).
//! Elsewhere: how a scope becomes one (`compile`), who carries it out (`helper`).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use minke_policy::Tier;

use super::walls::Walls;
use super::{FenceError, FenceSpec};

/// What is the same for every command of a fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) tier: Tier,
    pub(super) walls: Walls,
    /// The lock file of the pod's fences.
    pub(super) fences: PathBuf,
    pub(super) env: BTreeMap<OsString, OsString>,
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
}

pub(super) fn compile(tier: Tier, spec: &FenceSpec, walls: Walls) -> Result<Plan, FenceError> {
    match tier {
        Tier::Off => {}
        Tier::D => {
            return Err(FenceError::NoFence { why: "no tier of fence works on this machine".to_owned() });
        }
        Tier::A | Tier::APrime | Tier::B | Tier::C => {
            return Err(FenceError::CannotExpress { tier, why: "this tier cannot be made here".to_owned() });
        }
    }
    let mut env = crate::env::build(&spec.env, std::env::vars_os());
    env.entry("TMPDIR".into()).or_insert_with(|| spec.dirs.tmp.clone().into());
    Ok(Plan { tier, walls, fences: spec.dirs.fences.clone(), env })
}

impl Errand {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Writer(Vec::with_capacity(4096));
        let Plan { tier, walls, fences, env } = &self.plan;
        out.text(tier.as_str().as_ref());
        out.number(u64::from(walls.bits()));
        out.text(fences.as_os_str());
        out.many(env.iter(), |out, (name, value)| {
            out.text(name);
            out.text(value);
        });
        out.many(self.argv.iter(), |out, argument| out.text(argument));
        out.text(self.cwd.as_os_str());
        out.number(u64::from(self.tty));
        out.many(self.limits.iter(), |out, (resource, limit)| {
            out.number(u64::from(*resource));
            out.number(*limit);
        });
        out.0
    }

    pub(super) fn decode(bytes: &[u8]) -> io::Result<Errand> {
        let mut from = Reader(bytes);
        let tier = from.text()?.to_string_lossy().parse().map_err(io::Error::other)?;
        let walls = Walls::from_bits(from.small()?);
        let fences = from.path()?;
        let env = from.many(|from| Ok((from.text()?, from.text()?)))?.into_iter().collect();
        let plan = Plan { tier, walls, fences, env };
        let argv = from.many(Reader::text)?;
        let cwd = from.path()?;
        let tty = from.number()? != 0;
        let limits = from.many(|from| Ok((from.small()?, from.number()?)))?;
        if !from.0.is_empty() {
            return Err(cut());
        }
        Ok(Errand { plan, argv, cwd, tty, limits })
    }
}

/// Numbers in eight bytes, texts with their length before them.
struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn text(&mut self, text: &OsStr) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    fn many<T>(&mut self, items: impl ExactSizeIterator<Item = T>, each: impl Fn(&mut Writer, T)) {
        self.number(items.len() as u64);
        for item in items {
            each(self, item);
        }
    }
}

struct Reader<'a>(&'a [u8]);

fn cut() -> io::Error {
    io::Error::other("the plan of the fence is damaged: pod and helper are not the same program")
}

impl Reader<'_> {
    fn number(&mut self) -> io::Result<u64> {
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

    fn path(&mut self) -> io::Result<PathBuf> {
        Ok(self.text()?.into())
    }

    fn many<T>(&mut self, each: impl Fn(&mut Self) -> io::Result<T>) -> io::Result<Vec<T>> {
        let count = self.number()?;
        // Every item takes at least one number: a count beyond that is damage, not a reason to allocate.
        if count > self.0.len() as u64 {
            return Err(cut());
        }
        (0..count).map(|_| each(self)).collect()
    }
}
