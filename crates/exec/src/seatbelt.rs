//! Seatbelt: the profile of a tier C fence, as text, for macOS' `sandbox-exec`.
//!
//! Here: from a `FenceSpec` to the profile. Beneath: its quotes (`quote`). Elsewhere: who applies it, and which tool
//! chains there are (`fence`).
//! It is compiled and compared with golden files everywhere, but no kernel has been asked: whether macOS takes the
//! text, and holds what it says, can only be seen on a Mac.
//! In a profile the last rule that matches decides, so the order is: what may be read and written and what is masked
//! inside it, the deeper the later; protected names; what a person lifted; what the scope denies; the directories above
//! all of those, which must not be moved away from over them.
//! Invariant: no path breaks out of its quotes (`no_path_breaks_out_of_its_quotes`).

mod quote;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use minke_policy::{Level, NAMES, Tier, level};
use minke_record::{Permission, ScopeRule};

use crate::fence::{FenceError, FenceSpec, Network};
use quote::{folded, literal, plain, quoted, regex, subpath};

/// The parameter of the profile that names the loopback port of the pod's proxy, if there is one.
pub const PROXY_PORT: &str = "PROXY_PORT";

/// Directories of the system that every command may read.
const SYSTEM: [&str; 17] = [
    "/Applications/Xcode.app",
    "/Library/Apple",
    "/Library/Developer",
    "/Library/Frameworks",
    "/Library/Java",
    "/System",
    "/bin",
    "/nix",
    "/opt",
    "/private/etc",
    "/private/var/db/dyld",
    "/private/var/db/timezone",
    "/private/var/db/xcode_select_link",
    "/private/var/select",
    "/sbin",
    "/usr",
    "/dev/fd",
];

/// Links at the root that programs follow to them.
const LINKS: [&str; 4] = ["/", "/etc", "/tmp", "/var"];

/// What of the system is nobody's business, should the pod run as root.
const SYSTEM_SECRETS: [&str; 5] = [
    "/private/etc/krb5.keytab",
    "/private/etc/master.passwd",
    "/private/etc/ssh",
    "/private/etc/sudoers",
    "/private/etc/sudoers.d",
];

/// Devices without a memory of their own.
const DEVICES: [&str; 7] =
    ["/dev/dtracehelper", "/dev/full", "/dev/null", "/dev/random", "/dev/tty", "/dev/urandom", "/dev/zero"];

/// Services that the C library itself asks: users and groups, notifications, logs, the temporary directory. Nothing that
/// starts programs, reads the clipboard or opens a keychain.
const SERVICES: [&str; 6] = [
    "com.apple.bsd.dirhelper",
    "com.apple.logd",
    "com.apple.system.logger",
    "com.apple.system.notification_center",
    "com.apple.system.opendirectoryd.libinfo",
    "com.apple.system.opendirectoryd.membership",
];

/// Judges certificates; needed only where there is a network.
const CERTIFICATES: &str = "com.apple.trustd.agent";

/// The profile for what a pod's commands may touch. `tools` are the directories of tool chains, to be read. A path that
/// is not text, or not canonical, cannot be said in it: then there is no fence, rather than a wider one.
pub fn profile(spec: &FenceSpec, tools: &[PathBuf]) -> Result<String, FenceError> {
    if let Some(rule) = minke_policy::bad_rule(&spec.scope) {
        return Err(cannot(format!("{} is not an absolute, canonical path", rule.target)));
    }
    let mut profile = Profile { text: String::new() };
    profile.line("(version 1)");
    profile.line("(deny default)");
    profile.process();
    let ground = Ground::of(spec, tools)?;
    ground.files(&mut profile);
    ground.protect(&mut profile);
    ground.deny(&mut profile);
    profile.refuse_set_id();
    ground.hold_ancestors(&mut profile);
    ground.network(&mut profile)?;
    Ok(profile.text)
}

fn cannot(why: String) -> FenceError {
    FenceError::CannotExpress { tier: Tier::C, why }
}

/// The text as it grows.
struct Profile {
    text: String,
}

