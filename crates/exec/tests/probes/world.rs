//! The world outside: files, processes and sockets that a command must not reach, and what shows from there that it did.
//!
//! Here: building it, the fences' scope in it, looking at it again afterwards. Elsewhere: its files (`layout`), the
//! bystander that is a process (`bystander`), the attacks (`attacks`).
//! A probe that says it was held is believed only if nothing outside has changed (`Evidence`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use minke_exec::fence::{EnvRules, FenceSpec, Findings, Network, PodDirs};
use minke_policy::{DeniedPaths, Layer, Placed, Rule, RuleSet};
use minke_record::{Permission, Scope, ScopeRule};
use tempfile::TempDir;

use crate::attacks::{LOCKS, SET_ID};
use crate::bystander::Bystander;
use crate::inside::CANARY;
use crate::ipc::Ipc;
use crate::layout;
use crate::probe::{Probe, Stage};

/// A grant two levels below `/tmp`, so that one of the mount points on the way is nobody's grant.
const BELOW_TMP: &str = "grant";
/// How long after the end of a fence a daemon of it may still hold its lock.
const GONE_WITHIN: Duration = Duration::from_secs(2);

pub(crate) struct World {
    pub(crate) base: PathBuf,
    /// Where the program of the probes is, which everybody may read.
    bin: PathBuf,
    victim: Bystander,
    udp: UdpSocket,
    datagrams: UnixDatagram,
    /// A terminal of somebody else, by both of its ends.
    terminal: OwnedFd,
    pts: PathBuf,
    /// Held open so that there is something to reach; nobody ever accepts.
    tcp: Vec<TcpListener>,
    _unix: Vec<UnixListener>,
    abstract_name: String,
    leaked: Vec<OwnedFd>,
    ipc: Ipc,
    /// Somebody else's directory in the machine's `/tmp`, and a grant there.
    host_tmp: TempDir,
    tmp_grant: TempDir,
    shm_file: PathBuf,
    /// Paths that nobody may change, as they were.
    before: BTreeMap<PathBuf, Stamp>,
}

/// Changes with every change of a file or of its attributes.
type Stamp = (i64, i64, u32);

impl World {
    pub(crate) fn build(base: &Path, bin: &Path, probes: &[Probe]) -> io::Result<World> {
        fs::create_dir_all(base)?;
        layout::lay_out(base, probes)?;
        let host_tmp = tempfile::Builder::new().prefix("minke-probe-").tempdir_in("/tmp")?;
        fs::write(host_tmp.path().join("secret"), CANARY)?;
        let tmp_grant = tempfile::Builder::new().prefix("minke-grant-").tempdir_in("/tmp")?;
        fs::create_dir(tmp_grant.path().join(BELOW_TMP))?;
        let victim = Bystander::start(&bin.join("probes"), &base.join("outside/victim-file"))?;
        let udp = UdpSocket::bind("127.0.0.1:0")?;
        udp.set_nonblocking(true)?;
        let tcp = TcpListener::bind("127.0.0.1:0")?;
        let tcp6 = TcpListener::bind("[::1]:0");
        let datagrams = UnixDatagram::bind(base.join("work/host-dgram.sock"))?;
        datagrams.set_nonblocking(true)?;
        let (terminal, pts) = terminal()?;
        let abstract_name = format!("minke-probe-{}", base.display());
        let shm_file = PathBuf::from(format!("/dev/shm/minke-probe-{}", std::process::id()));
        fs::write(&shm_file, CANARY)?;

        let mut unix = vec![UnixListener::bind_addr(&SocketAddr::from_abstract_name(&abstract_name)?)?];
        let sockets = [
            "outside/unix-path-outside/socket",
            "runtime/pods/probe/pod.sock",
            "runtime/pods/other/pod.sock",
            "work/host.sock",
        ];
        for path in sockets {
            unix.push(UnixListener::bind(base.join(path))?);
        }
        answer_as_proxy(&base.join("runtime/pods/probe/proxy.sock"))?;
        let mut world = World {
            base: base.to_owned(),
            bin: bin.to_owned(),
            victim,
            udp,
            datagrams,
            terminal,
            pts,
            tcp: [Ok(tcp), tcp6].into_iter().flatten().collect(),
            abstract_name,
            leaked: leak(base)?,
            ipc: Ipc::make()?,
            host_tmp,
            tmp_grant,
            shm_file,
            _unix: unix,
            before: BTreeMap::new(),
        };
        world.before = world.stamps()?;
        Ok(world)
    }

