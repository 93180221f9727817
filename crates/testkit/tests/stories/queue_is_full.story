with queue 2
user > one
user queue > two
user queue > three
user queue > four
reply < refused too_many
queue: two, three
model > 1

model > 2

model > 3
pod is idle
