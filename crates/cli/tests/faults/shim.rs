//! The shim as used by the test: compiling it, its kinds of faults, its environment.
//!
//! Here: also the shim's own test on small programs, so that a sweep without faults cannot pass.
//! Elsewhere: its source (`crates/testkit/shim/faults.c`), the sweep (`main.rs`).

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use tempfile::TempDir;

/// Kind of fault, with the names of the shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultKind {
    KillBefore,
    KillAfter,
    /// Half of a write, then signal 9.
    Torn,
    /// Half of a write, with the short count.
    Short,
    Enospc,
    /// A full disk from here on, except for freed space.
    Full,
    Eio,
    Eintr,
}

impl FaultKind {
    pub(crate) const ALL: [FaultKind; 8] = [
        FaultKind::KillBefore,
        FaultKind::KillAfter,
        FaultKind::Torn,
        FaultKind::Short,
        FaultKind::Enospc,
        FaultKind::Full,
        FaultKind::Eio,
        FaultKind::Eintr,
    ];

    pub(crate) fn kind_name(self) -> &'static str {
        match self {
            FaultKind::KillBefore => "kill_before",
            FaultKind::KillAfter => "kill_after",
            FaultKind::Torn => "torn",
            FaultKind::Short => "short",
            FaultKind::Enospc => "enospc",
            FaultKind::Full => "full",
            FaultKind::Eio => "eio",
            FaultKind::Eintr => "eintr",
        }
    }

    pub(crate) fn is_killing(self) -> bool {
        matches!(self, FaultKind::KillBefore | FaultKind::KillAfter | FaultKind::Torn)
    }
}

/// The compiled shim.
pub(crate) struct FaultShim {
    library: PathBuf,
    _folder: TempDir,
}

impl FaultShim {
    /// Compiles it. Returns `None` with a message without a C compiler; with `MINKE_NO_SKIP` that is a
    /// failure.
    pub(crate) fn compile() -> Option<FaultShim> {
        let folder = TempDir::new().expect("a temporary directory can be created");
        let library = folder.path().join("faults.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/shim/faults.c");
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let built = Command::new(&compiler)
            .args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&library)
            .arg(&source)
            .output();
        match built {
            Ok(output) if output.status.success() => Some(FaultShim { library, _folder: folder }),
            Ok(output) => panic!("the shim does not compile:\n{}", String::from_utf8_lossy(&output.stderr)),
            Err(why) => {
                let said =
                    format!("skipped: {} cannot be run ({why}); install a C compiler", compiler.display());
                assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "{said}");
                eprintln!("{said}");
                None
            }
        }
    }

    /// Runs a program with the shim. `desk` contains the files of the shim, outside `root`.
    pub(crate) fn arm_command(
        &self,
        command: &mut Command,
        fault: (&str, u64),
        [root, shim_dir]: [&Path; 2],
    ) {
        let (kind, n) = fault;
        std::fs::create_dir_all(shim_dir.join("seen")).expect("the shim's directory can be created");
        std::fs::write(shim_dir.join("state"), [0; 64]).expect("the shim's state can be written");
        command
            .env("LD_PRELOAD", &self.library)
            .env("MINKE_FAULT", kind)
            .env("MINKE_FAULT_AT", n.to_string())
            .env("MINKE_FAULT_ROOT", root)
            .env("MINKE_FAULT_STATE", shim_dir.join("state"))
            .env("MINKE_FAULT_LOG", shim_dir.join("log"))
            .env("MINKE_FAULT_SEEN", shim_dir.join("seen"));
    }

    /// Returns true if the fault of the last armed program happened.
    pub(crate) fn has_fired(desk: &Path) -> bool {
        state_word(desk, 1) == 1
    }
}

/// Reads the shim's state, an array of 64-bit words: operations counted, fault happened, bytes free.
fn state_word(shim_dir: &Path, index: usize) -> u64 {
    let bytes = std::fs::read(shim_dir.join("state")).expect("the shim's state can be read");
    let word = bytes.chunks_exact(8).nth(index).expect("the state has three words");
    u64::from_ne_bytes(word.try_into().expect("a word has eight bytes"))
}

/// Runs a shell command in a fresh root. Returns its exit status, the content of `a`, and whether the fault
/// happened.
fn run_shell(shim: &FaultShim, fault: (&str, u64), line: &str) -> (ExitStatus, Option<Vec<u8>>, bool) {
    let folder = TempDir::new().expect("a temporary directory can be created");
    let (root, shim_dir) = (folder.path().join("root"), folder.path().join("desk"));
    std::fs::create_dir(&root).expect("the root can be created");
    std::fs::write(folder.path().join("eight"), "12345678").expect("eight bytes can be written");
    let mut command = Command::new("sh");
    command.current_dir(&root).args(["-c", line]).stderr(Stdio::null());
    shim.arm_command(&mut command, fault, [&root, &shim_dir]);
    let status = command.status().expect("sh can be run");
    (status, std::fs::read(root.join("a")).ok(), FaultShim::has_fired(&shim_dir))
}

#[test]
fn the_shim_breaks_what_it_is_told_to_break() {
    let Some(shim) = FaultShim::compile() else { return };
    let copy = |kind, n| run_shell(&shim, (kind, n), "cp ../eight a");
    let eight = Some(b"12345678".to_vec());
    let empty = Some(Vec::new());

    // `cp` writes its file with one call; without a fault it is unchanged.
    let (status, left, fired) = copy("none", 0);
    assert!(status.success() && !fired);
    assert_eq!(left, eight);
    // After the last operation no fault happens, which ends a sweep.
    let (status, left, fired) = copy("kill_before", 3);
    assert!(status.success() && !fired);
    assert_eq!(left, eight);

    for (kind, n, kept) in [
        ("kill_before", 1, &None),
        ("kill_after", 1, &empty),
        ("kill_before", 2, &empty),
        ("kill_after", 2, &eight),
        ("torn", 1, &Some(b"1234".to_vec())),
    ] {
        let (status, left, fired) = copy(kind, n);
        assert!(fired && !status.success(), "{kind} at {n}");
        assert_eq!(&left, kept, "{kind} at {n}");
    }
    assert_eq!(copy("short", 1), (ExitStatus::default(), eight.clone(), true), "cp writes the rest");

    for kind in ["eio", "enospc"] {
        let (status, left, fired) = copy(kind, 2);
        assert!(fired && !status.success(), "{kind}");
        assert_eq!(left, empty, "{kind}");
        let (status, left, fired) = run_shell(&shim, (kind, 1), "mkdir b || cp ../eight a");
        assert!(fired && status.success(), "{kind} happens once");
        assert_eq!(left, eight, "{kind}");
    }

    // A full disk stays full, except for freed space.
    let (_, left, fired) = run_shell(&shim, ("full", 2), "cp ../eight b; cp ../eight c; cp ../eight a");
    assert_eq!((left, fired), (empty, true));
    let (_, left, _) = run_shell(&shim, ("full", 2), "cp ../eight b; cp ../eight c; rm b; cp ../eight a");
    assert_eq!(left, eight);
}
