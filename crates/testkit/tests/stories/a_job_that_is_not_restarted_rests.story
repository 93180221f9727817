# With `restart: never` a person must resume an interrupted job.
kills differ: every kill interrupts the job, and then only a person resumes it
with mandate {"objective":"tidy up","restart":"never"}
model > begin Tid
crash
job: interrupted
pod is paused
person > resume
job: running
model > Tidied.
job: completed
