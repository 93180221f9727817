//! `minke mock-llm`: serves a script over loopback HTTP in all four API formats. Talks to no pod.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use minke_mock_llm::{LoggedRequest, MockOptions, WriteSplit};
use tokio::sync::mpsc;

use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

/// Requests that wait to be logged; a reply starts only after its request was logged.
const MAX_PENDING_REQUESTS: usize = 64;

/// Serve a scripted model over HTTP in all four API formats
#[derive(Debug, Args)]
pub(crate) struct MockLlmArgs {
    /// The script: a file, or the name of a built-in one
    script: PathBuf,
    /// Port on 127.0.0.1; 0 selects a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Bytes per write: N or random:SEED (default: one event per write)
    #[arg(long, value_name = "N|random:SEED")]
    split: Option<SplitOption>,
    /// Compress replies for clients that accept it
    #[arg(long)]
    gzip: bool,
    /// End lines with CRLF in every format
    #[arg(long)]
    crlf: bool,
    /// Put a comment before each event
    #[arg(long)]
    comments: bool,
    /// Allow a cut in the middle of an event
    #[arg(long)]
    cut_in_event: bool,
    /// Interleave the events of parallel calls
    #[arg(long)]
    weave: bool,
    /// Play the turns of the pod with this name
    #[arg(long, value_name = "NAME")]
    pod: Option<String>,
    /// Accept requests without a key
    #[arg(long)]
    no_key: bool,
    /// Log requests to this file; `-` is stdout
    #[arg(long, value_name = "FILE", default_value = "-")]
    requests: PathBuf,
}

#[derive(Debug, Clone, Copy)]
struct SplitOption(WriteSplit);

impl FromStr for SplitOption {
    type Err = String;

    fn from_str(text: &str) -> Result<SplitOption, String> {
        let number = |text: &str| text.parse::<u64>().map_err(|e| format!("`{text}`: {e}"));
        let split = match text.strip_prefix("random:") {
            Some(seed) => WriteSplit::Random(number(seed)?),
            None => match usize::try_from(number(text)?) {
                Ok(size) if size > 0 => WriteSplit::Bytes(size),
                _ => return Err("a write has at least 1 byte".to_owned()),
            },
        };
        Ok(SplitOption(split))
    }
}

pub(crate) async fn run(
    mock: MockLlmArgs,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let script = minke_mock_llm::load_script(&mock.script, &context.env.cwd)
        .map_err(CliError::usage)?
        .with_pod(mock.pod);
    let mut log = RequestLog::open(&mock.requests, output)?;
    let options = MockOptions {
        port: mock.port,
        write_split: mock.split.map(|wish| wish.0).unwrap_or_default(),
        gzip: mock.gzip,
        use_crlf: mock.crlf,
        with_comments: mock.comments,
        cut_in_event: mock.cut_in_event,
        interleave: mock.weave,
        allow_keyless: mock.no_key,
    };
    let server = minke_mock_llm::bind_server(script, options).await.map_err(|e| {
        CliError::new(ExitKind::Failed, format!("could not listen on 127.0.0.1:{}", mock.port))
            .with_reason(e)
            .with_hint("`--port 0` selects a free port")
    })?;
    output.print_line(&format!("http://{}", server.local_addr()))?;
    let (sender, mut requests) = mpsc::channel(MAX_PENDING_REQUESTS);
    let mut serving = std::pin::pin!(server.run(sender));
    loop {
        tokio::select! {
            ended = &mut serving => {
                ended.map_err(|e| CliError::new(ExitKind::Failed, "could not accept connections any more").with_reason(e))?;
                return Ok(ExitKind::Success);
            }
            Some(request) = requests.recv() => log.write(&request)?,
            signal = tokio::signal::ctrl_c() => {
                signal.map_err(|e| CliError::new(ExitKind::Failed, "could not listen for signals").with_reason(e))?;
                return Ok(ExitKind::Signal);
            }
        }
    }
}

/// Destination of the request log, one line per request.
enum RequestLog<'a> {
    Stdout(&'a CliOutput),
    File { file: File, path: PathBuf },
}

impl<'a> RequestLog<'a> {
    fn open(path: &PathBuf, output: &'a CliOutput) -> Result<RequestLog<'a>, CliError> {
        if path.as_os_str() == "-" {
            return Ok(RequestLog::Stdout(output));
        }
        let file = File::options().create(true).append(true).open(path).map_err(|e| write_error(path, e))?;
        Ok(RequestLog::File { file, path: path.clone() })
    }

    fn write(&mut self, request: &LoggedRequest) -> Result<(), CliError> {
        let line = serde_json::to_string(request).map_err(|e| {
            CliError::new(ExitKind::Failed, "could not write a request as JSON").with_reason(e)
        })?;
        match self {
            RequestLog::Stdout(output) => output.print_json_line(&line),
            RequestLog::File { file, path } => writeln!(file, "{line}").map_err(|e| write_error(path, e)),
        }
    }
}

fn write_error(path: &std::path::Path, e: std::io::Error) -> CliError {
    CliError::new(ExitKind::Storage, format!("could not write requests to {}", path.display()))
        .with_reason(e)
        .with_hint("`--requests -` writes them to stdout")
}
