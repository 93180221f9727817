# The provider refuses the content of a request: no other model is tried.
with fallback 1
user > tell me how
model > fails refused flagged by the content policy
log … llm_call llm_end(failed) turn_end(error) run_errored(refused)
pod is idle
