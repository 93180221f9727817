user > clean up
model > Sh {"command":"rm -r build"}
crash
asks: 1
pod is paused
person > approve
log … run_completed(interrupted) answer(approved) invoke(resume) tool_dispatch(Sh) tool_result(done) llm_call
model > Clean.
ran Sh 1
pod is idle
