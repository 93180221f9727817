with expires 60
kills differ: a repeated ask has more time
user > clean up
model > Sh {"command":"rm -r build"}
clock + 59 s
asks: 1
clock + 2 s
asks: 0
log … answer(denied) tool_result(refused) turn_end llm_call
ran Sh 0
person > answer_again
reply < refused conflict
model > Left as it was.
context: user clean up / call Sh / …no answer arrived in time / assistant Left as it was.
pod is idle
