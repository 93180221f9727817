//! `minke host`: the door for programs, over loopback HTTP or on stdin and stdout. Talks to pods only when it is asked to.
//!
//! Elsewhere: what is served and how it ends (`minke_host`), what the requests mean (the same engine that `thread` calls).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use minke_host::http::Token;
use minke_host::{HostError, HostInfo, Options};
use minke_thread::Room;
use serde_json::{Value, json};

use crate::around::Surroundings;
use crate::desk;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::settings::undeclared;
use crate::streams::{Stdin, Stdout};

/// Where it listens if nobody says, and how long it stays without anything to do, in seconds.
const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const IDLE_S: u64 = 600;
/// A token is short; a file that is longer holds something else.
const TOKEN_FILE_BYTES: u64 = 4 * 1024;

#[derive(Debug, Args)]
pub(crate) struct Host {
    /// Where to listen; port 0 takes a free one [default: 127.0.0.1:0]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// The token that clients bring, in a file; without it a new one is drawn
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The name by which a reverse proxy with TLS is reached
    #[arg(long, value_name = "NAME")]
    behind_proxy: Option<String>,
    /// End after so many seconds without anything to do; 0 never does [default: 600]
    #[arg(long, value_name = "SECS")]
    idle: Option<u64>,
    /// Speak JSON-RPC on stdin and stdout, and listen nowhere
    #[arg(long, conflicts_with_all = ["listen", "token_file", "behind_proxy", "idle", "ensure", "install", "foreground", "print_address"])]
    stdio: bool,
    /// Start one if none runs, and say where it listens
    #[arg(long, conflicts_with_all = ["listen", "token_file", "behind_proxy", "idle", "install"])]
    ensure: bool,
    /// Run in this terminal until Ctrl-C; this is the default
    #[arg(long, conflicts_with_all = ["ensure", "install"])]
    foreground: bool,
    /// Print one JSON line with the URL, the token file and the socket address
    #[arg(long, conflicts_with = "install")]
    print_address: bool,
    /// Write a systemd user unit that keeps a host running
    #[arg(long, conflicts_with_all = ["listen", "token_file", "behind_proxy", "idle"])]
    install: bool,
}

pub(crate) async fn run(host: Host, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    if host.install {
        return install(around, screen);
    }
    if host.ensure {
        let home = around.home()?;
        let info = minke_host::ensure(&home.paths).await?;
        return print_address(&info, host.print_address, screen).map(|()| Exit::Done);
    }
    let engine = desk::engine(around)?;
    if host.stdio {
        let by = minke_record::Actor::person("host");
        let cannot = |e| Failure::new(Exit::Failed, "cannot speak on stdin and stdout").why(e);
        let stdin = Stdin::open().map_err(cannot)?;
        minke_host::stdio(engine, stdin, Stdout, by).await.map_err(cannot)?;
        return Ok(Exit::Done);
    }
    // What stands on the line counts more than what stands in the file.
    let settings = minke_sources::host(&around.paths()?.config).map_err(|e| undeclared(&e))?;
    let usual = Room::default();
    let engine = engine.with_room(Room {
        running: settings.running.unwrap_or(usual.running),
        per_provider: settings.per_provider.unwrap_or(usual.per_provider),
        per_workspace: settings.per_workspace.unwrap_or(usual.per_workspace),
    });
    let token_file = host.token_file.or(settings.token_file);
    let idle = host.idle.or(settings.idle_exit).unwrap_or(IDLE_S);
    let options = Options {
        listen: host.listen.or(settings.bind).unwrap_or(LOOPBACK),
        token: token_file.as_deref().map(token).transpose()?,
        proxy: host.behind_proxy.or(settings.behind_proxy),
        idle: (idle > 0).then(|| Duration::from_secs(idle)),
    };
    let for_scripts = host.print_address;
    let ready = |info: &HostInfo| {
        print_address(info, for_scripts, screen).map_err(|e| HostError::Untold { why: e.sentence() })
    };
    minke_host::run(engine, options, ready).await?;
    Ok(Exit::Done)
}

