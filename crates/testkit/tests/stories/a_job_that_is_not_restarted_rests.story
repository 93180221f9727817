# `restart: never` leaves an interrupted job to people.
kills differ: every kill interrupts the job, and then only a person goes on with it
with mandate {"objective":"tidy up","restart":"never"}
model > begin Tid
crash
job: interrupted
pod is paused
person > resume
job: running
model > Tidied.
job: completed