impl Profile {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn heading(&mut self, words: &str) {
        self.line("");
        self.line(&format!("; {words}"));
    }

    /// One rule with its filters, one a line. A rule without a filter would match everything, so there is none.
    fn rule(&mut self, verdict: &str, filters: &[String]) {
        if filters.is_empty() {
            return;
        }
        let _infallible = write!(self.text, "({verdict}");
        for filter in filters {
            let _infallible = write!(self.text, "\n  {filter}");
        }
        self.line(")");
    }

    fn process(&mut self) {
        self.heading("processes of the fence among themselves");
        for what in [
            "(allow process-exec*)",
            "(allow process-fork)",
            "(allow process-info* (target same-sandbox))",
            "(allow signal (target same-sandbox))",
            "(allow sysctl-read)",
            "(allow ipc-posix-sem)",
            "(allow pseudo-tty)",
        ] {
            self.line(what);
        }
        self.heading("services of the C library");
        let services: Vec<String> =
            SERVICES.iter().map(|name| format!("(global-name {})", quoted(name))).collect();
        self.rule("allow mach-lookup", &services);
        self.heading("devices");
        let devices: Vec<String> = DEVICES.iter().map(|path| literal(path)).collect();
        self.rule("allow file-read* file-write-data file-ioctl", &devices);
        self.rule("allow file-read* file-write* file-ioctl", &[literal("/dev/ptmx")]);
        // Terminals that were made in the fence; of others only what came with the command can be used at all.
        self.line(
            "(allow file-read* file-write* (require-all (regex \"^/dev/ttys[0-9]+$\") (extension \
             \"com.apple.sandbox.pty\")))",
        );
        self.line("(allow file-ioctl (regex \"^/dev/ttys[0-9]+$\"))");
    }
}

impl Profile {
    /// After everything that allows writing: no mode that a command sets may hold a set-id bit.
    fn refuse_set_id(&mut self) {
        self.heading("set-user-id and set-group-id files");
        self.line("(deny file-write-setugid)");
    }
}

/// What a rule covers: with its whole tree, or with its direct children.
fn covered(rule: &ScopeRule) -> Vec<String> {
    if rule.recursive {
        return vec![subpath(&rule.target)];
    }
    let root = rule.target.trim_end_matches('/');
    vec![literal(&rule.target), regex(&format!("^{}/[^/]+$", plain(root)))]
}

fn depth(path: &str) -> usize {
    path.split('/').filter(|part| !part.is_empty()).count()
}

fn is_below(path: &str, root: &str) -> bool {
    Path::new(path).starts_with(root)
}

/// What is done to a place, in the order in which it is written for places of the same depth.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Done {
    Read,
    Write,
    Mask,
}

/// A specification with its paths as text.
struct Ground<'a> {
    spec: &'a FenceSpec,
    tools: Vec<String>,
    masked: Vec<String>,
    lifted: Vec<String>,
    tmp: String,
    output: String,
}

impl<'a> Ground<'a> {
    fn of(spec: &'a FenceSpec, tools: &[PathBuf]) -> Result<Ground<'a>, FenceError> {
        let texts = |paths: &[PathBuf]| paths.iter().map(|path| text(path)).collect::<Result<Vec<_>, _>>();
        let mut masked = texts(&spec.masked)?;
        masked.extend(SYSTEM_SECRETS.iter().map(|path| (*path).to_owned()));
        masked.sort();
        masked.dedup();
        Ok(Ground {
            spec,
            tools: texts(tools)?,
            masked,
            lifted: texts(&spec.lifted)?,
            tmp: text(&spec.dirs.tmp)?,
            output: text(&spec.dirs.output)?,
        })
    }

    /// The roots that may be written.
    fn writes(&self) -> impl Iterator<Item = &'a ScopeRule> {
        let rules = self.spec.scope.allow.iter();
        rules.filter(|rule| rule.permission == Permission::Write && !self.spec.read_only)
    }

