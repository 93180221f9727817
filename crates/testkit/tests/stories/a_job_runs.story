# A session with an objective is a job: it runs automatically, and the end of the run is the end of the job.
with mandate {"objective":"tidy up"}
job: running
model > Tidied.
job: completed after 0
pod is idle
user > and now?
model > Nothing more.
job: completed
