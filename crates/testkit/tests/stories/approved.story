user > clean up
model > Sh {"command":"rm -r build"}
log … ask
asks: 1
activity: ask
waits on ask
ran Sh 0
person > approve
reply < ok
log … answer(approved) tool_dispatch(Sh) tool_result(done) turn_end llm_call
model > Clean.
ran Sh 1
pod is idle
