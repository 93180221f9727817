# When all have failed the run has failed, once.
with fallback 1
user > tell me
model > fails for good no such key
model > fails for good no such model
log … llm_call llm_end(failed) alert llm_call llm_end(failed) turn_end(error) run_errored
pod is idle
