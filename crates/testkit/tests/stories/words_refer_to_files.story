user > look at @notes @plan
context: user look at @notes @plan / system content of notes / system content of plan
user queue > then @more
user queue > not @missing
reply < refused invalid_request
queue: then @more
model > First.

model > Second.
context: user look at @notes @plan / system content of notes / system content of plan / assistant First. / user then @more / system content of more / assistant Second.
queue: empty
pod is idle
