//! `minke host`: serves the API to programs, over loopback HTTP or on stdin and stdout.
//!
//! Elsewhere: the server and its shutdown (`minke_host`), the requests (the engine that `thread` also calls).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use minke_host::http::BearerToken;
use minke_host::{HostError, HostInfo, HostOptions};
use minke_launch::config_error;
use minke_thread::JobCapacity;
use serde_json::{Value, json};

use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;
use crate::process::stdio::{AsyncStdin, AsyncStdout};

/// Defaults: address to listen on, and seconds of idle time before it exits.
const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const DEFAULT_IDLE_SECS: u64 = 600;
/// Maximum size of a token file; a longer file contains something else.
const TOKEN_FILE_BYTES: u64 = 4 * 1024;

/// Serve the HTTP and JSON-RPC API on loopback
#[derive(Debug, Args)]
pub(crate) struct HostArgs {
    /// Listen on this address; port 0 is a free one [default: 127.0.0.1:0]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// File with the token that clients must send (default: a random token)
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Public name of a reverse proxy with TLS
    #[arg(long, value_name = "NAME")]
    behind_proxy: Option<String>,
    /// Exit after N idle seconds; 0 never exits [default: 600]
    #[arg(long, value_name = "SECONDS")]
    idle: Option<u64>,
    /// Speak JSON-RPC on stdin and stdout instead of listening
    #[arg(long, conflicts_with_all = ["listen", "token_file", "behind_proxy", "idle", "ensure", "install", "foreground", "print_address"])]
    stdio: bool,
    /// Start a host if none runs, and print its address
    #[arg(long, conflicts_with_all = ["listen", "token_file", "behind_proxy", "idle", "install"])]
    ensure: bool,
    /// Run in this terminal until Ctrl-C; this is the default
    #[arg(long, conflicts_with_all = ["ensure", "install"])]
    foreground: bool,
    /// Print one JSON line with URL, token file and socket address
    #[arg(long, conflicts_with = "install")]
    print_address: bool,
    /// Write a systemd user unit that keeps a host running
    #[arg(long, conflicts_with_all = ["listen", "token_file", "behind_proxy", "idle"])]
    install: bool,
}

pub(crate) async fn run(
    host: HostArgs,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    if host.install {
        return install_unit(context, output);
    }
    if host.ensure {
        let home = context.open_home()?;
        let info = minke_host::ensure_running(&home.paths).await?;
        return print_address(&info, host.print_address, output).map(|()| ExitKind::Success);
    }
    let engine = crate::engine_client::open_engine(context)?;
    if host.stdio {
        let by = minke_record::Actor::from_person("host");
        let cannot = |e| CliError::new(ExitKind::Failed, "could not serve stdin and stdout").with_reason(e);
        let stdin = AsyncStdin::open().map_err(cannot)?;
        minke_host::serve_stdio(engine, stdin, AsyncStdout, by).await.map_err(cannot)?;
        return Ok(ExitKind::Success);
    }
    // Options override the configuration file.
    let settings = minke_config::sources::load_host_settings(&context.find_paths()?.config)
        .map_err(|e| config_error(&e))?;
    let defaults = JobCapacity::default();
    let engine = engine.with_job_limits(JobCapacity {
        running: settings.running.unwrap_or(defaults.running),
        per_provider: settings.per_provider.unwrap_or(defaults.per_provider),
        per_workspace: settings.per_workspace.unwrap_or(defaults.per_workspace),
    });
    let token_file = host.token_file.or(settings.token_file);
    let idle = host.idle.or(settings.idle_exit).unwrap_or(DEFAULT_IDLE_SECS);
    let options = HostOptions {
        listen: host.listen.or(settings.bind).unwrap_or(DEFAULT_ADDRESS),
        token: token_file.as_deref().map(read_token).transpose()?,
        proxy: host.behind_proxy.or(settings.behind_proxy),
        idle_timeout: (idle > 0).then(|| Duration::from_secs(idle)),
    };
    let for_scripts = host.print_address;
    let ready = |info: &HostInfo| {
        print_address(info, for_scripts, output)
            .map_err(|e| HostError::AnnounceFailed { why: e.single_line() })
    };
    minke_host::run_host(engine, options, ready).await?;
    Ok(ExitKind::Success)
}