    /// What everybody may read: the system and tool chains, unless they lie in what is masked.
    fn readable(&self) -> impl Iterator<Item = &str> {
        let places = SYSTEM.iter().copied().chain(self.tools.iter().map(String::as_str));
        places.filter(|path| !self.masked.iter().any(|mask| is_below(path, mask)))
    }

    /// What may be read and written, and what is masked: whatever lies deeper comes later and decides.
    fn files(&self, profile: &mut Profile) {
        let mut places: Vec<(usize, Done, Vec<String>)> = Vec::new();
        let mut put =
            |path: &str, done: Done, filters: Vec<String>| places.push((depth(path), done, filters));
        for path in self.readable() {
            put(path, Done::Read, vec![subpath(path)]);
        }
        for rule in &self.spec.scope.allow {
            match rule.permission {
                Permission::Write if !self.spec.read_only => put(&rule.target, Done::Write, covered(rule)),
                Permission::Write | Permission::Read => put(&rule.target, Done::Read, covered(rule)),
                Permission::Other(_) => {}
            }
        }
        for path in &self.masked {
            put(path, Done::Mask, vec![subpath(path)]);
        }
        let tmp = if self.spec.dirs.writable_tmp { Done::Write } else { Done::Read };
        put(&self.tmp, tmp, vec![subpath(&self.tmp)]);
        put(&self.output, Done::Read, vec![subpath(&self.output)]);
        places.sort();
        places.dedup();
        profile.heading("what may be touched and what is masked inside it: the deeper, the later");
        for (_, done, filters) in places {
            let verdict = match done {
                Done::Read => "allow file-read*",
                Done::Write => "allow file-read* file-write*",
                Done::Mask => "deny file-read* file-write*",
            };
            profile.rule(verdict, &filters);
        }
        profile.heading("the way to what may be touched: names, not contents");
        let ways: Vec<String> = self.ways().iter().map(|path| literal(path)).collect();
        profile.rule("allow file-read-metadata file-test-existence", &ways);
        profile.rule("allow file-read*", &LINKS.map(literal));
    }

    /// Directories above what may be touched.
    fn ways(&self) -> BTreeSet<String> {
        let own = [self.tmp.as_str(), self.output.as_str()];
        let granted = self.spec.scope.allow.iter().map(|rule| rule.target.as_str());
        self.readable().chain(granted).chain(own).flat_map(|path| above(path, "/")).collect()
    }

    /// Protected names below every root that may be written, whether they exist or not; then what a person lifted.
    fn protect(&self, profile: &mut Profile) {
        for rule in self.writes() {
            profile.heading("names that nobody writes");
            protect_below(profile, &rule.target);
        }
        let mut lifted: Vec<&String> = self
            .lifted
            .iter()
            .filter(|path| !self.spec.read_only && level(&self.spec.scope, path) == Level::Write)
            .filter(|path| !self.masked.iter().any(|mask| is_below(path, mask)))
            .collect();
        lifted.sort_by_key(|path| depth(path));
        for path in lifted {
            profile.heading("lifted by a person");
            profile.rule("allow file-write*", &[subpath(path)]);
            protect_below(profile, path);
            let masks = self.masked.iter().filter(|mask| is_below(mask, path)).map(|mask| subpath(mask));
            profile.rule("deny file-read* file-write*", &masks.collect::<Vec<_>>());
        }
    }

    /// What the scope denies. Nothing but the network and the directories above comes after it.
    fn deny(&self, profile: &mut Profile) {
        if !self.spec.scope.deny.is_empty() {
            profile.heading("denied by the scope");
        }
        for rule in &self.spec.scope.deny {
            // A word of a later version is taken for the strictest one, and above for no grant at all.
            let verdict = match rule.permission {
                Permission::Write => "deny file-write*",
                Permission::Read | Permission::Other(_) => "deny file-read* file-write*",
            };
            profile.rule(verdict, &covered(rule));
        }
    }

