user > choose
model > AskUser {"question":"red or blue?"}
person > deny not now
model > Then red.
context: user choose / call AskUser / result refused: … / assistant Then red.
pod is idle
