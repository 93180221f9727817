user > clean up
model > Sh {"command":"rm -r build"}
person > deny not that folder
reply < ok
log … answer(denied) tool_result(refused) turn_end llm_call
ran Sh 0
model > Left as it was.
context: user clean up / call Sh / …not that folder / assistant Left as it was.
pod is idle
