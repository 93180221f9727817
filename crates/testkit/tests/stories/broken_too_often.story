# A request without output is repeated with increasing waits; then the run fails.
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
