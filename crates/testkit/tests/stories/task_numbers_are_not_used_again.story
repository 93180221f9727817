user > plan it
model > TaskCreate {"subject":"one"}
model > TaskUpdate {"id":"1","status":"deleted"}
model > TaskCreate {"subject":"two"}
model > TaskGet {"id":"1"}
model > Done.
context: user plan it / call TaskCreate / call TaskUpdate / call TaskCreate / call TaskGet / result task 1: one (pending) / result task 1: one (deleted) / result task 2: two (pending) / result there is no task 1; … / assistant Done.
pod is idle
