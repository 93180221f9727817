//! `minke resume`: resumes a run, and starts the pod if it sleeps.

use clap::Args;
use minke_client::find_session;
use minke_launch::{Delivery, deliver_method};
use minke_protocol::Method;

use crate::commands::watch::run_control::{RunControlArgs, report_delivered};
use crate::context::{CliContext, client_info};
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

/// Resume a paused or interrupted run
#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    control: RunControlArgs,
}

pub(crate) async fn run(
    args: ResumeArgs,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let home = context.open_home()?;
    let session = find_session(&home, &args.control.name)?.session;
    crate::scope_conflict::release_session_scope(&home, session).await?;
    let method = Method::Resume(args.control.to_detail());
    let delivery = Delivery { session, method, client: client_info(), offline_step: None };
    report_delivered(output, "resumed", deliver_method(&home, delivery).await?)
}
