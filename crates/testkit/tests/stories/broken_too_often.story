# A request that brings nothing is made again, with longer and longer waits; then the run fails.
user > tell me
model > cut
clock + 120 s
model > cut
clock + 120 s
model > cut
clock + 120 s
model > cut
clock + 120 s
model > cut
clock + 120 s
model > cut
log … llm_end(broken) turn_end(error) run_errored(provider_error)
pod is idle