/// Prints where the host listens. The token itself stays in files that only the user can read.
fn print_address(info: &HostInfo, for_scripts: bool, screen: &Screen) -> Result<(), Failure> {
    let url = format!("http://{}", info.address);
    if for_scripts {
        let line: Value = json!({ "url": url, "token_file": info.token_file, "socket": info.address });
        return screen.object(&line);
    }
    if screen.json {
        let told: Value = json!({ "url": url, "pid": info.pid, "version": info.version });
        return screen.object(&told);
    }
    screen.line(&url)
}

fn token(file: &Path) -> Result<Token, Failure> {
    let cannot = |why: &dyn std::fmt::Display| {
        Failure::usage(format!("cannot take a token from {}", file.display())).why(why)
    };
    let length = std::fs::metadata(file).map_err(|e| cannot(&e))?.len();
    if length > TOKEN_FILE_BYTES {
        return Err(cannot(&format!("it has {length} bytes")));
    }
    let text = std::fs::read_to_string(file).map_err(|e| cannot(&e))?;
    Token::chosen(&text).map_err(|why| cannot(&why))
}

/// A unit of the person's own systemd. It is written and not started: that is said, and one command.
fn install(around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    if !cfg!(target_os = "linux") {
        return Err(
            Failure::usage("there is no systemd here").hint("start `minke host --idle 0` by other means")
        );
    }
    let base = match (around.variable("XDG_CONFIG_HOME"), around.variable("HOME")) {
        (Some(config), _) => PathBuf::from(config),
        (None, Some(home)) => Path::new(&home).join(".config"),
        (None, None) => return Err(Failure::usage("neither HOME nor XDG_CONFIG_HOME says where units lie")),
    };
    let dir = base.join("systemd/user");
    let file = dir.join("minke-host.service");
    let cannot =
        |e: std::io::Error| Failure::new(Exit::Storage, format!("cannot write {}", file.display())).why(e);
    let program = std::env::current_exe()
        .map_err(|e| Failure::new(Exit::Failed, "cannot tell where this program lies").why(e))?;
    let program =
        program.to_str().filter(|path| !path.contains(['"', '\\', '%', '$', '\n'])).ok_or_else(|| {
            Failure::usage(format!("{} has characters that a unit cannot name", program.display()))
        })?;
    let unit = format!(
        "[Unit]\nDescription=Minke host\n\n[Service]\nExecStart=\"{program}\" host --idle 0\nRestart=on-failure\n\
         # Pods live on when the host ends.\nKillMode=process\n\n[Install]\nWantedBy=default.target\n"
    );
    std::fs::create_dir_all(&dir).map_err(cannot)?;
    std::fs::write(&file, unit).map_err(cannot)?;
    let next = "systemctl --user enable --now minke-host";
    if screen.json {
        screen.object(&json!({ "unit": file, "next": next }))?;
    } else {
        screen.line(&format!("wrote {}; `{next}` starts it", file.display()))?;
    }
    Ok(Exit::Done)
}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Failure {
        let (exit, hint) = match &error {
            HostError::Taken { .. } => {
                (Exit::TryLater, "clients find it by `host.json` in the runtime directory")
            }
            HostError::Open { .. } => (Exit::Usage, "leave --listen out to listen on this machine only"),
            HostError::Listen { .. } => (Exit::Failed, "port 0 takes a free one"),
            HostError::Io { .. } => (Exit::Storage, "see `minke paths` and `minke doctor`"),
            HostError::Random { .. }
            | HostError::Signals { .. }
            | HostError::Untold { .. }
            | HostError::Start { .. }
            | HostError::Died { .. }
            | HostError::Silent { .. } => (Exit::Failed, "`minke host` in a terminal shows what it says"),
        };
        let why = std::error::Error::source(&error).map(ToString::to_string);
        let failure = Failure::new(exit, &error).hint(hint);
        match why {
            Some(why) => failure.why(why),
            None => failure,
        }
    }
}
