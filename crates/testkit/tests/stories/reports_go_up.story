# The trigger of a run decides whether its end is reported, in order and once.
with parent
with task clean up
model > Done.
told: turn_ended(finished)
user > and this
model > Done too.
told: turn_ended(finished), turn_ended(finished)
notify > by the way
model > I see.
told: turn_ended(finished), turn_ended(finished)
parent away
user > more
model > fails for good no
log … run_errored(provider_error) outbox(errored)
user > once more
model > Well.
told: turn_ended(finished), turn_ended(finished)
crash
parent back
told: turn_ended(finished), turn_ended(finished), errored, turn_ended(finished)
person > shutdown
pod is gone
told: turn_ended(finished), turn_ended(finished), errored, turn_ended(finished), shut_down
