with sandbox namespaces
user > build
model > Sh {"command":"make"}
asks: 0
ran Sh 1
log … llm_end snapshot tool_dispatch(Sh) tool_result(done) turn_end
model > Sh {"command":"make test"}
log … tool_dispatch(Sh) tool_result(done) turn_end
model > Built.
log … run_completed(finished) snapshot
ran Sh 2
pod is idle
