with expires 60
kills differ: a repeated ask has more time
user > choose
model > AskUser {"question":"red or blue?"}
clock + 61 s
asks: 0
person > answer_again
reply < refused conflict
model > Then blue.
context: user choose / call AskUser / …no answer arrived in time / assistant Then blue.
pod is idle
