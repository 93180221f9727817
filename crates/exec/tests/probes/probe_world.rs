//! The world outside the sandbox: files, processes and sockets that a command must not reach, and evidence of attacks.
//!
//! Here: creating it, the scopes of the sandboxes, and collecting evidence afterwards. Elsewhere: its files (`layout`),
//! the bystander process (`bystander`), the attacks (`attacks`).
//! A stopped attack counts only if nothing outside has changed (`OutsideEvidence`).

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

use minke_exec::sandbox::{EnvRules, NetworkAccess, PodDirs, SandboxSpec, ScopeFindings};
use minke_policy::{DeniedPaths, LayeredRule, PolicyRule, RuleLayer, RuleSet};
use minke_record::{Permission, Scope, ScopeRule};
use tempfile::TempDir;

use crate::attacker::CANARY;
use crate::attacks::{DAEMON_LOCKS, SET_ID};
use crate::bystander::BystanderProcess;
use crate::ipc::IpcObjects;
use crate::layout;
use crate::probe::{ProbeStage, SandboxProbe};

/// A grant two levels below `/tmp`, so that one mount point in between is not part of a grant.
const BELOW_TMP: &str = "grant";
/// How long a daemon may hold the lock after the end of its sandbox.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) struct ProbeWorld {
    pub(crate) base: PathBuf,
    /// The directory of the probe program, readable for all users.
    bin: PathBuf,
    victim: BystanderProcess,
    udp: UdpSocket,
    datagrams: UnixDatagram,
    /// Another user's terminal, both ends.
    terminal: OwnedFd,
    pts: PathBuf,
    /// Listening sockets as targets; connections are never accepted.
    tcp: Vec<TcpListener>,
    _unix: Vec<UnixListener>,
    abstract_name: String,
    leaked: Vec<OwnedFd>,
    ipc: IpcObjects,
    /// A directory of another user in the host's `/tmp`, and a grant there.
    host_tmp: TempDir,
    tmp_grant: TempDir,
    shm_file: PathBuf,
    /// Paths that must not change, with their initial stamps.
    stamps_before: BTreeMap<PathBuf, PathStamp>,
}

/// Changes with every change of a file or its attributes.
type PathStamp = (i64, i64, u32);

impl ProbeWorld {
    pub(crate) fn build_world(base: &Path, bin: &Path, probes: &[SandboxProbe]) -> io::Result<ProbeWorld> {
        fs::create_dir_all(base)?;
        layout::create_layout(base, probes)?;
        let host_tmp = tempfile::Builder::new().prefix("minke-probe-").tempdir_in("/tmp")?;
        fs::write(host_tmp.path().join("secret"), CANARY)?;
        let tmp_grant = tempfile::Builder::new().prefix("minke-grant-").tempdir_in("/tmp")?;
        fs::create_dir(tmp_grant.path().join(BELOW_TMP))?;
        let victim = BystanderProcess::start(&bin.join("probes"), &base.join("outside/victim-file"))?;
        let udp = UdpSocket::bind("127.0.0.1:0")?;
        udp.set_nonblocking(true)?;
        let tcp = TcpListener::bind("127.0.0.1:0")?;
        let tcp6 = TcpListener::bind("[::1]:0");
        let datagrams = UnixDatagram::bind(base.join("work/host-dgram.sock"))?;
        datagrams.set_nonblocking(true)?;
        let (terminal, pts) = open_terminal()?;
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
        serve_fake_proxy(&base.join("runtime/pods/probe/proxy.sock"))?;
        let mut world = ProbeWorld {
            base: base.to_owned(),
            bin: bin.to_owned(),
            victim,
            udp,
            datagrams,
            terminal,
            pts,
            tcp: [Ok(tcp), tcp6].into_iter().flatten().collect(),
            abstract_name,
            leaked: leak_descriptors(base)?,
            ipc: IpcObjects::create_objects()?,
            host_tmp,
            tmp_grant,
            shm_file,
            _unix: unix,
            stamps_before: BTreeMap::new(),
        };
        world.stamps_before = world.file_stamps()?;
        Ok(world)
    }

