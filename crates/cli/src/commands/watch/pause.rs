//! `minke pause`: pauses the run of a live pod.

use clap::Args;
use minke_client::find_session;
use minke_launch::{Delivery, deliver_method};
use minke_protocol::Method;

use crate::commands::watch::run_control::{RunControlArgs, report_delivered};
use crate::context::{CliContext, client_info};
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

/// Pause the run of a pod at a safe point
#[derive(Debug, Args)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    control: RunControlArgs,
}

pub(crate) async fn run(
    args: PauseArgs,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let home = context.open_home()?;
    let found = find_session(&home, &args.control.name)?;
    if found.live.is_none() {
        return Err(CliError::new(
            ExitKind::Failed,
            format!("no pod is live on session s_{}", found.session),
        )
        .with_code("not_running")
        .with_reason("no run is active, so there is nothing to pause")
        .with_hint(format!("`minke resume {}` continues an interrupted run", args.control.name)));
    }
    let method = Method::Pause(args.control.to_detail());
    let delivery = Delivery { session: found.session, method, client: client_info(), offline_step: None };
    report_delivered(output, "pausing", deliver_method(&home, delivery).await?)
}
