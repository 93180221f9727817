# A block of a kind that nobody knows is told, not kept.
user > tell me
model > odd hologram a whale
model > Here I am.
alert < a whale
context: user tell me / assistant Here I am.
pod is idle
