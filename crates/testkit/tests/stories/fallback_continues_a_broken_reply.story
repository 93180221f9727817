# What the first model said stays; the next one goes on from there.
with fallback 1
user > tell me
model > Once upon
model > fails for good no credit
alert < spare-1
model > a time.
context: user tell me / assistant Once upon / system [The reply above was interrupted… / assistant a time.
pod is idle
