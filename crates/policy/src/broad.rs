//! Broad roots: directories that hold the things of many programs and people, so that a pod that may write one could
//! change what the user runs next.
//!
//! Here: which they are, exactly, and what a pod that may write one does not write there. Pure: the caller knows the home
//! directory and `PATH`. Directories below a broad root are ordinary (`only_the_directories_themselves_are_broad`).

use crate::scope::remainder;

/// Broad on every machine.
const ROOTS: [&str; 28] = [
    "/",
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/home",
    "/lib",
    "/lib64",
    "/media",
    "/mnt",
    "/opt",
    "/private",
    "/private/tmp",
    "/private/var",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/srv",
    "/sys",
    "/tmp",
    "/Users",
    "/usr",
    "/usr/local",
    "/var",
    "/var/lib",
    "/var/tmp",
    "/Volumes",
];

/// Start-up files and user units of a home directory that are no protected names, because a project may have them.
const OF_HOME: [&str; 9] = [
    ".local/bin",
    ".local/lib",
    "bin",
    ".cargo/bin",
    ".cargo/config.toml",
    ".cargo/config",
    ".cargo/env",
    ".config/systemd",
    ".local/share/systemd",
];

/// Programs, units and start-up files of the system.
const OF_SYSTEM: [&str; 21] = [
    "/bin",
    "/etc/bash.bashrc",
    "/etc/cron.d",
    "/etc/crontab",
    "/etc/environment",
    "/etc/gitconfig",
    "/etc/init.d",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/pam.d",
    "/etc/profile",
    "/etc/profile.d",
    "/etc/systemd",
    "/etc/zsh",
    "/lib",
    "/sbin",
    "/usr/bin",
    "/usr/lib",
    "/usr/local/bin",
    "/usr/sbin",
    "/var/spool/cron",
];

/// Whether a directory is a broad root. `home` is the user's own, and what is above it is broad too.
pub fn is_broad(root: &str, home: Option<&str>) -> bool {
    ROOTS.contains(&root) || home.is_some_and(|home| remainder(home, root).is_some())
}

/// What a pod that may write a broad root does not write below it: the directories of `PATH`, user units and start-up
/// files. Paths are absolute; none is the root itself, or above it.
pub fn kept_in_broad(root: &str, home: Option<&str>, path: &[String]) -> Vec<String> {
    let of_home = home.into_iter().flat_map(|home| {
        let home = home.trim_end_matches('/');
        OF_HOME.iter().map(move |name| format!("{home}/{name}"))
    });
    let system = OF_SYSTEM.iter().map(|path| (*path).to_owned());
    let all = path.iter().cloned().chain(of_home).chain(system);
    let mut kept: Vec<String> = all.filter(|path| path != root && remainder(path, root).is_some()).collect();
    kept.sort();
    kept.dedup();
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: Option<&str> = Some("/home/ada");

    #[test]
    fn only_the_directories_themselves_are_broad() {
        for root in
            ["/", "/home", "/home/ada", "/root", "/tmp", "/var/tmp", "/var", "/usr", "/etc", "/opt", "/srv"]
        {
            assert!(is_broad(root, HOME), "{root}");
        }
        for root in ["/mnt", "/media", "/run", "/usr/local", "/Users", "/private/tmp"] {
            assert!(is_broad(root, HOME), "{root}");
        }
        for root in [
            "/home/ada/project",
            "/home/ada/.config",
            "/home/bob",
            "/home/adam",
            "/tmp/x",
            "/var/tmp/x",
            "/srv/www",
            "/opt/tool",
            "/work",
            "/root/project",
        ] {
            assert!(!is_broad(root, HOME), "{root}");
        }
        assert!(is_broad("/data/people", Some("/data/people/ada")));
        assert!(!is_broad("/data/people", None));
    }

    #[test]
    fn programs_units_and_start_up_files_of_a_broad_root_are_kept() {
        let path = ["/home/ada/.cargo/bin", "/home/ada/tools", "/usr/bin"].map(str::to_owned);
        let kept = kept_in_broad("/home/ada", HOME, &path);
        for one in
            ["/home/ada/.cargo/bin", "/home/ada/tools", "/home/ada/.local/bin", "/home/ada/.config/systemd"]
        {
            assert!(kept.iter().any(|kept| kept == one), "{one}: {kept:?}");
        }
        assert!(kept.iter().all(|kept| kept.starts_with("/home/ada/")), "{kept:?}");
        let kept = kept_in_broad("/", HOME, &path);
        for one in ["/usr/bin", "/etc/profile.d", "/home/ada/.local/bin", "/var/spool/cron"] {
            assert!(kept.iter().any(|kept| kept == one), "{one}: {kept:?}");
        }
        assert!(kept_in_broad("/usr/bin", HOME, &path).is_empty(), "a root is not taken from itself");
    }
}
