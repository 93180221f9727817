with expires 60
kills differ: a repeated ask has more time
user > clean up
model > Sh {"command":"rm -r build"}
signal
pod is gone
clock + 100 s
boot
log … answer(denied) invoke(resume) tool_result(refused) llm_call
asks: 0
ran Sh 0
model > Left as it was.
pod is idle
