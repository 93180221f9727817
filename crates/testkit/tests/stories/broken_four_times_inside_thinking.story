# The fourth break in one turn ends the run with the reason; each of the four requests counts for the budget.
kills differ: a request that the crash cut off also counts for the budget
with budget {"turns":4}
user > tell me
model > begin think: one
model > cut
model > begin think: two
model > cut
model > begin think: three
model > cut
model > begin think: four
model > cut
log … llm_call llm_end(broken) llm_call llm_end(broken) llm_call llm_end(broken) llm_call llm_end(broken) turn_end(error) run_errored(provider_error)
pod is idle
context: user tell me
user > again
reply < refused budget_exceeded