/// Prints the address of the host. The token stays in files that only the user can read.
fn print_address(info: &HostInfo, for_scripts: bool, output: &CliOutput) -> Result<(), CliError> {
    let url = format!("http://{}", info.address);
    if for_scripts {
        let line: Value = json!({ "url": url, "token_file": info.token_file, "socket": info.address });
        return output.print_json(&line);
    }
    if output.json {
        let object: Value = json!({ "url": url, "pid": info.pid, "version": info.version });
        return output.print_json(&object);
    }
    output.print_line(&url)
}

fn read_token(file: &Path) -> Result<BearerToken, CliError> {
    let cannot = |why: &dyn std::fmt::Display| {
        CliError::usage(format!("could not read a token from {}", file.display())).with_reason(why)
    };
    let length = std::fs::metadata(file).map_err(|e| cannot(&e))?.len();
    if length > TOKEN_FILE_BYTES {
        return Err(cannot(&format!("it has {length} bytes")));
    }
    let text = std::fs::read_to_string(file).map_err(|e| cannot(&e))?;
    BearerToken::from_user_text(&text).map_err(|why| cannot(&why))
}

/// Writes a systemd user unit, without starting it, and prints the command that does.
fn install_unit(context: &CliContext, output: &CliOutput) -> Result<ExitKind, CliError> {
    if !cfg!(target_os = "linux") {
        return Err(CliError::usage("systemd is required")
            .with_hint("run `minke host --idle 0` with another service manager"));
    }
    let base = match (context.env_var("XDG_CONFIG_HOME"), context.env_var("HOME")) {
        (Some(config), _) => PathBuf::from(config),
        (None, Some(home)) => Path::new(&home).join(".config"),
        (None, None) => return Err(CliError::usage("neither HOME nor XDG_CONFIG_HOME is set")),
    };
    let dir = base.join("systemd/user");
    let file = dir.join("minke-host.service");
    let cannot = |e: std::io::Error| {
        CliError::new(ExitKind::Storage, format!("could not write {}", file.display())).with_reason(e)
    };
    let program = std::env::current_exe().map_err(|e| {
        CliError::new(ExitKind::Failed, "could not find the path of this program").with_reason(e)
    })?;
    let program =
        program.to_str().filter(|path| !path.contains(['"', '\\', '%', '$', '\n'])).ok_or_else(|| {
            CliError::usage(format!(
                "{} contains characters that a unit file does not allow",
                program.display()
            ))
        })?;
    let unit = format!(
        "[Unit]\nDescription=Minke host\n\n[Service]\nExecStart=\"{program}\" host --idle 0\nRestart=on-failure\n\
         # Pods keep running when the host ends.\nKillMode=process\n\n[Install]\nWantedBy=default.target\n"
    );
    std::fs::create_dir_all(&dir).map_err(cannot)?;
    std::fs::write(&file, unit).map_err(cannot)?;
    let next = "systemctl --user enable --now minke-host";
    if output.json {
        output.print_json(&json!({ "unit": file, "next": next }))?;
    } else {
        output.print_line(&format!("wrote {}; `{next}` starts it", file.display()))?;
    }
    Ok(ExitKind::Success)
}

impl From<HostError> for CliError {
    fn from(error: HostError) -> CliError {
        let (exit, hint) = match &error {
            HostError::AlreadyRunning { .. } => {
                (ExitKind::TryLater, "clients find it through `host.json` in the runtime directory")
            }
            HostError::NotLoopback { .. } => {
                (ExitKind::Usage, "omit --listen to listen on this machine only")
            }
            HostError::Listen { .. } => (ExitKind::Failed, "port 0 selects a free one"),
            HostError::Io { .. } => (ExitKind::Storage, "see `minke paths` and `minke doctor`"),
            HostError::Random { .. }
            | HostError::Signals { .. }
            | HostError::AnnounceFailed { .. }
            | HostError::Start { .. }
            | HostError::ExitedEarly { .. }
            | HostError::StartTimedOut { .. } => {
                (ExitKind::Failed, "`minke host` in a terminal prints its errors")
            }
        };
        let why = std::error::Error::source(&error).map(ToString::to_string);
        let failure = CliError::new(exit, &error).with_hint(hint);
        match why {
            Some(why) => failure.with_reason(why),
            None => failure,
        }
    }
}
