with expires 60
kills differ: a question asked again has more time
user > choose
model > AskUser {"question":"red or blue?"}
clock + 61 s
asks: 0
person > answer_again
reply < refused conflict
model > Then blue.
context: user choose / call AskUser / …nobody answered in time / assistant Then blue.
pod is idle
