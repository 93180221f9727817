# A block of an unknown kind causes an alert and is not kept.
user > tell me
model > odd hologram a whale
model > Here I am.
alert < a whale
context: user tell me / assistant Here I am.
pod is idle
