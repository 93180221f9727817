//! Broad roots: directories that contain the files of many programs and users, such as `/`, `/etc` or a home.
//! A pod that may write one could change the programs that the user runs next.
//!
//! This module has the exact list and the paths that stay read-only inside a broad root. It does no I/O: the
//! caller passes the home directory and `PATH`. Subdirectories of a broad root are not broad
//! (`only_the_directories_themselves_are_broad`).

use crate::scope::path_below;

/// Broad roots of every machine.
const BROAD_ROOTS: [&str; 28] = [
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

/// Startup files and user units of a home directory. They are not protected names, because a project may have
/// them.
const HOME_STARTUP_PATHS: [&str; 9] = [
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

/// Programs, units and startup files of the system.
const SYSTEM_STARTUP_PATHS: [&str; 21] = [
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

/// Returns whether a directory is a broad root: a listed one, the home directory, or an ancestor of it.
pub fn is_broad_root(root: &str, home: Option<&str>) -> bool {
    BROAD_ROOTS.contains(&root) || home.is_some_and(|home| path_below(home, root).is_some())
}

/// Returns the paths below a broad root that a pod must not write: the directories of `PATH`, user units and
/// startup files. All paths are absolute and strictly below `root`.
pub fn read_only_in_broad_root(root: &str, home: Option<&str>, path: &[String]) -> Vec<String> {
    let of_home = home.into_iter().flat_map(|home| {
        let home = home.trim_end_matches('/');
        HOME_STARTUP_PATHS.iter().map(move |name| format!("{home}/{name}"))
    });
    let system = SYSTEM_STARTUP_PATHS.iter().map(|path| (*path).to_owned());
    let all = path.iter().cloned().chain(of_home).chain(system);
    let mut read_only: Vec<String> =
        all.filter(|path| path != root && path_below(path, root).is_some()).collect();
    read_only.sort();
    read_only.dedup();
    read_only
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
            assert!(is_broad_root(root, HOME), "{root}");
        }
        for root in ["/mnt", "/media", "/run", "/usr/local", "/Users", "/private/tmp"] {
            assert!(is_broad_root(root, HOME), "{root}");
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
            assert!(!is_broad_root(root, HOME), "{root}");
        }
        assert!(is_broad_root("/data/people", Some("/data/people/ada")));
        assert!(!is_broad_root("/data/people", None));
    }

    #[test]
    fn programs_units_and_start_up_files_of_a_broad_root_are_kept() {
        let path = ["/home/ada/.cargo/bin", "/home/ada/tools", "/usr/bin"].map(str::to_owned);
        let read_only = read_only_in_broad_root("/home/ada", HOME, &path);
        for one in
            ["/home/ada/.cargo/bin", "/home/ada/tools", "/home/ada/.local/bin", "/home/ada/.config/systemd"]
        {
            assert!(read_only.iter().any(|kept| kept == one), "{one}: {read_only:?}");
        }
        assert!(read_only.iter().all(|kept| kept.starts_with("/home/ada/")), "{read_only:?}");
        let kept = read_only_in_broad_root("/", HOME, &path);
        for one in ["/usr/bin", "/etc/profile.d", "/home/ada/.local/bin", "/var/spool/cron"] {
            assert!(kept.iter().any(|kept| kept == one), "{one}: {kept:?}");
        }
        assert!(
            read_only_in_broad_root("/usr/bin", HOME, &path).is_empty(),
            "a root does not restrict itself"
        );
    }
}
