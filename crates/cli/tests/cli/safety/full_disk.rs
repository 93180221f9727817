//! Full disks: a whole home, or one directory of it, on a small tmpfs. The run ends as documented, without a
//! panic, and after space is freed it continues, with nothing lost and no command run twice.
//!
//! Requires a mount namespace; without one the test is skipped.

use std::process::{Command, Stdio};

use crate::support::world::CliWorld;

/// Runs in the namespace. `$1` is the part on the small disk, `$2` its size, the rest is the binary.
const SETUP_SCRIPT: &str = r#"
place="$MINKE_HOME/$1"; size=$2; shift 2
mkdir -p -m 700 "$MINKE_HOME" "$place" && mount -t tmpfs -o "size=$size,mode=700" none "$place" || exit 99
"$@" exec --name tale --model scripted:s.toml --unsandboxed --posture full go >first.out 2>first.err
echo "first $?"
find "$MINKE_HOME" -name 'panic-*' | sed 's/^/panic /'
mount -o remount,size=200m "$place"
"$@" exec --resume tale >second.out 2>second.err || "$@" exec --resume tale "continue" >second.out 2>second.err
echo "second $?"
"$@" log verify --json | sed 's/^/verify /'
"#;

/// Number of calls; each prints 80 kB and appends one line.
const CALL_COUNT: usize = 60;

fn noisy_script() -> String {
    let mut text = String::new();
    for call in 0..CALL_COUNT {
        text.push_str(&format!(
            "[[turn]]\n[[turn.call]]\ntool = \"Bash\"\nargs = {{ command = \"echo {call} >> ran; \
             head -c 60000 /dev/urandom | base64 -w0\" }}\n"
        ));
    }
    // The model continues at its position, however the run before ended.
    text + "[[turn]]\nrepeat = 3\ntext = \"All of it is done.\"\n"
}

/// Returns a command in a separate mount namespace, for root and for users.
fn namespace_command() -> Command {
    let mut command = Command::new("unshare");
    command.args(if rustix::process::geteuid().is_root() { &["--mount"][..] } else { &["--mount", "-r"] });
    command
}

fn can_mount() -> bool {
    let tried = namespace_command()
        .args(["sh", "-c", "mount -t tmpfs none /mnt"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let can = tried.is_ok_and(|status| status.success());
    if !can {
        eprintln!("skipped: cannot mount a file system here");
        assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "a mount namespace is required");
    }
    can
}

fn run_on_full_disk(place: &str, size: &str) {
    let world = CliWorld::new();
    world.write_file("s.toml", &noisy_script());
    let mut command = namespace_command();
    command.args(["sh", "-c", SETUP_SCRIPT, "sh", place, size, env!("CARGO_BIN_EXE_minke")]);
    world.set_environment(&mut command);
    let done = world.run_command(command);
    let at = format!("{place:?} {size}");
    let said = |word: &str| -> Vec<&str> {
        done.out.lines().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' ')).collect()
    };
    let told = world.read_file("first.err");
    assert!(matches!(said("first").as_slice(), ["0" | "74"]), "{at}: {done:?}\n{told}");
    assert!(said("panic").is_empty(), "{at}: {done:?}\n{told}");
    let ran = world.read_file("ran");
    let mut calls: Vec<&str> = ran.lines().collect();
    calls.sort_unstable();
    calls.dedup();
    assert_eq!(calls.len(), ran.lines().count(), "{at}: no call runs twice");
    if said("first") == ["74"] {
        assert!(told.contains("error: ") && told.contains("  try: "), "{at}: {told}");
    }
    if told.contains("could not write the first step") || calls.is_empty() {
        // There was no space for a session at all.
        return;
    }
    assert_eq!(said("second"), ["0"], "{at}: {}", world.read_file("second.err"));
    assert!(world.read_file("second.out").contains("All of it is done.") || said("first") == ["0"], "{at}");
    assert_eq!(calls.len(), CALL_COUNT, "{at}: {}", world.read_file("second.err"));
    assert!(said("verify").iter().all(|line| line.contains("\"ok\":true")), "{at}: {done:?}");
}

#[test]
fn a_home_that_is_wholly_full_ends_the_run_as_documented() {
    if !can_mount() {
        return;
    }
    let long = std::env::var_os("MINKE_LONG").is_some();
    let sizes: &[&str] = if long {
        &["200k", "500k", "1m", "1500k", "2m", "2500k", "3m", "3500k", "4m", "4500k", "5m", "6m"]
    } else {
        &["500k", "1500k", "2500k", "3m", "4m"]
    };
    sizes.iter().for_each(|size| run_on_full_disk("", size));
}

#[test]
fn a_full_directory_of_the_home_ends_the_run_as_documented() {
    if !can_mount() {
        return;
    }
    for (place, size) in [("data", "2m"), ("state", "16k"), ("run", "80k"), ("run", "300k")] {
        run_on_full_disk(place, size);
    }
}