    /// Everything that an attacker could wish to know.
    fn facts(&self) -> io::Result<BTreeMap<String, String>> {
        let mut facts = BTreeMap::new();
        let mut fact = |name: &str, value: &dyn ToString| facts.insert(name.to_owned(), value.to_string());
        fact("pod", &std::process::id());
        fact("victim", &self.victim.pid());
        fact("victim_group", &self.victim.pid());
        fact("victim_address", &self.victim.address());
        fact("victim_fd", &self.victim.descriptor());
        for (name, fd) in ["leaked_dir", "leaked_file", "leaked_writer"].into_iter().zip(&self.leaked) {
            fact(name, &fd.as_raw_fd());
        }
        for (name, value) in self.ipc.facts() {
            fact(name, &value);
        }
        for (name, listener) in ["tcp_port", "tcp6_port"].into_iter().zip(&self.tcp) {
            fact(name, &listener.local_addr()?.port());
        }
        fact("udp_port", &self.udp.local_addr()?.port());
        fact("abstract", &self.abstract_name);
        fact("host_pts", &self.pts.display());
        fact("host_tmp_file", &self.host_tmp.path().join("secret").display());
        fact("tmp_grant", &self.tmp_grant.path().join(BELOW_TMP).display());
        fact("host_name", &fs::read_to_string("/proc/sys/kernel/hostname")?.trim());
        fact("shm_file", &self.shm_file.display());
        let suid = self.bin.join("suid/probes");
        if suid.exists() {
            fact("suid", &suid.display());
        }
        Ok(facts)
    }

    pub(crate) fn program(&self) -> PathBuf {
        self.bin.join("probes")
    }

    /// The arguments by which the attacker is told everything.
    pub(crate) fn told(&self) -> io::Result<Vec<String>> {
        let facts = self.facts()?.into_iter().map(|(name, value)| format!("{name}={value}"));
        Ok([self.base.display().to_string()].into_iter().chain(facts).collect())
    }

    /// The fence of a stage.
    pub(crate) fn spec(&self, stage: Stage) -> FenceSpec {
        let pod = self.base.join("runtime/pods/probe");
        let network = match stage {
            Stage::Proxy => Network::Proxy { socket: pod.join("proxy.sock") },
            _ => Network::Off,
        };
        let home = self.base.join("home").display().to_string();
        FenceSpec {
            scope: self.scope(stage),
            read_only: stage == Stage::ReadOnly,
            dirs: PodDirs {
                tmp: pod.join("tmp"),
                output: pod.join("output"),
                fences: pod.join("fences"),
                writable_tmp: stage != Stage::ReadOnly,
            },
            masked: layout::MASKED.iter().map(|path| self.base.join(path)).collect(),
            lifted: Vec::new(),
            findings: Findings { denied: self.denied(stage), survey: None },
            network,
            env: EnvRules { pass: Vec::new(), set: BTreeMap::from([("HOME".to_owned(), home)]) },
        }
    }

    fn denied(&self, stage: Stage) -> Option<Arc<DeniedPaths>> {
        let rules = layout::RULES.iter().filter(|_| stage == Stage::Denied).map(|path| Placed {
            layer: Layer::User,
            origin: "probes".to_owned(),
            rule: Rule::parse(&format!("{{ action = \"deny\", path = \"{path}\" }}")).expect("a rule"),
        });
        let rules = RuleSet { rules: rules.collect() };
        DeniedPaths::new(&rules, &self.scope(stage), &self.base.join("work").display().to_string())
            .map(Arc::new)
    }

    fn scope(&self, stage: Stage) -> Scope {
        let rule = |target: PathBuf, permission, recursive| ScopeRule {
            target: target.display().to_string(),
            permission,
            recursive,
        };
        let below = |target: &str| self.base.join(target);
        let mut allow = vec![
            rule(below("work"), Permission::Write, true),
            rule(below("tree"), Permission::Write, true),
            rule(self.tmp_grant.path().join(BELOW_TMP), Permission::Write, true),
            rule(below("reads"), Permission::Read, true),
            rule(below("home"), Permission::Read, true),
            rule(self.bin.clone(), Permission::Read, true),
        ];
        let mut deny = Vec::new();
        if stage == Stage::Denied {
            allow.push(rule(below("flat"), Permission::Write, false));
            deny.extend(layout::DENIED.map(|path| rule(below(path), Permission::Write, true)));
            deny.extend(layout::HIDDEN.map(|path| rule(below(path), Permission::Read, true)));
        }
        Scope { allow, deny }
    }

