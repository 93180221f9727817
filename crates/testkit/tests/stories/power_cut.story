user > tell me
model > Once upon a time.
power cut
pod is idle
context: user tell me / assistant Once upon a time.
