//! The shim from the test's side: building it, its kinds of faults, what it needs in the environment.
//!
//! Here: also the shim's own test on small programs, so that a sweep that meets nothing cannot pass for a good one.
//! Elsewhere: its source (`crates/testkit/shim/faults.c`), the sweep (`main.rs`).

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use tempfile::TempDir;

/// What goes wrong. The names are the shim's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    KillBefore,
    KillAfter,
    /// Half of a write, then signal 9.
    Torn,
    /// Half of a write, and the count says so.
    Short,
    Enospc,
    /// The disk is full from here on, but for what is given back.
    Full,
    Eio,
    Eintr,
}

impl Kind {
    pub(crate) const ALL: [Kind; 8] = [
        Kind::KillBefore,
        Kind::KillAfter,
        Kind::Torn,
        Kind::Short,
        Kind::Enospc,
        Kind::Full,
        Kind::Eio,
        Kind::Eintr,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::KillBefore => "kill_before",
            Kind::KillAfter => "kill_after",
            Kind::Torn => "torn",
            Kind::Short => "short",
            Kind::Enospc => "enospc",
            Kind::Full => "full",
            Kind::Eio => "eio",
            Kind::Eintr => "eintr",
        }
    }

    pub(crate) fn kills(self) -> bool {
        matches!(self, Kind::KillBefore | Kind::KillAfter | Kind::Torn)
    }
}

/// The compiled shim.
pub(crate) struct Shim {
    library: PathBuf,
    _folder: TempDir,
}

impl Shim {
    /// Compiles it. `None`, said aloud, where there is no C compiler; with `MINKE_NO_SKIP` that is a failure.
    pub(crate) fn build() -> Option<Shim> {
        let folder = TempDir::new().expect("a temporary directory can be made");
        let library = folder.path().join("faults.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/shim/faults.c");
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let built = Command::new(&compiler)
            .args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&library)
            .arg(&source)
            .output();
        match built {
            Ok(output) if output.status.success() => Some(Shim { library, _folder: folder }),
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

    /// Puts a program under the shim. `desk` holds the shim's own files and lies outside `root`.
    pub(crate) fn arm(&self, command: &mut Command, fault: (&str, u64), [root, desk]: [&Path; 2]) {
        let (kind, n) = fault;
        std::fs::create_dir_all(desk.join("seen")).expect("the desk can be made");
        std::fs::write(desk.join("state"), [0; 64]).expect("the shim's state can be written");
        command
            .env("LD_PRELOAD", &self.library)
            .env("MINKE_FAULT", kind)
            .env("MINKE_FAULT_AT", n.to_string())
            .env("MINKE_FAULT_ROOT", root)
            .env("MINKE_FAULT_STATE", desk.join("state"))
            .env("MINKE_FAULT_LOG", desk.join("log"))
            .env("MINKE_FAULT_SEEN", desk.join("seen"));
    }

    /// Whether the fault of the last armed program happened.
    pub(crate) fn fired(desk: &Path) -> bool {
        state_word(desk, 1) == 1
    }
}

/// The shim's state is an array of 64-bit words: operations counted, fault happened, bytes free.
fn state_word(desk: &Path, index: usize) -> u64 {
    let bytes = std::fs::read(desk.join("state")).expect("the shim's state can be read");
    let word = bytes.chunks_exact(8).nth(index).expect("the state has three words");
    u64::from_ne_bytes(word.try_into().expect("a word has eight bytes"))
}

/// Runs a line of shell in a fresh root, gives how it ended, what it left in `a`, and whether the fault happened.
fn shell(shim: &Shim, fault: (&str, u64), line: &str) -> (ExitStatus, Option<Vec<u8>>, bool) {
    let folder = TempDir::new().expect("a temporary directory can be made");
    let (root, desk) = (folder.path().join("root"), folder.path().join("desk"));
    std::fs::create_dir(&root).expect("the root can be made");
    std::fs::write(folder.path().join("eight"), "12345678").expect("eight bytes can be written");
    let mut command = Command::new("sh");
    command.current_dir(&root).args(["-c", line]).stderr(Stdio::null());
    shim.arm(&mut command, fault, [&root, &desk]);
    let status = command.status().expect("sh can be run");
    (status, std::fs::read(root.join("a")).ok(), Shim::fired(&desk))
}

#[test]
fn the_shim_breaks_what_it_is_told_to_break() {
    let Some(shim) = Shim::build() else { return };
    let copy = |kind, n| shell(&shim, (kind, n), "cp ../eight a");
    let eight = Some(b"12345678".to_vec());
    let empty = Some(Vec::new());

    // `cp` makes its file and writes with one call; with nothing armed it is left alone.
    let (status, left, fired) = copy("none", 0);
    assert!(status.success() && !fired);
    assert_eq!(left, eight);
    // Beyond the last operation nothing happens, and it says so: this is how a sweep ends.
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
        let (status, left, fired) = shell(&shim, (kind, 1), "mkdir b || cp ../eight a");
        assert!(fired && status.success(), "{kind} happens once");
        assert_eq!(left, eight, "{kind}");
    }

    // A full disk stays full, but for what is given back.
    let (_, left, fired) = shell(&shim, ("full", 2), "cp ../eight b; cp ../eight c; cp ../eight a");
    assert_eq!((left, fired), (empty, true));
    let (_, left, _) = shell(&shim, ("full", 2), "cp ../eight b; cp ../eight c; rm b; cp ../eight a");
    assert_eq!(left, eight);
}
