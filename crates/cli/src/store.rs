//! `--store`: the address goes into the environment, from where this process and every one that it starts read it.

use std::os::unix::process::CommandExt;
use std::process::Command;

use minke_store_postgres::ADDRESS;

use crate::failure::{Exit, Failure};
use crate::screen::Common;

/// Executes the program once more with the variable set, if it is not already. Comes back only with a failure, or if there
/// is nothing to do.
pub(crate) fn choose(common: &Common) -> Option<Failure> {
    let address = common.store.as_ref()?;
    if std::env::var_os(ADDRESS).is_some_and(|there| there == **address) {
        return None;
    }
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(e) => return Some(Failure::new(Exit::Failed, "cannot find this program again").why(e)),
    };
    let error = Command::new(program).arg0(name).args(arguments).env(ADDRESS, address).exec();
    Some(Failure::new(Exit::Failed, "cannot begin again with the store that was chosen").why(error))
}
