# An unknown stop reason without any content is not an answer.
user > tell me
model > stop malformed_function_call
log … llm_end(done) turn_end(error) run_errored(provider_error)
pod is idle
