user > tell me
model > cut
model > cut
model > cut
model > cut
log … llm_end(broken) llm_end(broken) llm_end(broken) llm_end(broken) turn_end(error) run_errored(provider_error)
pod is idle
