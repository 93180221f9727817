with hooks
kills differ: hooks are asked again after an interruption
hook stop > always not yet
user > fix it
model > 1

model > 2

model > 3

model > 4

model > 5

model > 6

model > 7

model > 8

pod is running
model > 9
alert < 8 times
pod is idle