    /// Returns the attacker's knowledge.
    fn attack_facts(&self) -> io::Result<BTreeMap<String, String>> {
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
        for (name, value) in self.ipc.ipc_facts() {
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

    /// Returns the arguments of the attacker.
    pub(crate) fn attacker_arguments(&self) -> io::Result<Vec<String>> {
        let facts = self.attack_facts()?.into_iter().map(|(name, value)| format!("{name}={value}"));
        Ok([self.base.display().to_string()].into_iter().chain(facts).collect())
    }

    /// Returns the sandbox specification of a stage.
    pub(crate) fn sandbox_spec(&self, stage: ProbeStage) -> SandboxSpec {
        let pod = self.base.join("runtime/pods/probe");
        let network = match stage {
            ProbeStage::Proxy => NetworkAccess::Proxy { socket: pod.join("proxy.sock") },
            _ => NetworkAccess::Off,
        };
        let home = self.base.join("home").display().to_string();
        SandboxSpec {
            scope: self.stage_scope(stage),
            read_only: stage == ProbeStage::ReadOnly,
            dirs: PodDirs {
                tmp: pod.join("tmp"),
                output: pod.join("output"),
                lock_file: pod.join("sandboxes"),
                writable_tmp: stage != ProbeStage::ReadOnly,
            },
            masked: layout::MASKED_PATHS.iter().map(|path| self.base.join(path)).collect(),
            lifted: Vec::new(),
            findings: ScopeFindings { denied: self.denied_paths(stage), survey: None },
            network,
            env: EnvRules { pass: Vec::new(), set: BTreeMap::from([("HOME".to_owned(), home)]) },
        }
    }

    fn denied_paths(&self, stage: ProbeStage) -> Option<Arc<DeniedPaths>> {
        let rules =
            layout::DENY_RULES.iter().filter(|_| stage == ProbeStage::Denied).map(|path| LayeredRule {
                layer: RuleLayer::User,
                origin: "probes".to_owned(),
                rule: PolicyRule::parse(&format!("{{ action = \"deny\", path = \"{path}\" }}"))
                    .expect("a rule"),
            });
        let rules = RuleSet { rules: rules.collect() };
        DeniedPaths::new(&rules, &self.stage_scope(stage), &self.base.join("work").display().to_string())
            .map(Arc::new)
    }

    fn stage_scope(&self, stage: ProbeStage) -> Scope {
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
        if stage == ProbeStage::Denied {
            allow.push(rule(below("flat"), Permission::Write, false));
            deny.extend(layout::DENIED_PATHS.map(|path| rule(below(path), Permission::Write, true)));
            deny.extend(layout::HIDDEN_PATHS.map(|path| rule(below(path), Permission::Read, true)));
        }
        Scope { allow, deny }
    }

    /// Collects evidence from outside about successful probes, whatever they report.
    pub(crate) fn collect_evidence(&mut self) -> io::Result<OutsideEvidence> {
        let mut succeeded = BTreeSet::new();
        let mut changed = BTreeSet::new();
        // The sandbox has ended when its lock is free; until then it may still remove placeholders.
        if !is_unlocked_soon(&self.base.join("runtime/pods/probe/sandboxes")) {
            changed.insert("the sandbox lock is still held".into());
        }
        let after = self.file_stamps()?;
        let outside = self.base.join("outside");
        for path in self.stamps_before.keys().chain(after.keys()) {
            if self.stamps_before.get(path) == after.get(path) {
                continue;
            }
            match path.strip_prefix(&outside).ok().and_then(|below| below.iter().next()) {
                Some(probe) => succeeded.insert(probe.to_string_lossy().into_owned()),
                None => changed.insert(path.clone()),
            };
        }
        succeeded.extend(self.victim.pending_probes()?.into_iter().map(str::to_owned));
        if self.victim.read_memory()? != CANARY {
            succeeded.insert("vm-write".to_owned());
        }
        let mut buffer = [0; 64];
        while let Ok(count) = self.udp.recv(&mut buffer) {
            succeeded.insert(String::from_utf8_lossy(&buffer[..count]).into_owned());
        }
        while let Ok(count) = self.datagrams.recv(&mut buffer) {
            succeeded.insert(String::from_utf8_lossy(&buffer[..count]).into_owned());
        }
        if matches!(rustix::io::read(self.terminal.as_fd(), &mut buffer), Ok(1..)) {
            succeeded.insert("terminal-outside".to_owned());
        }
        for (probe, lock) in DAEMON_LOCKS {
            if !is_unlocked_soon(&self.base.join("work").join(lock)) {
                succeeded.insert(probe.to_owned());
            }
        }
        for entry in fs::read_dir(self.base.join("work"))? {
            let (name, mode) = entry.and_then(|entry| Ok((entry.file_name(), entry.metadata()?.mode())))?;
            let probe = name.to_string_lossy().rsplit_once('-').map(|(probe, _)| probe.to_owned());
            succeeded.extend(probe.filter(|probe| mode & SET_ID != 0 && probe.starts_with("set-id")));
        }
        Ok(OutsideEvidence { succeeded, changed })
    }

    /// Returns stamps of all paths that no command may change in any backend, except for documented gaps.
    fn file_stamps(&self) -> io::Result<BTreeMap<PathBuf, PathStamp>> {
        let mut stamps = BTreeMap::new();
        for tree in
            ["outside", "reads", "flat/sub", "home", "runtime/pods/other", "runtime/pods/probe/output"]
        {
            record_stamp(&self.base.join(tree), &mut stamps)?;
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
                record_stamp(&name, &mut stamps)?;
            }
        }
        Ok(stamps)
    }
}

impl Drop for ProbeWorld {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.shm_file);
    }
}

