# When all models have failed, the run fails once.
with fallback 1
user > tell me
model > fails for good no such key
model > fails for good no such model
log … llm_call llm_end(failed) alert llm_call llm_end(failed) turn_end(error) run_errored
pod is idle
