user > tell me
model > fails busy come back later
crash
pod is paused
person > resume
model > Here I am.
context: user tell me / assistant Here I am.
pod is idle
