# A session with an objective is a job: it runs by itself, and its end is the job's.
with mandate {"objective":"tidy up"}
job: running
model > Tidied.
job: completed after 0
pod is idle
user > and now?
model > Nothing more.
job: completed
