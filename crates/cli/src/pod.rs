//! `minke pod`: one pod's process. Started by the other commands, with the locked session lease and the socket pair of
//! its launcher; by hand it takes the lease itself.

use std::os::fd::RawFd;
use std::process::ExitCode;

use clap::Args;
use minke_client::take_inherited;
use minke_driver::PodArgs;
use minke_record::SessionId;

use crate::around::Surroundings;
use crate::failure::{Exit, Failure};

#[derive(Debug, Args)]
pub(crate) struct Pod {
    /// The session
    #[arg(long)]
    session: String,
    /// The number of the descriptor that holds the locked session lease
    #[arg(long, hide = true)]
    lease_fd: Option<RawFd>,
    /// The number of the descriptor on which the launcher waits
    #[arg(long, hide = true)]
    ready_fd: Option<RawFd>,
    /// The launcher sends a ticket for the scope that was lent, on the same descriptor
    #[arg(long, hide = true, requires = "ready_fd")]
    ticket: bool,
    /// The pod ends when its launcher is gone and nothing is to be done
    #[arg(long, hide = true, requires = "ready_fd")]
    bound: bool,
}

pub(crate) fn run(pod: Pod, around: &Surroundings) -> Result<ExitCode, Failure> {
    let session: SessionId = pod
        .session
        .parse()
        .map_err(|e| Failure::usage(format!("`{}` is not a session's id", pod.session)).why(e))?;
    let inherited = |number: Option<RawFd>| {
        number.map(take_inherited).transpose().map_err(|e| {
            Failure::usage("a descriptor that should have been handed on is not there")
                .why(e)
                .hint("pods are started by the other commands")
        })
    };
    let lease = inherited(pod.lease_fd)?;
    let ready = inherited(pod.ready_fd)?;
    let paths = around.paths()?;
    paths.create()?;
    // It was started as /proc/self/exe, and would be called `exe` in lists of processes.
    #[cfg(target_os = "linux")]
    rustix::thread::set_name(c"minke")
        .map_err(|e| Failure::new(Exit::Failed, "cannot name the process").why(e))?;
    let args = PodArgs {
        session,
        lease,
        ready,
        ticket: pod.ticket,
        bound: pod.bound,
        paths,
        store: around.chosen(),
        signals: true,
        helper: Some(minke_driver::Helper::default()),
    };
    let ending = minke_driver::run(args).map_err(|e| {
        Failure::new(Exit::Failed, format!("the pod of session s_{session} cannot run")).why(e)
    })?;
    Ok(ExitCode::from(ending.code()))
}