    /// A directory that is moved away takes its rules' paths with it. So those above a denied or masked place stay where
    /// they are.
    fn hold_ancestors(&self, profile: &mut Profile) {
        let denied = self.spec.scope.deny.iter().map(|rule| rule.target.as_str());
        let held: Vec<&str> = denied.chain(self.masked.iter().map(String::as_str)).collect();
        let mut above_held: BTreeSet<String> = BTreeSet::new();
        for root in self.writes() {
            for path in held.iter().filter(|path| is_below(path, &root.target)) {
                above_held.extend(above(path, &root.target));
                above_held.insert((*path).to_owned());
            }
        }
        if !above_held.is_empty() {
            profile.heading("above what is denied or masked: not moved, not removed");
        }
        let filters: Vec<String> = above_held.iter().map(|path| literal(path)).collect();
        profile.rule("deny file-write-unlink", &filters);
    }

    fn network(&self, profile: &mut Profile) -> Result<(), FenceError> {
        profile.heading("network");
        if let Network::Proxy { .. } = &self.spec.network {
            let _infallible = writeln!(
                profile.text,
                "(allow network-outbound (remote tcp (string-append \"localhost:\" (param {}))))\n\
                 (allow mach-lookup (global-name {}))",
                quoted(PROXY_PORT),
                quoted(CERTIFICATES)
            );
        }
        // Denied already, and said once more by path: nothing that is allowed above may ever open our sockets.
        let mut sockets: Vec<String> = self.masked.iter().map(|path| subpath(path)).collect();
        if let Network::Proxy { socket } = &self.spec.network {
            sockets.push(literal(&text(socket)?));
        }
        profile.rule("deny network-outbound network-bind", &sockets);
        Ok(())
    }
}

/// A path as text. It must be canonical, or it would be compared with something that it is not.
fn text(path: &Path) -> Result<String, FenceError> {
    path.to_str()
        .filter(|text| minke_policy::is_canonical(text))
        .map(str::to_owned)
        .ok_or_else(|| cannot(format!("{} is not an absolute, canonical path in UTF-8", path.display())))
}

/// The directories above a path, down from a root, which is among them if the path is not the root itself.
fn above(path: &str, root: &str) -> Vec<String> {
    let above = Path::new(path).ancestors().skip(1).take_while(|dir| dir.starts_with(root));
    above.filter_map(|dir| dir.to_str().map(str::to_owned)).collect()
}

/// Denies the protected names below a root at any depth, and keeps the directories that they stand in.
fn protect_below(profile: &mut Profile, root: &str) {
    // Never `.`: whether it stands for a line break, which a name may have, is the engine's affair.
    let root = format!("^{}(/[^/]+)*/", plain(root.trim_end_matches('/')));
    let part = |part: &str| if part == "*" { "[^/]+(/[^/]+)*".to_owned() } else { folded(part) };
    let spelled = |parts: &[&str]| parts.iter().map(|one| part(one)).collect::<Vec<_>>().join("/");
    // A file of this name sends `git` to another directory's configuration.
    let mut names: Vec<String> = vec![regex(&format!("{root}{}$", folded(".git")))];
    let mut parents: BTreeSet<Vec<&str>> = BTreeSet::new();
    for name in NAMES {
        let parts: Vec<&str> = name.split('/').collect();
        names.push(regex(&format!("{root}{}(/|$)", spelled(&parts))));
        parents.extend((1..parts.len()).filter_map(|end| parts.get(..end)).map(<[&str]>::to_vec));
    }
    profile.rule("deny file-write*", &names);
    let (wild, fixed): (Vec<_>, Vec<_>) = parents.into_iter().partition(|parts| parts.contains(&"*"));
    let exactly = |parts: &Vec<&str>| regex(&format!("{root}{}$", spelled(parts)));
    let fixed: Vec<String> = fixed.iter().map(exactly).collect();
    // Neither moved away nor put there from elsewhere, where its content could have been prepared.
    profile.rule("deny file-write-create file-write-unlink", &fixed);
    let directory = |parts: &Vec<&str>| format!("(require-all {} (vnode-type DIRECTORY))", exactly(parts));
    let wild: Vec<String> = wild.iter().map(directory).collect();
    profile.rule("deny file-write-unlink", &wild);
}
