user > choose
model > AskUser {"question":"red or blue?"}
asks: 1
crash
asks: 1
pod is paused
person > tell blue
model > Blue it is.
pod is idle
