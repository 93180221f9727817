//! The seatbelt backend: compiles a profile for `sandbox-exec` of macOS.
//!
//! Here: from a `SandboxSpec` to the profile text. In this folder: quoting (`quote`). Elsewhere: applying it, and the
//! list of tool chains (`sandbox`).
//! The profile is compared with golden files on every platform. Whether macOS accepts and enforces it can only be
//! tested on a Mac.
//! In a profile the last matching rule decides. The order is therefore: access and masks, deeper paths later; protected
//! names; paths that the user made writable; denials of the scope; ancestor directories of all of those, which must not
//! be renamed.
//! Invariant: no path breaks out of its quotes (`no_path_breaks_out_of_its_quotes`).

mod quote;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use minke_policy::{AccessLevel, PROTECTED_NAMES, SandboxBackend, access_level};
use minke_record::{Permission, ScopeRule};

use crate::spec::{NetworkAccess, SandboxError, SandboxSpec};
use quote::{case_insensitive, escape_regex, literal_filter, quote_text, regex_filter, subpath_filter};

/// The profile parameter with the loopback port of the pod's proxy, if there is one.
pub const PROXY_PORT_PARAMETER: &str = "PROXY_PORT";

/// System directories that every command may read.
const SYSTEM_DIRS: [&str; 17] = [
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

/// Symbolic links at the root that programs follow to them.
const ROOT_LINKS: [&str; 4] = ["/", "/etc", "/tmp", "/var"];

/// System files that a pod of root could read and must not.
const SYSTEM_SECRETS: [&str; 5] = [
    "/private/etc/krb5.keytab",
    "/private/etc/master.passwd",
    "/private/etc/ssh",
    "/private/etc/sudoers",
    "/private/etc/sudoers.d",
];

/// Devices that store no data.
const DEVICES: [&str; 7] =
    ["/dev/dtracehelper", "/dev/full", "/dev/null", "/dev/random", "/dev/tty", "/dev/urandom", "/dev/zero"];

/// Services that the C library uses: users and groups, notifications, logs, the temporary directory. None of them
/// starts programs, reads the clipboard or opens a keychain.
const MACH_SERVICES: [&str; 6] = [
    "com.apple.bsd.dirhelper",
    "com.apple.logd",
    "com.apple.system.logger",
    "com.apple.system.notification_center",
    "com.apple.system.opendirectoryd.libinfo",
    "com.apple.system.opendirectoryd.membership",
];

/// Verifies certificates; needed only with network access.
const TRUST_SERVICE: &str = "com.apple.trustd.agent";

/// Returns the profile for the access of a pod's commands. `tools` are readable tool chain directories. A path that is
/// not UTF-8 or not canonical is an error, because a wrong rule could weaken the sandbox.
pub fn build_profile(spec: &SandboxSpec, tools: &[PathBuf]) -> Result<String, SandboxError> {
    if let Some(rule) = minke_policy::first_invalid_rule(&spec.scope) {
        return Err(cannot_express(format!("{} is not an absolute, canonical path", rule.target)));
    }
    let mut profile = ProfileText { text: String::new() };
    profile.push_line("(version 1)");
    profile.push_line("(deny default)");
    profile.push_process_rules();
    let ground = ProfileInputs::from_spec(spec, tools)?;
    ground.push_file_rules(&mut profile);
    ground.push_protected_names(&mut profile);
    ground.push_denials(&mut profile);
    profile.refuse_set_id();
    ground.push_ancestor_rules(&mut profile);
    ground.push_network_rules(&mut profile)?;
    Ok(profile.text)
}

fn cannot_express(why: String) -> SandboxError {
    SandboxError::CannotExpress { backend: SandboxBackend::Seatbelt, why }
}

/// The growing text of a profile.
struct ProfileText {
    text: String,
}

impl ProfileText {
    fn push_line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn push_heading(&mut self, words: &str) {
        self.push_line("");
        self.push_line(&format!("; {words}"));
    }

    /// Adds a rule with one filter per line. Without filters nothing is added, because the rule would match everything.
    fn push_rule(&mut self, verdict: &str, filters: &[String]) {
        if filters.is_empty() {
            return;
        }
        let _infallible = write!(self.text, "({verdict}");
        for filter in filters {
            let _infallible = write!(self.text, "\n  {filter}");
        }
        self.push_line(")");
    }

    fn push_process_rules(&mut self) {
        self.push_heading("processes inside the sandbox");
        for what in [
            "(allow process-exec*)",
            "(allow process-fork)",
            "(allow process-info* (target same-sandbox))",
            "(allow signal (target same-sandbox))",
            "(allow sysctl-read)",
            "(allow ipc-posix-sem)",
            "(allow pseudo-tty)",
        ] {
            self.push_line(what);
        }
        self.push_heading("services of the C library");
        let services: Vec<String> =
            MACH_SERVICES.iter().map(|name| format!("(global-name {})", quote_text(name))).collect();
        self.push_rule("allow mach-lookup", &services);
        self.push_heading("devices");
        let devices: Vec<String> = DEVICES.iter().map(|path| literal_filter(path)).collect();
        self.push_rule("allow file-read* file-write-data file-ioctl", &devices);
        self.push_rule("allow file-read* file-write* file-ioctl", &[literal_filter("/dev/ptmx")]);
        // Terminals created in the sandbox; other terminals are usable only if the command inherited them.
        self.push_line(
            "(allow file-read* file-write* (require-all (regex \"^/dev/ttys[0-9]+$\") (extension \
             \"com.apple.sandbox.pty\")))",
        );
        self.push_line("(allow file-ioctl (regex \"^/dev/ttys[0-9]+$\"))");
    }
}

impl ProfileText {
    /// Denies mode bits that create set-ID files. Must come after all rules that allow writing.
    fn refuse_set_id(&mut self) {
        self.push_heading("set-user-id and set-group-id files");
        self.push_line("(deny file-write-setugid)");
    }
}

/// Returns the filters for a rule: its tree, or its direct children.
fn path_filters(rule: &ScopeRule) -> Vec<String> {
    if rule.recursive {
        return vec![subpath_filter(&rule.target)];
    }
    let root = rule.target.trim_end_matches('/');
    vec![literal_filter(&rule.target), regex_filter(&format!("^{}/[^/]+$", escape_regex(root)))]
}

fn path_depth(path: &str) -> usize {
    path.split('/').filter(|part| !part.is_empty()).count()
}

fn is_below(path: &str, root: &str) -> bool {
    Path::new(path).starts_with(root)
}

/// Access to a path, in the order of rules for paths of the same depth.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PathAction {
    Read,
    Write,
    Mask,
}

