//! System paths that every command may read (system directories, tool chains), and secrets among them.
//!
//! Here: the lists. Elsewhere: converting them to rules and masks (`compile`).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// System directories: programs, libraries, configuration.
pub(super) const SYSTEM_DIRS: [&str; 14] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix",
    "/gnu",
    "/snap",
    "/run/current-system",
    "/run/systemd/resolve",
];

/// Kernel file systems.
pub(super) const KERNEL_PATHS: [&str; 9] = [
    "/proc",
    "/sys/block",
    "/sys/bus",
    "/sys/class",
    "/sys/dev",
    "/sys/devices",
    "/sys/fs/cgroup",
    "/sys/kernel/mm",
    "/sys/module",
];

/// Devices that store no data. `tty` is the command's own terminal.
pub(super) const DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Tool chains in a home directory, and files that `git` needs to start.
const TOOLCHAIN_DIRS: [&str; 34] = [
    ".asdf",
    ".bun",
    ".cargo",
    ".conda",
    ".config/git",
    ".deno",
    ".dotnet",
    ".elan",
    ".fnm",
    ".gem",
    ".ghcup",
    ".gitconfig",
    ".goenv",
    ".gvm",
    ".juliaup",
    ".local/bin",
    ".local/lib",
    ".local/pipx",
    ".local/share/fnm",
    ".local/share/mise",
    ".local/share/pnpm",
    ".local/share/uv",
    ".mix",
    ".nix-profile",
    ".nodenv",
    ".npm-global",
    ".nvm",
    ".opam",
    ".pyenv",
    ".rbenv",
    ".rustup",
    ".sdkman",
    ".volta",
    "go",
];

/// Variables that name the directory of a tool chain.
const TOOLCHAIN_VARIABLES: [&str; 16] = [
    "CARGO_HOME",
    "RUSTUP_HOME",
    "GOROOT",
    "GOPATH",
    "JAVA_HOME",
    "NVM_DIR",
    "PNPM_HOME",
    "VOLTA_HOME",
    "BUN_INSTALL",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYENV_ROOT",
    "RBENV_ROOT",
    "GEM_HOME",
    "DOTNET_ROOT",
    "ANDROID_HOME",
];

/// System files that ordinary users cannot read, but a pod that runs as root could.
const SECRET_PATHS: [&str; 17] = [
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/security/opasswd",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssl/private",
    "/etc/krb5.keytab",
    "/etc/NetworkManager/system-connections",
    "/etc/wpa_supplicant",
    "/etc/wireguard",
    "/etc/ppp",
    "/etc/kubernetes",
    "/etc/rancher",
    "/etc/letsencrypt",
    "/etc/pki/tls/private",
];

/// The directory of the machine's private keys, among public ones.
const HOST_KEYS: &str = "/etc/ssh";

/// Returns tool chain directories, as named by the environment.
pub(super) fn toolchain_dirs(
    home: Option<&Path>,
    variable: impl Fn(&str) -> Option<PathBuf>,
) -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = Vec::new();
    if let Some(path) = variable("PATH") {
        places.extend(std::env::split_paths(path.as_os_str()));
    }
    places.extend(TOOLCHAIN_VARIABLES.iter().filter_map(|name| variable(name)));
    places.extend(home.into_iter().flat_map(|home| TOOLCHAIN_DIRS.iter().map(|name| home.join(name))));
    // A variable that names the home directory or the root is ignored.
    places.retain(|place| {
        let opens_all = place == Path::new("/") || home.is_some_and(|home| home.starts_with(place));
        place.is_absolute() && !opens_all
    });
    places
}

/// Returns system secrets that this process could read.
pub(super) fn system_secret_paths() -> Vec<PathBuf> {
    let is_key = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("ssh_host_") && path.extension() != Some(OsStr::new("pub"))
    };
    let keys = std::fs::read_dir(HOST_KEYS).into_iter().flatten().flatten().map(|entry| entry.path());
    let readable = |path: &PathBuf| rustix::fs::access(path, rustix::fs::Access::READ_OK).is_ok();
    SECRET_PATHS.iter().map(PathBuf::from).chain(keys.filter(is_key)).filter(readable).collect()
}
