# The calls of a refused reply do not run.
user > note it
model > Note {"line":"poison"}
model > stop refusal
log … assistant_item(Note) llm_end(done) tool_result(cancelled) turn_end(error) run_errored(refused)
ran Note 0
pod is idle
