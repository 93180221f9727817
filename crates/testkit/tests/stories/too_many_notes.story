kills differ: a note whose reply was lost is sent again
with queue 2
notify quiet > one
notify quiet > two
notify quiet > three
reply < refused too_many
notes: 2
pod is idle
