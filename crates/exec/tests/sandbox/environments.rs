//! The same tests in other environments: as an ordinary user, without user namespaces, with spare helpers.

use std::process::Command;

use crate::support::WITH_SPARES;

/// Set for the runs that these tests start, so that they do not start more.
const INNER_RUN_VARIABLE: &str = "MINKE_TEST_AS_OTHER";

fn print_skip(why: &str) {
    assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "SKIPPED: {why}");
    eprintln!("SKIPPED: {why}");
}

/// Runs this test binary again in another environment.
fn rerun_tests(mut with: Command) {
    if std::env::var_os(INNER_RUN_VARIABLE).is_some() {
        return;
    }
    let own = std::env::current_exe().unwrap();
    with.arg(own).env(INNER_RUN_VARIABLE, "1").env("HOME", "/nonexistent");
    // Run sequentially: tests that list processes would see those of other runs.
    with.args(["--skip", "environments::", "--test-threads", "2"]);
    let output = match with.output() {
        Ok(output) => output,
        Err(error) => return print_skip(&format!("{with:?}: {error}")),
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("test containment::nothing_outside_the_scope_is_read_or_written ... ok"), "{said}");
}

#[test]
fn as_an_ordinary_user() {
    if !rustix::process::getuid().is_root() {
        return print_skip("this user is an ordinary user already");
    }
    let mut with = Command::new("setpriv");
    with.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    rerun_tests(with);
}

#[test]
fn with_spare_helpers() {
    let mut with = Command::new("env");
    with.arg(format!("{WITH_SPARES}=1"));
    rerun_tests(with);
}

#[test]
fn without_user_namespaces() {
    let mut with = Command::new("unshare");
    // In a new user namespace, where the limit can be set and applies to everything below.
    let switch_off = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"";
    with.args(["--user", "--map-root-user", "sh", "-c", switch_off, "sh"]);
    // The namespaces backend is missing there on purpose.
    with.env_remove("MINKE_NO_SKIP");
    rerun_tests(with);
}