/// A specification with its paths as text.
struct ProfileInputs<'a> {
    spec: &'a SandboxSpec,
    tools: Vec<String>,
    masked: Vec<String>,
    lifted: Vec<String>,
    tmp: String,
    output: String,
}

impl<'a> ProfileInputs<'a> {
    fn from_spec(spec: &'a SandboxSpec, tools: &[PathBuf]) -> Result<ProfileInputs<'a>, SandboxError> {
        let texts =
            |paths: &[PathBuf]| paths.iter().map(|path| path_text(path)).collect::<Result<Vec<_>, _>>();
        let mut masked = texts(&spec.masked)?;
        masked.extend(SYSTEM_SECRETS.iter().map(|path| (*path).to_owned()));
        masked.sort();
        masked.dedup();
        Ok(ProfileInputs {
            spec,
            tools: texts(tools)?,
            masked,
            lifted: texts(&spec.lifted)?,
            tmp: path_text(&spec.dirs.tmp)?,
            output: path_text(&spec.dirs.output)?,
        })
    }

    /// Returns the writable roots.
    fn write_rules(&self) -> impl Iterator<Item = &'a ScopeRule> {
        let rules = self.spec.scope.allow.iter();
        rules.filter(|rule| rule.permission == Permission::Write && !self.spec.read_only)
    }

    /// Returns the system and tool chain directories, except masked ones.
    fn readable_paths(&self) -> impl Iterator<Item = &str> {
        let places = SYSTEM_DIRS.iter().copied().chain(self.tools.iter().map(String::as_str));
        places.filter(|path| !self.masked.iter().any(|mask| is_below(path, mask)))
    }

