//! Programs that Minke starts have the user's umask, and Minke keeps its own.

use std::path::Path;

use rustix::fs::Mode;

#[test]
fn a_program_that_minke_starts_has_the_users_umask() {
    let sh = Path::new("/bin/sh");
    let umask_of_child = || {
        let done = minke_programs::program_command(sh).args(["-c", "umask"]).output().unwrap();
        u32::from_str_radix(String::from_utf8(done.stdout).unwrap().trim(), 8).unwrap()
    };
    rustix::process::umask(Mode::from_raw_mode(0o077));
    assert_eq!(umask_of_child(), 0o077);
    minke_programs::set_program_umask(0o027);
    assert_eq!(umask_of_child(), 0o027);
    assert_eq!(rustix::process::umask(Mode::from_raw_mode(0o077)), Mode::from_raw_mode(0o077));
}
