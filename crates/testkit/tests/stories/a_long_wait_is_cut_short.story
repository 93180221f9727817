# A resume or a new input does not wait for the time.
user > tell me
model > fails for 300 s come back later
crash
waits on time
person > resume
pod is running
model > Here I am.
pod is idle
clock + 301 s
pod is idle
context: user tell me / assistant Here I am.
