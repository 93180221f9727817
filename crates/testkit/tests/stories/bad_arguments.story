# A tool never runs with guessed arguments.
user > note it
model > Note {"line":
log … assistant_item(Note) tool_result(invalid) llm_call
ran Note 0
model > Note {"line":"right"}
model > Now it is.
noted: right
pod is idle
