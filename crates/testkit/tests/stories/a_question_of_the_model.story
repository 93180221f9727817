user > choose
model > AskUser {"question":"red or blue?"}
asks: 1
waits on ask
person > approve
reply < refused invalid_request
asks: 1
person > tell blue
asks: 0
model > Blue it is.
context: user choose / call AskUser / result the person has answered / assistant Blue it is.
pod is idle
