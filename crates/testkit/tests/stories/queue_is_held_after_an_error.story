user > one
user queue > two
model > fails for good out of order
queue is held
queue: two
pod is idle
user > three
model > Three.

model > Two.
queue: empty
pod is idle