/// Evidence from outside.
pub(crate) struct OutsideEvidence {
    /// Probes that left a trace that only they could leave.
    pub(crate) succeeded: BTreeSet<String>,
    /// Changed paths that any probe could have changed.
    pub(crate) changed: BTreeSet<PathBuf>,
}

fn record_stamp(path: &Path, into: &mut BTreeMap<PathBuf, PathStamp>) -> io::Result<()> {
    let meta = path.symlink_metadata()?;
    into.insert(path.to_owned(), (meta.ctime(), meta.ctime_nsec(), meta.mode()));
    if meta.is_dir() {
        for entry in fs::read_dir(path)? {
            record_stamp(&entry?.path(), into)?;
        }
    }
    Ok(())
}

/// Opens descriptors that survive an exec: a directory, a secret, a writable file.
fn leak_descriptors(base: &Path) -> io::Result<Vec<OwnedFd>> {
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

/// Opens a terminal: the master and the path of the other end.
pub(crate) fn open_terminal() -> io::Result<(OwnedFd, PathBuf)> {
    use rustix::pty::OpenptFlags;
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::grantpt(&master)?;
    rustix::pty::unlockpt(&master)?;
    rustix::io::ioctl_fionbio(&master, true)?;
    let path = rustix::pty::ptsname(&master, Vec::new())?;
    let path = PathBuf::from(path.into_string().map_err(io::Error::other)?);
    Ok((master, path))
}

/// Acts as the pod's proxy: replies to each connection once. Ends with the process.
fn serve_fake_proxy(socket: &Path) -> io::Result<()> {
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

/// Whether the lock is free, or becomes free in time.
fn is_unlocked_soon(path: &Path) -> bool {
    let Ok(file) = fs::File::open(path) else { return true };
    let end = Instant::now() + LOCK_TIMEOUT;
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
