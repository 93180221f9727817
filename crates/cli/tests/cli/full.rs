//! Disks that are really full: everything of a home, or one directory of it, on a small tmpfs. The run ends as
//! documented, nothing panics, and when there is room again the run goes on with nothing lost and nothing run twice.
//!
//! It needs a mount namespace; where there can be none the test calls itself skipped.

use std::process::{Command, Stdio};

use crate::world::World;

/// What happens in the namespace. `$1` is what lies on the small disk, `$2` its size, the rest is the binary.
const STORY: &str = r#"
place="$MINKE_HOME/$1"; size=$2; shift 2
mkdir -p -m 700 "$MINKE_HOME" "$place" && mount -t tmpfs -o "size=$size,mode=700" none "$place" || exit 99
"$@" exec --name tale --model scripted:s.toml --unsandboxed --posture full go >first.out 2>first.err
echo "first $?"
find "$MINKE_HOME" -name 'panic-*' | sed 's/^/panic /'
mount -o remount,size=200m "$place"
"$@" exec --resume tale >second.out 2>second.err || "$@" exec --resume tale "go on" >second.out 2>second.err
echo "second $?"
"$@" log verify --json | sed 's/^/verify /'
"#;

/// So many calls, each of which says 80 kB; each leaves one line.
const CALLS: usize = 60;

fn script() -> String {
    let mut text = String::new();
    for call in 0..CALLS {
        text.push_str(&format!(
            "[[turn]]\n[[turn.call]]\ntool = \"Bash\"\nargs = {{ command = \"echo {call} >> ran; \
             head -c 60000 /dev/urandom | base64 -w0\" }}\n"
        ));
    }
    // The model goes on where it was, however the run before ended.
    text + "[[turn]]\nrepeat = 3\ntext = \"All of it is done.\"\n"
}

/// A command in a mount namespace of its own, for root and for people.
fn in_namespace() -> Command {
    let mut command = Command::new("unshare");
    command.args(if rustix::process::geteuid().is_root() { &["--mount"][..] } else { &["--mount", "-r"] });
    command
}

fn can_mount() -> bool {
    let tried = in_namespace()
        .args(["sh", "-c", "mount -t tmpfs none /mnt"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let can = tried.is_ok_and(|status| status.success());
    if !can {
        eprintln!("skipped: no file system can be mounted here");
        assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "a mount namespace is needed");
    }
    can
}

fn filled(place: &str, size: &str) {
    let world = World::new();
    world.write("s.toml", &script());
    let mut command = in_namespace();
    command.args(["sh", "-c", STORY, "sh", place, size, env!("CARGO_BIN_EXE_minke")]);
    world.settle(&mut command);
    let done = world.done(command);
    let at = format!("{place:?} {size}");
    let said = |word: &str| -> Vec<&str> {
        done.out.lines().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' ')).collect()
    };
    let told = world.read("first.err");
    assert!(matches!(said("first").as_slice(), ["0" | "74"]), "{at}: {done:?}\n{told}");
    assert!(said("panic").is_empty(), "{at}: {done:?}\n{told}");
    let ran = world.read("ran");
    let mut calls: Vec<&str> = ran.lines().collect();
    calls.sort_unstable();
    calls.dedup();
    assert_eq!(calls.len(), ran.lines().count(), "{at}: nothing runs twice");
    if said("first") == ["74"] {
        assert!(told.contains("error: ") && told.contains("  try: "), "{at}: {told}");
    }
    if told.contains("cannot write the first step") || calls.is_empty() {
        // There was no room for a session at all.
        return;
    }
    assert_eq!(said("second"), ["0"], "{at}: {}", world.read("second.err"));
    assert!(world.read("second.out").contains("All of it is done.") || said("first") == ["0"], "{at}");
    assert_eq!(calls.len(), CALLS, "{at}: {}", world.read("second.err"));
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
    sizes.iter().for_each(|size| filled("", size));
}

#[test]
fn a_full_directory_of_the_home_ends_the_run_as_documented() {
    if !can_mount() {
        return;
    }
    for (place, size) in [("data", "2m"), ("state", "16k"), ("run", "80k"), ("run", "300k")] {
        filled(place, size);
    }
}
