//! The same tests in other circumstances: as an ordinary user, with user namespaces switched off, with spare helpers.

use std::process::Command;

use crate::support::WITH_SPARES;

/// Set for the runs that these tests start, so that they do not start further ones.
const INSIDE: &str = "MINKE_TEST_AS_OTHER";

fn skip(why: &str) {
    assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "SKIPPED: {why}");
    eprintln!("SKIPPED: {why}");
}

/// Runs this test binary again in other circumstances.
fn again(mut with: Command) {
    if std::env::var_os(INSIDE).is_some() {
        return;
    }
    let own = std::env::current_exe().unwrap();
    with.arg(own).env(INSIDE, "1").env("HOME", "/nonexistent");
    // By themselves: the tests that look for processes would see those of the others' runs.
    with.args(["--skip", "others::", "--test-threads", "2"]);
    let output = match with.output() {
        Ok(output) => output,
        Err(error) => return skip(&format!("{with:?}: {error}")),
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("test held::nothing_outside_the_scope_is_read_or_written ... ok"), "{said}");
}

#[test]
fn as_an_ordinary_user() {
    if !rustix::process::getuid().is_root() {
        return skip("this user is an ordinary one already");
    }
    let mut with = Command::new("setpriv");
    with.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    again(with);
}

#[test]
fn with_spare_helpers() {
    let mut with = Command::new("env");
    with.arg(format!("{WITH_SPARES}=1"));
    again(with);
}

#[test]
fn without_user_namespaces() {
    let mut with = Command::new("unshare");
    // In a user namespace of its own, where the limit may be set, and holds for what is below.
    let switch_off = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"";
    with.args(["--user", "--map-root-user", "sh", "-c", switch_off, "sh"]);
    // Tier A is missing there, and that is the point.
    with.env_remove("MINKE_NO_SKIP");
    again(with);
}
