# A provider that does not take the content of a request: no other model is asked.
with fallback 1
user > tell me how
model > fails refused flagged by the content policy
log … llm_call llm_end(failed) turn_end(error) run_errored(refused)
pod is idle
