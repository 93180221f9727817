user > tell me
model > fails for good no such key
log … llm_end(failed) turn_end(error) run_errored(provider_error)
pod is idle
user > again
reply < run
model > Now.
pod is idle
