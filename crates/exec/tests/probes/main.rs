//! Hostile probes: attacks run inside fences, as root and as an ordinary user, tier by tier, with and without user
//! namespaces; and what must work all the same.
//!
//! Here: the tests. Elsewhere: the attacks (`attacks`), the attacker's process (`inside`), the world it is to be kept
//! from (`world`, `layout`), one tier for one user (`column`), running those as users (`part`), expectations and print (`table`).
//! This binary is the test, the attacker, the bystander and the fence's helper, by what it is called with; so it has a
//! `main` of its own and lists its tests to the runner itself.
//! Invariant: no attack succeeds in tier A, and in tier B only the documented rest (`every_probe_is_held`).
#![cfg_attr(target_os = "linux", expect(unsafe_code, reason = "attacks are system calls"))]

#[cfg(target_os = "linux")]
mod attacks;
#[cfg(target_os = "linux")]
mod bystander;
#[cfg(target_os = "linux")]
mod column;
#[cfg(target_os = "linux")]
mod inside;
#[cfg(target_os = "linux")]
mod ipc;
#[cfg(target_os = "linux")]
mod layout;
#[cfg(target_os = "linux")]
mod part;
#[cfg(target_os = "linux")]
mod probe;
#[cfg(target_os = "linux")]
mod runner;
#[cfg(target_os = "linux")]
mod sys;
#[cfg(target_os = "linux")]
mod table;
#[cfg(target_os = "linux")]
mod world;

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    let mut args = std::env::args_os();
    if args.next().is_some_and(|arg0| minke_exec::fence::is_helper(&arg0)) {
        return minke_exec::fence::helper_main();
    }
    let args: Vec<String> = args.filter_map(|arg| arg.into_string().ok()).collect();
    match args.split_first() {
        Some((what, rest)) if what == "inside" => inside::main(rest),
        Some((what, rest)) if what == "bystander" => bystander::main(rest),
        Some((what, rest)) if what == "part" => column::main(rest),
        Some((what, rest)) if what == "without-namespaces" => part::without_namespaces(rest),
        Some((what, _)) if what == "euid" => part::print_euid(),
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
