# The provider's filter removed the whole reply.
with fallback 1
user > tell me how
model > stop content_filter
log … llm_end(done) turn_end(error) run_errored(refused)
pod is idle
