//! Hostile probes: attacks inside sandboxes, as root and as an ordinary user, in each backend, with and without user
//! namespaces; and controls that must work.
//!
//! Here: the tests. Elsewhere: the attacks (`attacks`), the attacker's process (`attacker`), its environment
//! (`probe_world`, `layout`), one backend for one user (`column_run`), running columns as users (`column_process`),
//! expectations and output (`table`).
//! Depending on its arguments, this binary is the test, the attacker, the bystander or the sandbox helper. It therefore
//! has its own `main` and lists its tests to the runner itself.
//! Invariant: no attack succeeds in the namespaces backend, and in the landlock backend only documented ones
//! (`every_probe_is_held`).
#![cfg_attr(target_os = "linux", expect(unsafe_code, reason = "attacks are system calls"))]

#[cfg(target_os = "linux")]
mod attacker;
#[cfg(target_os = "linux")]
mod attacks;
#[cfg(target_os = "linux")]
mod bystander;
#[cfg(target_os = "linux")]
mod column_process;
#[cfg(target_os = "linux")]
mod column_run;
#[cfg(target_os = "linux")]
mod ipc;
#[cfg(target_os = "linux")]
mod layout;
#[cfg(target_os = "linux")]
mod probe;
#[cfg(target_os = "linux")]
mod probe_world;
#[cfg(target_os = "linux")]
mod runner;
#[cfg(target_os = "linux")]
mod sys;
#[cfg(target_os = "linux")]
mod table;

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    let mut args = std::env::args_os();
    if args.next().is_some_and(|arg0| minke_exec::sandbox::is_helper(&arg0)) {
        return minke_exec::sandbox::helper_main();
    }
    let args: Vec<String> = args.filter_map(|arg| arg.into_string().ok()).collect();
    match args.split_first() {
        Some((what, rest)) if what == "inside" => attacker::main(rest),
        Some((what, rest)) if what == "bystander" => bystander::main(rest),
        Some((what, rest)) if what == "part" => column_run::main(rest),
        Some((what, rest)) if what == "without-namespaces" => column_process::without_namespaces(rest),
        Some((what, _)) if what == "euid" => column_process::print_euid(),
        _ => runner::main(&args, TESTS),
    }
}

#[cfg(target_os = "linux")]
runner::tests! {
    #[test]
    fn every_probe_is_held() {
        table::every_probe_is_held();
    }

    #[test]
    fn removing_any_one_wall_lets_a_probe_through() {
        table::removing_any_one_wall_lets_a_probe_through();
    }

    #[test]
    fn the_page_says_what_tier_b_leaves_open() {
        table::the_page_says_what_tier_b_leaves_open();
    }
}