    /// Adds the rules for access and masks. Deeper paths come later and decide.
    fn push_file_rules(&self, profile: &mut ProfileText) {
        let mut places: Vec<(usize, PathAction, Vec<String>)> = Vec::new();
        let mut put = |path: &str, done: PathAction, filters: Vec<String>| {
            places.push((path_depth(path), done, filters))
        };
        for path in self.readable_paths() {
            put(path, PathAction::Read, vec![subpath_filter(path)]);
        }
        for rule in &self.spec.scope.allow {
            match rule.permission {
                Permission::Write if !self.spec.read_only => {
                    put(&rule.target, PathAction::Write, path_filters(rule))
                }
                Permission::Write | Permission::Read => {
                    put(&rule.target, PathAction::Read, path_filters(rule))
                }
                Permission::Other(_) => {}
            }
        }
        for path in &self.masked {
            put(path, PathAction::Mask, vec![subpath_filter(path)]);
        }
        let tmp = if self.spec.dirs.writable_tmp { PathAction::Write } else { PathAction::Read };
        put(&self.tmp, tmp, vec![subpath_filter(&self.tmp)]);
        put(&self.output, PathAction::Read, vec![subpath_filter(&self.output)]);
        places.sort();
        places.dedup();
        profile.push_heading("access and masks, deeper paths later");
        for (_, done, filters) in places {
            let verdict = match done {
                PathAction::Read => "allow file-read*",
                PathAction::Write => "allow file-read* file-write*",
                PathAction::Mask => "deny file-read* file-write*",
            };
            profile.push_rule(verdict, &filters);
        }
        profile.push_heading("ancestors of accessible paths: metadata only");
        let ways: Vec<String> = self.ancestor_dirs().iter().map(|path| literal_filter(path)).collect();
        profile.push_rule("allow file-read-metadata file-test-existence", &ways);
        profile.push_rule("allow file-read*", &ROOT_LINKS.map(literal_filter));
    }

    /// Returns the ancestor directories of accessible paths.
    fn ancestor_dirs(&self) -> BTreeSet<String> {
        let own = [self.tmp.as_str(), self.output.as_str()];
        let granted = self.spec.scope.allow.iter().map(|rule| rule.target.as_str());
        self.readable_paths()
            .chain(granted)
            .chain(own)
            .flat_map(|path| ancestors_between(path, "/"))
            .collect()
    }

    /// Adds the protected names below writable roots, present or not; then the paths that the user made writable.
    fn push_protected_names(&self, profile: &mut ProfileText) {
        for rule in self.write_rules() {
            profile.push_heading("protected names");
            protect_names_below(profile, &rule.target);
        }
        let mut lifted: Vec<&String> = self
            .lifted
            .iter()
            .filter(|path| !self.spec.read_only && access_level(&self.spec.scope, path) == AccessLevel::Write)
            .filter(|path| !self.masked.iter().any(|mask| is_below(path, mask)))
            .collect();
        lifted.sort_by_key(|path| path_depth(path));
        for path in lifted {
            profile.push_heading("made writable by the user");
            profile.push_rule("allow file-write*", &[subpath_filter(path)]);
            protect_names_below(profile, path);
            let masks =
                self.masked.iter().filter(|mask| is_below(mask, path)).map(|mask| subpath_filter(mask));
            profile.push_rule("deny file-read* file-write*", &masks.collect::<Vec<_>>());
        }
    }

    /// Adds the denials of the scope. Only the network and ancestor rules come after them.
    fn push_denials(&self, profile: &mut ProfileText) {
        if !self.spec.scope.deny.is_empty() {
            profile.push_heading("denied by the scope");
        }
        for rule in &self.spec.scope.deny {
            // Treat a permission of a later version as the strictest denial, and in a grant as none.
            let verdict = match rule.permission {
                Permission::Write => "deny file-write*",
                Permission::Read | Permission::Other(_) => "deny file-read* file-write*",
            };
            profile.push_rule(verdict, &path_filters(rule));
        }
    }