    /// What shows from outside which probes got through, whatever they say themselves.
    pub(crate) fn evidence(&mut self) -> io::Result<Evidence> {
        let mut through = BTreeSet::new();
        let mut changed = BTreeSet::new();
        // A fence is gone when nobody holds the lock; until then it may still be tidying up.
        if !free_soon(&self.base.join("runtime/pods/probe/fences")) {
            changed.insert("the lock of the fences is still held".into());
        }
        let after = self.stamps()?;
        let outside = self.base.join("outside");
        for path in self.before.keys().chain(after.keys()) {
            if self.before.get(path) == after.get(path) {
                continue;
            }
            match path.strip_prefix(&outside).ok().and_then(|below| below.iter().next()) {
                Some(probe) => through.insert(probe.to_string_lossy().into_owned()),
                None => changed.insert(path.clone()),
            };
        }
        through.extend(self.victim.signalled()?.into_iter().map(str::to_owned));
        if self.victim.memory()? != CANARY {
            through.insert("vm-write".to_owned());
        }
        let mut buffer = [0; 64];
        while let Ok(count) = self.udp.recv(&mut buffer) {
            through.insert(String::from_utf8_lossy(&buffer[..count]).into_owned());
        }
        while let Ok(count) = self.datagrams.recv(&mut buffer) {
            through.insert(String::from_utf8_lossy(&buffer[..count]).into_owned());
        }
        if matches!(rustix::io::read(self.terminal.as_fd(), &mut buffer), Ok(1..)) {
            through.insert("terminal-outside".to_owned());
        }
        for (probe, lock) in LOCKS {
            if !free_soon(&self.base.join("work").join(lock)) {
                through.insert(probe.to_owned());
            }
        }
        for entry in fs::read_dir(self.base.join("work"))? {
            let (name, mode) = entry.and_then(|entry| Ok((entry.file_name(), entry.metadata()?.mode())))?;
            let probe = name.to_string_lossy().rsplit_once('-').map(|(probe, _)| probe.to_owned());
            through.extend(probe.filter(|probe| mode & SET_ID != 0 && probe.starts_with("set-id")));
        }
        Ok(Evidence { through, changed })
    }

    /// Everything that no command may change in any tier but for the documented rest.
    fn stamps(&self) -> io::Result<BTreeMap<PathBuf, Stamp>> {
        let mut stamps = BTreeMap::new();
        for tree in
            ["outside", "reads", "flat/sub", "home", "runtime/pods/other", "runtime/pods/probe/output"]
        {
            stamp(&self.base.join(tree), &mut stamps)?;
        }
        let names = [
            ".git/config",
            ".git/hooks",
            ".minke",
            ".mcp.json",
            ".claude",
            ".agents",
            ".bashrc",
            ".zshrc",
            ".profile",
        ];
        let names = names.map(|name| self.base.join("work").join(name));
        for name in names.into_iter().chain([self.base.join("tree/.git")]) {
            if name.symlink_metadata().is_ok() {
                stamp(&name, &mut stamps)?;
            }
        }
        Ok(stamps)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.shm_file);
    }
}

/// What was seen from outside.
pub(crate) struct Evidence {
    /// Probes that left a trace which is theirs alone.
    pub(crate) through: BTreeSet<String>,
    /// Paths that changed and might have been anybody's.
    pub(crate) changed: BTreeSet<PathBuf>,
}

fn stamp(path: &Path, into: &mut BTreeMap<PathBuf, Stamp>) -> io::Result<()> {
    let meta = path.symlink_metadata()?;
    into.insert(path.to_owned(), (meta.ctime(), meta.ctime_nsec(), meta.mode()));
    if meta.is_dir() {
        for entry in fs::read_dir(path)? {
            stamp(&entry?.path(), into)?;
        }
    }
    Ok(())
}

/// Descriptors that survive an exec: a directory, a secret, a file to be written.
fn leak(base: &Path) -> io::Result<Vec<OwnedFd>> {
    let files = [
        fs::File::open(base.join("outside/inherited-dir"))?,
        fs::File::open(base.join("outside/inherited-file/secret"))?,
        fs::File::options().append(true).open(base.join("outside/inherited-writer/secret"))?,
    ];
    for file in &files {
        rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty())?;
    }
    Ok(files.into_iter().map(OwnedFd::from).collect())
}

/// A terminal: the master's end and the path of the other.
pub(crate) fn terminal() -> io::Result<(OwnedFd, PathBuf)> {
    use rustix::pty::OpenptFlags;
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::grantpt(&master)?;
    rustix::pty::unlockpt(&master)?;
    rustix::io::ioctl_fionbio(&master, true)?;
    let path = rustix::pty::ptsname(&master, Vec::new())?;
    let path = PathBuf::from(path.into_string().map_err(io::Error::other)?);
    Ok((master, path))
}

/// Stands for the pod's proxy: answers each connection once. Ends with the process.
fn answer_as_proxy(socket: &Path) -> io::Result<()> {
    let listener = UnixListener::bind(socket)?;
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut ping = [0; 4];
            if stream.read_exact(&mut ping).is_ok() {
                let _ = stream.write_all(b"pong");
            }
        }
    });
    Ok(())
}

/// Whether nobody holds the lock, or lets go of it in time.
fn free_soon(path: &Path) -> bool {
    let Ok(file) = fs::File::open(path) else { return true };
    let end = Instant::now() + GONE_WITHIN;
    loop {
        if rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        thread::sleep(Duration::from_millis(2));
    }
}
