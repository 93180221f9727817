# A call is logged before it runs, and its result before the next request.
user > note it
model > I will.
model > Note {"line":"milk"}
log: invoke segment_start user_input llm_call assistant_item(text) assistant_item(Note) llm_usage llm_end(done) tool_dispatch(Note) tool_result(done) turn_end(finished) llm_call
noted: milk
activity: model
model > Noted.
log: assistant_item(text) llm_usage llm_end(done) turn_end(finished) run_completed(finished)
context: user note it / assistant I will. / call Note / result noted / assistant Noted.
ran Note 1
pod is idle
