//! `minke mock-llm`: a script served over loopback HTTP in all four wire formats. Talks to no pod.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use minke_llm::mock::{self, Options, Seen, Split};
use tokio::sync::mpsc;

use crate::around::Surroundings;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

/// Requests that wait to be logged; a reply begins only after its request was.
const WAITING: usize = 64;

#[derive(Debug, Args)]
pub(crate) struct MockLlm {
    /// The script: a file, or the name of a built-in one
    script: PathBuf,
    /// The port on 127.0.0.1; 0 takes a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Bytes of a write: a number, or random:SEED (default: an event a write)
    #[arg(long, value_name = "N|random:SEED")]
    split: Option<SplitWish>,
    /// Compress replies for clients that take it
    #[arg(long)]
    gzip: bool,
    /// End lines with CRLF in every format
    #[arg(long)]
    crlf: bool,
    /// Put a comment before each event
    #[arg(long)]
    comments: bool,
    /// Let a cut go through the middle of an event
    #[arg(long)]
    cut_in_event: bool,
    /// Tell parallel calls at the same time, a piece of each in turn
    #[arg(long)]
    weave: bool,
    /// Play the turns of the pod with this name
    #[arg(long, value_name = "NAME")]
    pod: Option<String>,
    /// Answer requests that bring no key
    #[arg(long)]
    no_key: bool,
    /// Log requests to this file; `-` is stdout
    #[arg(long, value_name = "FILE", default_value = "-")]
    requests: PathBuf,
}

#[derive(Debug, Clone, Copy)]
struct SplitWish(Split);

impl FromStr for SplitWish {
    type Err = String;

    fn from_str(text: &str) -> Result<SplitWish, String> {
        let number = |text: &str| text.parse::<u64>().map_err(|e| format!("`{text}`: {e}"));
        let split = match text.strip_prefix("random:") {
            Some(seed) => Split::Random(number(seed)?),
            None => match usize::try_from(number(text)?) {
                Ok(size) if size > 0 => Split::Bytes(size),
                _ => return Err("a write has at least 1 byte".to_owned()),
            },
        };
        Ok(SplitWish(split))
    }
}

pub(crate) async fn run(mock: MockLlm, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let script = mock::script(&mock.script, &around.cwd).map_err(Failure::usage)?.with_pod(mock.pod);
    let mut log = Log::open(&mock.requests, screen)?;
    let options = Options {
        port: mock.port,
        split: mock.split.map(|wish| wish.0).unwrap_or_default(),
        gzip: mock.gzip,
        crlf: mock.crlf,
        comments: mock.comments,
        cut_in_event: mock.cut_in_event,
        weave: mock.weave,
        keyless: mock.no_key,
    };
    let server = mock::serve(script, options).await.map_err(|e| {
        Failure::new(Exit::Failed, format!("cannot listen on 127.0.0.1:{}", mock.port))
            .why(e)
            .hint("`--port 0` takes a free port")
    })?;
    screen.line(&format!("http://{}", server.addr()))?;
    let (sender, mut requests) = mpsc::channel(WAITING);
    let mut serving = std::pin::pin!(server.run(sender));
    loop {
        tokio::select! {
            ended = &mut serving => {
                ended.map_err(|e| Failure::new(Exit::Failed, "cannot take connections any more").why(e))?;
                return Ok(Exit::Done);
            }
            Some(seen) = requests.recv() => log.write(&seen)?,
            signal = tokio::signal::ctrl_c() => {
                signal.map_err(|e| Failure::new(Exit::Failed, "cannot listen for signals").why(e))?;
                return Ok(Exit::Signal);
            }
        }
    }
}

/// Where requests are written, a line each.
enum Log<'a> {
    Stdout(&'a Screen),
    File { file: File, path: PathBuf },
}

impl<'a> Log<'a> {
    fn open(path: &PathBuf, screen: &'a Screen) -> Result<Log<'a>, Failure> {
        if path.as_os_str() == "-" {
            return Ok(Log::Stdout(screen));
        }
        let file = File::options().create(true).append(true).open(path).map_err(|e| cannot(path, e))?;
        Ok(Log::File { file, path: path.clone() })
    }

    fn write(&mut self, seen: &Seen) -> Result<(), Failure> {
        let line = serde_json::to_string(seen)
            .map_err(|e| Failure::new(Exit::Failed, "a request cannot be written as JSON").why(e))?;
        match self {
            Log::Stdout(screen) => screen.json_line(&line),
            Log::File { file, path } => writeln!(file, "{line}").map_err(|e| cannot(path, e)),
        }
    }
}

fn cannot(path: &std::path::Path, e: std::io::Error) -> Failure {
    Failure::new(Exit::Storage, format!("cannot write requests to {}", path.display()))
        .why(e)
        .hint("`--requests -` writes them to stdout")
}
