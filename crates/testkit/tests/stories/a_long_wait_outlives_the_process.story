# A waiting run continues to wait after a crash and resumes automatically at the time.
user > tell me
model > fails for 300 s come back later
waits on time
crash
pod is paused
waits on time
clock + 301 s
pod is running
model > Here I am.
context: user tell me / assistant Here I am.
pod is idle
