//! `minke pod`: the process of one pod. Other commands start it with the locked session lease and the socket
//! pair of the launcher. Started by hand, it takes the lease itself.

use std::os::fd::RawFd;
use std::process::ExitCode;

use clap::Args;
use minke_driver::PodArgs;
use minke_launch::take_inherited_fd;
use minke_record::SessionId;

use crate::context::CliContext;
use crate::error::{CliError, ExitKind};

/// Run the process of one pod; other commands start it
#[derive(Debug, Args)]
pub(crate) struct PodProcessArgs {
    /// Id of the session
    #[arg(long)]
    session: String,
    /// Inherited file descriptor with the locked session lease
    #[arg(long, hide = true)]
    lease_fd: Option<RawFd>,
    /// Inherited file descriptor on which the launcher waits
    #[arg(long, hide = true)]
    ready_fd: Option<RawFd>,
    /// Receive a ticket for a lent scope on the same descriptor
    #[arg(long, hide = true, requires = "ready_fd")]
    ticket: bool,
    /// Exit when the launcher has exited and no work remains
    #[arg(long, hide = true, requires = "ready_fd")]
    bound: bool,
}

pub(crate) fn run(pod: PodProcessArgs, context: &CliContext) -> Result<ExitCode, CliError> {
    let session: SessionId = pod
        .session
        .parse()
        .map_err(|e| CliError::usage(format!("`{}` is not a session's id", pod.session)).with_reason(e))?;
    let inherited = |number: Option<RawFd>| {
        number.map(take_inherited_fd).transpose().map_err(|e| {
            CliError::usage("an inherited file descriptor is missing")
                .with_reason(e)
                .with_hint("pods are started by the other commands")
        })
    };
    let lease = inherited(pod.lease_fd)?;
    let ready = inherited(pod.ready_fd)?;
    let paths = context.find_paths()?;
    paths.create_dirs()?;
    // It is executed as /proc/self/exe, and process lists would call it `exe`.
    #[cfg(target_os = "linux")]
    rustix::thread::set_name(c"minke")
        .map_err(|e| CliError::new(ExitKind::Failed, "could not set the process name").with_reason(e))?;
    let args = PodArgs {
        session,
        lease,
        ready,
        ticket: pod.ticket,
        bound_to_launcher: pod.bound,
        paths,
        store: context.chosen_store(),
        signals: true,
        helper: Some(minke_driver::HelperBinary::default()),
    };
    let ending = minke_driver::run(args).map_err(|e| {
        CliError::new(ExitKind::Failed, format!("could not run the pod of session s_{session}"))
            .with_reason(e)
    })?;
    Ok(ExitCode::from(ending.exit_code()))
}