    /// Denies renames of the ancestors of denied or masked paths, because a renamed directory would escape its path
    /// rules.
    fn push_ancestor_rules(&self, profile: &mut ProfileText) {
        let denied = self.spec.scope.deny.iter().map(|rule| rule.target.as_str());
        let held: Vec<&str> = denied.chain(self.masked.iter().map(String::as_str)).collect();
        let mut above_held: BTreeSet<String> = BTreeSet::new();
        for root in self.write_rules() {
            for path in held.iter().filter(|path| is_below(path, &root.target)) {
                above_held.extend(ancestors_between(path, &root.target));
                above_held.insert((*path).to_owned());
            }
        }
        if !above_held.is_empty() {
            profile.push_heading("ancestors of denied or masked paths: no rename or removal");
        }
        let filters: Vec<String> = above_held.iter().map(|path| literal_filter(path)).collect();
        profile.push_rule("deny file-write-unlink", &filters);
    }

    fn push_network_rules(&self, profile: &mut ProfileText) -> Result<(), SandboxError> {
        profile.push_heading("network");
        if let NetworkAccess::Proxy { .. } = &self.spec.network {
            let _infallible = writeln!(
                profile.text,
                "(allow network-outbound (remote tcp (string-append \"localhost:\" (param {}))))\n\
                 (allow mach-lookup (global-name {}))",
                quote_text(PROXY_PORT_PARAMETER),
                quote_text(TRUST_SERVICE)
            );
        }
        // Denied already, and again by path: no rule above may ever allow Minke's sockets.
        let mut sockets: Vec<String> = self.masked.iter().map(|path| subpath_filter(path)).collect();
        if let NetworkAccess::Proxy { socket } = &self.spec.network {
            sockets.push(literal_filter(&path_text(socket)?));
        }
        profile.push_rule("deny network-outbound network-bind", &sockets);
        Ok(())
    }
}

/// Returns a path as text. It must be canonical, because rules compare text.
fn path_text(path: &Path) -> Result<String, SandboxError> {
    path.to_str().filter(|text| minke_policy::is_canonical(text)).map(str::to_owned).ok_or_else(|| {
        cannot_express(format!("{} is not an absolute, canonical path in UTF-8", path.display()))
    })
}

/// Returns the ancestors of a path from a root down, including the root unless it is the path itself.
fn ancestors_between(path: &str, root: &str) -> Vec<String> {
    let above = Path::new(path).ancestors().skip(1).take_while(|dir| dir.starts_with(root));
    above.filter_map(|dir| dir.to_str().map(str::to_owned)).collect()
}

/// Denies the protected names below a root at any depth, and protects their directories.
fn protect_names_below(profile: &mut ProfileText, root: &str) {
    // Not `.`: whether it matches a line break, which a name may contain, depends on the engine.
    let root = format!("^{}(/[^/]+)*/", escape_regex(root.trim_end_matches('/')));
    let part = |part: &str| if part == "*" { "[^/]+(/[^/]+)*".to_owned() } else { case_insensitive(part) };
    let spelled = |parts: &[&str]| parts.iter().map(|one| part(one)).collect::<Vec<_>>().join("/");
    // A file `commondir` leads `git` to another directory's configuration.
    let mut names: Vec<String> = vec![regex_filter(&format!("{root}{}$", case_insensitive(".git")))];
    let mut parents: BTreeSet<Vec<&str>> = BTreeSet::new();
    for name in PROTECTED_NAMES {
        let parts: Vec<&str> = name.split('/').collect();
        names.push(regex_filter(&format!("{root}{}(/|$)", spelled(&parts))));
        parents.extend((1..parts.len()).filter_map(|end| parts.get(..end)).map(<[&str]>::to_vec));
    }
    profile.push_rule("deny file-write*", &names);
    let (wild, fixed): (Vec<_>, Vec<_>) = parents.into_iter().partition(|parts| parts.contains(&"*"));
    let exactly = |parts: &Vec<&str>| regex_filter(&format!("{root}{}$", spelled(parts)));
    let fixed: Vec<String> = fixed.iter().map(exactly).collect();
    // Neither renamed nor created by a rename, which could bring prepared content.
    profile.push_rule("deny file-write-create file-write-unlink", &fixed);
    let directory = |parts: &Vec<&str>| format!("(require-all {} (vnode-type DIRECTORY))", exactly(parts));
    let wild: Vec<String> = wild.iter().map(directory).collect();
    profile.push_rule("deny file-write-unlink", &wild);
}
