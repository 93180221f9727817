# The first model's text stays; the next model continues it.
with fallback 1
user > tell me
model > Once upon
model > fails for good no credit
alert < spare-1
model > a time.
context: user tell me / assistant Once upon / system [The reply above was interrupted… / assistant a time.
pod is idle
